"""A lock file between processes: one works, others wait; a dead holder's lock is taken over.

The package `filelock` does not serve: its soft locks outlive a crash on another machine unless they
expire by age alone, under a living holder too, and its leases are refreshed by a thread, so that a
holder that is stuck is waited for. Here the work itself says that it goes on.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path

__all__ = ["FileLock"]


class FileLock:
    """Hold `path` while inside `with`; waits for another holder.

    A lock is stale when its process is gone (on this machine), or when it was not refreshed for
    `stale_after` seconds (from another machine) or ten times that (another process may by now have
    the number of a dead one). What is guarded must stay right without the lock: it saves doing work
    twice, correctness comes from renaming finished files into place.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with FileLock(Path(folder) / "x.lock") as lock:
    ...         inside = lock.path.exists()
    ...     inside, lock.path.exists()
    (True, False)
    """

    def __init__(
        self,
        path: Path,
        *,
        stale_after: float = 60.0,
        poll: float = 0.1,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.path = path
        self.stale_after = stale_after
        self.poll = poll
        self._sleep = sleep
        self._owner = f"{socket.gethostname()} {os.getpid()} {uuid.uuid4().hex}"

    def refresh(self) -> None:
        """Tell waiting processes that the holder is alive."""
        with contextlib.suppress(OSError):
            os.utime(self.path)

    def __enter__(self) -> FileLock:
        while not self._take():
            holder = self._holder()
            if self._stale(holder):
                self._break(holder)
            else:
                self._sleep(self.poll)
        return self

    def __exit__(self, *_: object) -> None:
        if self._holder() == self._owner:
            self.path.unlink(missing_ok=True)

    def _take(self) -> bool:
        try:
            handle = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return False
        with os.fdopen(handle, "w") as file:
            file.write(self._owner)
        return True

    def _holder(self) -> str:
        return _read(self.path)

    def _stale(self, holder: str) -> bool:
        try:
            age = time.time() - self.path.stat().st_mtime
        except OSError:
            return False  # gone: try to take it
        host, _, rest = holder.partition(" ")
        pid = rest.split(" ")[0]
        if host == socket.gethostname() and pid.isdigit() and os.name == "posix":
            return not _alive(int(pid)) or age > 10 * self.stale_after
        return age > self.stale_after

    def _break(self, holder: str) -> None:
        """Remove the lock of a stale holder, by renaming it first, so that only one process does.

        Another process may have done so a moment ago and hold the lock now: then it gets it back.
        """
        aside = self.path.with_name(f"{self.path.name}.{uuid.uuid4().hex}")
        with contextlib.suppress(OSError):
            os.replace(self.path, aside)
            if _read(aside) != holder:
                with contextlib.suppress(OSError):
                    os.link(aside, self.path)
            aside.unlink()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it exists and belongs to someone else
        return True
    return True
