"""A browser for the tests: Chromium without a window, spoken to over a pipe."""

import json
import os
import select
import shutil
import subprocess
from dataclasses import dataclass, field

import pytest

from report.examples import copy_run
from support.runs import canonical
from uncollapse.training import Run

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-sync "
    "--disable-background-networking --disable-component-update --disable-default-apps "
    "--disable-extensions --hide-scrollbars --no-first-run --remote-debugging-pipe"
)


@dataclass
class Visit:
    """What a page did when it was opened."""

    browser: "Browser"
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def value(self, script):
        """The value of an expression in the page."""
        answer = self.browser.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press_space(self):
        """The space bar down and up."""
        key = {"key": " ", "windowsVirtualKeyCode": 32}
        self.browser.call("Input.dispatchKeyEvent", type="keyDown", text=" ", **key)
        self.browser.call("Input.dispatchKeyEvent", type="keyUp", **key)

    def mouse(self, x, y, *, click=False):
        """The mouse at a place of the window, moved there or clicked."""
        for kind in ("mouseMoved", *("mousePressed", "mouseReleased") * click):
            button = {"button": "left", "clickCount": 1} if kind != "mouseMoved" else {}
            self.browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def key(self, name):
        """A key that writes nothing, such as `Escape`, down and up."""
        codes = {"Escape": 27, "Enter": 13, "ArrowLeft": 37, "ArrowRight": 39}
        for kind in ("rawKeyDown", "keyUp"):
            code = {"key": name, "windowsVirtualKeyCode": codes[name]}
            self.browser.call("Input.dispatchKeyEvent", type=kind, **code)


class Browser:
    """The part of the DevTools protocol that the tests need: JSON messages ended by a zero byte."""

    def __init__(self, program, folder):
        here_read, there_write = os.pipe()
        there_read, here_write = os.pipe()
        # The browser reads commands from descriptor 3 and answers on 4.
        script = f'exec 3<&{there_read} 4>&{there_write}; exec "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", script, "bash", program, *_FLAGS.split(), f"--user-data-dir={folder}"],
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

    def call(self, method, **params):
        """Send a command and wait for its answer; what happens meanwhile is noted."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._writer.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._last:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def open(self, path, width=1280, *, dark=False):
        """Load a file at a width; a phone below 600 pixels."""
        self._visit = Visit(self)
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._loaded = False
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not self._loaded:
            self._next()
        visit = self._visit
        visit.value("document.readyState")  # events that were under way have come
        return visit

    def close(self):
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

    def _next(self):
        while b"\0" not in self._buffer:
            if not select.select([self._reader], [], [], 120)[0]:
                raise TimeoutError("the browser has said nothing for two minutes")
            chunk = self._reader.read(1 << 16)
            if not chunk:
                raise EOFError("the browser ended")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method, params):
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self._visit.requests.append(params["request"]["url"])
        elif method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self._visit.complaints.append(json.dumps(params))


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    program = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install -y chromium)")
    opened = Browser(program, tmp_path_factory.mktemp("chromium"))
    yield opened
    opened.close()


@pytest.fixture
def copied(tmp_path):
    """A run that a test may change."""
    return copy_run(tmp_path / "copied")


@pytest.fixture(scope="session")
def plain_run():
    return Run(canonical("plain") / "run")


@pytest.fixture(scope="session")
def hard_run(tmp_path_factory):
    """The plain run again, with another config."""
    return copy_run(tmp_path_factory.mktemp("runs") / "hard", 'positives = "hard"')
