"""A network that stops at one of its training steps until it is let go, or its process is killed.

So a test kills a process at a known moment, however fast the machine is.
"""

import itertools
import os
import signal
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

STEP = 12
_FOLDER = "UNCOLLAPSE_TEST_GATE"
_arrivals = itertools.count()


class Network(nn.Sequential):
    def __init__(self, dim):
        super().__init__(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, dim))
        self.seen = 0

    def forward(self, x):
        if self.training and torch.is_grad_enabled():  # a training step, not a measurement
            self.seen += 1
            if self.seen == STEP and _FOLDER in os.environ:
                _wait(Path(os.environ[_FOLDER]))
        return super().forward(x)


def _wait(gate):
    name = f"{os.getpid()}-{next(_arrivals)}"
    (gate / name).touch()
    while not (gate / f"{name}.go").exists():
        time.sleep(0.005)


class Gate:
    """The other side: `arrival` waits for a process to stand there, `let_go` lets it go on.

    It is put into `environment` (os.environ), together with where this module is found.
    """

    def __init__(self, folder, environment):
        folder.mkdir()
        self.folder, self._known = folder, set()
        environment[_FOLDER] = str(folder)
        paths = [str(Path(__file__).parents[1]), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))

    def arrival(self, ended=None):
        """The next arrival, or None once `ended()`; without it one has to come in two minutes."""
        latest = time.monotonic() + 120
        while time.monotonic() < latest if ended is None else not ended():
            for path in self.folder.glob("*-*[0-9]"):
                if path.name not in self._known:
                    self._known.add(path.name)
                    return path.name
            time.sleep(0.005)
        if ended is None:
            raise TimeoutError(f"no process has come to {self.folder}")
        return None

    @staticmethod
    def pid(arrival):
        return int(arrival.partition("-")[0])

    def let_go(self, arrival):
        (self.folder / f"{arrival}.go").touch()

    @contextmanager
    def killing(self, wanted):
        """Meanwhile kill the first process for which `wanted(pid)`, and let all others go."""
        ended, killed = threading.Event(), []

        def answer():
            while (arrival := self.arrival(ended.is_set)) is not None:
                if not killed and wanted(self.pid(arrival)):
                    killed.append(self.pid(arrival))
                    os.kill(self.pid(arrival), signal.SIGKILL)
                else:
                    self.let_go(arrival)

        helper = threading.Thread(target=answer)
        helper.start()
        try:
            yield killed
        finally:
            ended.set()
            helper.join()
