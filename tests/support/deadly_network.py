"""Networks that take their process with them, as running out of memory does."""

import os
import signal
from pathlib import Path

import torch
from torch import nn

DEATH = "UNCOLLAPSE_TEST_DEATH"  # "RANK STEP FILE": once, at a step of a rank; FILE says it is over
MORTAL = "support.deadly_network:Mortal"


def network(dim):
    os.kill(os.getpid(), signal.SIGKILL)


class Mortal(nn.Sequential):
    """Kills its process at the training step that the environment names, the first time."""

    def __init__(self, dim):
        super().__init__(nn.Flatten(), nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, dim))
        self.step = 0

    def forward(self, x):
        if self.training and torch.is_grad_enabled() and DEATH in os.environ:
            self.step += 1
            rank, step, over = os.environ[DEATH].split(maxsplit=2)
            if (os.environ["RANK"], self.step) == (rank, int(step)) and not Path(over).exists():
                Path(over).touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)
