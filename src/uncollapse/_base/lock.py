"""A lock file between processes: one works, others wait or go; a dead holder's lock is taken over.

The package `filelock` does not serve: its soft locks outlive a crash on another machine unless they
expire by age alone, under a living holder too.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["FileLock", "FolderOwner", "InUseError", "LockedError"]


class LockedError(RuntimeError):
    """Another process holds the lock; `holder` says which, as far as it is known."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(f"{path} is held by {holder}")
        self.holder = holder


class FileLock:
    """Hold `path` while inside `with`; waits for another holder, or with `wait=False` raises.

    A lock is stale when its process is gone (on this machine), or when it was not refreshed for
    `stale_after` seconds (from another machine) or ten times that (a holder that is stuck). The
    holder refreshes it as its work goes on; with `beat` a thread does, every so many seconds. One
    that was away for so long that another took over finds out by `still_held`.

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
        wait: bool = True,
        beat: float | None = None,
        stale_after: float = 60.0,
        poll: float = 0.1,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.path, self.wait, self.beat = path, wait, beat
        self.stale_after, self.poll = stale_after, poll
        self._sleep = sleep
        pid, name = os.getpid(), uuid.uuid4().hex
        self._owner = f"{socket.gethostname()} {pid} {name}:{_namespace()}:{_started(pid)}"
        self._ended = threading.Event()

    def refresh(self) -> None:
        """Tell other processes that the holder is alive."""
        with contextlib.suppress(OSError):
            os.utime(self.path)

    def still_held(self) -> bool:
        """Whether it is this holder's still; a lock file that was removed is made again."""
        try:
            return self.path.read_text() == self._owner
        except FileNotFoundError:
            with contextlib.suppress(OSError):
                return self._take()
            return False
        except OSError:  # a network that stutters: nobody is known to have taken it
            return True

    def __enter__(self) -> FileLock:
        while not self._take():
            holder = self._holder()
            if self._stale(holder):
                self._break(holder)
            elif self.wait:
                self._sleep(self.poll)
            elif holder or self.path.exists():
                raise LockedError(self.path, _said(holder))
        if self.beat is not None:
            self._ended.clear()
            threading.Thread(target=self._keep_alive, daemon=True, name="lock").start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._holder() == self._owner:
            self.path.unlink(missing_ok=True)

    def _keep_alive(self) -> None:
        while not self._ended.wait(self.beat):
            self.refresh()

    def _take(self) -> bool:
        """Make the lock file, with its owner in it from the first moment, unless there is one."""
        aside = self._aside()
        try:
            aside.write_text(self._owner)
            os.link(aside, self.path)
        except FileExistsError:
            return False
        except (NotImplementedError, PermissionError):  # a file system without links
            return self._make()
        except OSError:
            if not self.path.parent.is_dir():
                raise
            return self._make()
        finally:
            aside.unlink(missing_ok=True)
        return True

    def _make(self) -> bool:
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
            touched = self.path.stat().st_mtime
        except OSError:
            return False  # gone: try to take it
        host, pid, namespace, started = _parsed(holder)
        here = host == socket.gethostname() and namespace in ("", _namespace())
        if here and pid.isdigit() and os.name == "posix":
            if not _alive(int(pid), started):
                return True
            limit = 10 * self.stale_after
        else:
            limit = self.stale_after
        # Our clock may be ahead of the one that wrote the time: ask the file system's as well.
        return time.time() - touched > limit and self._clock() - touched > limit

    def _clock(self) -> float:
        probe = self._aside()
        try:
            probe.touch()
            return probe.stat().st_mtime
        except OSError:
            return time.time()
        finally:
            with contextlib.suppress(OSError):
                probe.unlink(missing_ok=True)

    def _break(self, holder: str) -> None:
        """Remove the lock of a stale holder, by renaming it first, so that only one process does.

        Another process may have done so a moment ago and hold the lock now: then it stays, or gets
        it back where processes of this machine cannot be made to do this one after the other.
        """
        aside = self._aside()
        with _one_at_a_time(self.path.parent), contextlib.suppress(OSError):
            if self._holder() != holder:
                return
            os.replace(self.path, aside)
            if _read(aside) != holder:
                with contextlib.suppress(OSError):
                    os.link(aside, self.path)
            aside.unlink()

    def _aside(self) -> Path:
        name = self.path.name.removeprefix(".")
        return self.path.with_name(f".{name}.{uuid.uuid4().hex}")


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Keep other processes of this machine out, where the file system can; a crash lets them in."""
    handle = None
    try:
        import fcntl

        with contextlib.suppress(OSError):
            handle = os.open(folder, os.O_RDONLY)
            fcntl.flock(handle, fcntl.LOCK_EX)
    except ImportError:  # Windows
        pass
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _parsed(holder: str) -> tuple[str, str, str, str]:
    """Host, process, its namespace and when it was started; what is not known is empty."""
    host, pid, rest = [*holder.split(" "), "", "", ""][:3]
    _, namespace, started = [*rest.split(":"), "", "", ""][:3]
    return host, pid, namespace, started


def _said(holder: str) -> str:
    host, pid, *_ = _parsed(holder)
    return f"process {pid} on {host}" if pid.isdigit() else "a process that has left no name"


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _alive(pid: int, started: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # it exists and belongs to someone else
        return True
    return not started or _started(pid) in ("", started)  # another may have a dead one's number


def _started(pid: int) -> str:
    """When a process began, in clock ticks since the machine did; empty where that is not known."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _namespace() -> str:
    """Which processes this one can see: those of another container of the same name it cannot."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return ""


# A folder has one writer: a second one is refused, and one that lost the folder stops.

_SIGN_OF_LIFE = 10.0  # seconds; a lock is taken over after several times as long


class InUseError(RuntimeError):
    """A folder that another process writes; the message says which, and what to do."""


class FolderOwner:
    """Own a folder while inside `with`: its `.lock` says which process does.

    A folder that another process owns is refused with `InUseError`; with `wait` it is waited for. A
    process that died owns nothing: on this machine that is seen at once, from another one after a
    minute without a sign of life.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with FolderOwner(folder), FolderOwner(folder):
    ...     pass
    Traceback (most recent call last):
    uncollapse._base.lock.InUseError: ... is being written by process ...
    """

    def __init__(self, folder: Path, *, wait: bool = False) -> None:
        self.folder = folder
        self._lock = FileLock(folder / ".lock", wait=wait, beat=_SIGN_OF_LIFE)
        self._made = False

    def __enter__(self) -> FolderOwner:
        self._made = not self.folder.is_dir()
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.__enter__()
        except LockedError as error:
            raise InUseError(
                f"{self.folder} is being written by {error.holder}: wait for it to end, or give "
                f"another folder; if that process is gone, delete {self._lock.path}"
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.__exit__()
        if self._made:  # nothing came of it: leave nothing behind
            with contextlib.suppress(OSError):
                self.folder.rmdir()

    def check(self) -> None:
        """Raise unless the folder is this process's still; ask before writing what counts."""
        if not self._lock.still_held():
            raise InUseError(
                f"{self.folder} was taken over by another process while this one was away: this "
                "one writes no more"
            )
