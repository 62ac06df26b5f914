"""A browser for the tests: Chromium without a window, spoken to over a pipe."""

from __future__ import annotations

import csv
import json
import os
import select
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from uncollapse.training import Run, parse_config, train

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
)


@dataclass
class Visit:
    """What a page did when it was opened."""

    browser: Browser
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def value(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.browser.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """A key down and up."""
        for kind in ("keyDown", "keyUp"):
            text = {"text": " "} if key == " " and kind == "keyDown" else {}
            self.browser.call(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text
            )


class Browser:
    """The part of the DevTools protocol that the tests need: JSON messages ended by a zero byte."""

    def __init__(self, program: str, folder: Path) -> None:
        here_read, there_write = os.pipe()
        there_read, here_write = os.pipe()
        # The browser reads commands from descriptor 3 and answers on 4.
        script = f'exec 3<&{there_read} 4>&{there_write}; exec "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", script, "bash", program, *_FLAGS, f"--user-data-dir={folder}"],
            pass_fds=(there_read, there_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"HOME": str(folder), "DBUS_SESSION_BUS_ADDRESS": "disabled:"},
        )
        os.close(there_read)
        os.close(there_write)
        self._reader = os.fdopen(here_read, "rb", buffering=0)
        self._writer = os.fdopen(here_write, "wb", buffering=0)
        self._buffer, self._last, self._session = b"", 0, ""
        self._visit = Visit(self)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        found = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; what happens meanwhile is noted."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._writer.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._last:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def open(self, path: Path, width: int = 1280, *, dark: bool = False) -> Visit:
        """Load a file at a width; a phone below 600 pixels."""
        self._visit = Visit(self)
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._loaded = False
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not self._loaded:
            self._next()
        visit = self._visit
        visit.value("document.readyState")  # events that were under way have come
        return visit

    def close(self) -> None:
        """End the browser."""
        self._session = ""
        try:
            self.call("Browser.close")
            self.process.wait(10)
        except (OSError, EOFError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self._reader.close()
        self._writer.close()

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._reader], [], [], 120)[0]:
                raise TimeoutError("the browser has said nothing for two minutes")
            chunk = self._reader.read(1 << 16)
            if not chunk:
                raise EOFError("the browser ended")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self._visit.requests.append(params["request"]["url"])
        elif method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self._visit.complaints.append(json.dumps(params))


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install -y chromium)")
    opened = Browser(program, tmp_path_factory.mktemp("chromium"))
    yield opened
    opened.close()


SWEEP = """
seeds = 2
[base.data]
name = "digits"
[base.model]
backbone = "linear"
[[grid]]
batch.p = [2, 8]
batch.k = [2, 4]
[[grid]]
model.dim = [4, 16]
"""


def write_sweep(folder: Path, *, error: str = "out of memory") -> Path:
    """The folder of a sweep that has ended: large batches collapsed, one run failed."""
    folder.mkdir(parents=True)
    (folder / "sweep.toml").write_text(SWEEP, encoding="utf-8")
    shapes = [(p, k, 128) for p in (2, 8) for k in (2, 4)] + [(8, 4, 4), (8, 4, 16)]
    head = ["run", "batch.p", "batch.k", "model.dim", "seed", "status", "verdict", "collapsed"]
    head += ["diameter_init", "diameter", "bound", "test/recall@1", "error"]
    rows = []
    for p, k, dim in shapes:
        for seed in (0, 1):
            fell = p * k > 16
            ends = ["network-collapse", True, 2.0, 0.01, -1.0, 0.1]
            if not fell:
                ends = ["healthy", False, 2.0, 1.5 - 0.1 * seed, 1.0, 0.9]
            rows.append(
                [f"p={p},k={k},dim={dim},seed={seed}", p, k, dim, seed, "finished", *ends, ""]
            )
    rows[-1][5:] = ["failed", "", "", "", "", "", "", error]
    with (folder / "results.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([head, *rows])
    return folder


@pytest.fixture(scope="session")
def make_sweep() -> Callable[..., Path]:
    return write_sweep


@pytest.fixture(scope="session")
def sweep_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sweep(tmp_path_factory.mktemp("sweeps") / "shapes")


def _train(folder: Path, **mining: str) -> Run:
    settings = {
        "data": {"name": "digits"},
        "model": {"backbone": "mlp", "dim": 4, "hidden": [16]},
        "batch": {"p": 4, "k": 4},
        "mining": mining,
        "train": {"steps": 6, "log_every": 2, "evaluate_every": 3},
        "evaluate": {"ks": [1, 4], "max_samples": 100},
    }
    return train(parse_config(settings), folder)


@pytest.fixture(scope="session")
def easy_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _train(tmp_path_factory.mktemp("runs") / "easy", positives="easy", negatives="hard")


@pytest.fixture(scope="session")
def hard_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _train(tmp_path_factory.mktemp("runs") / "hard", positives="hard", negatives="hard")
