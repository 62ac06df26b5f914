"""Lock files between processes: one works, others wait or are refused.

`filelock` holds, refreshes and takes over the locks of dead processes. Added here: a lock that
nobody refreshed is removed by its age. filelock would have to watch it that long first, keeps an
empty one for ever, and takes nothing over on network file systems.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from filelock import SoftFileLease, Timeout, lock_descriptor

_STALE = 60.0  # seconds without a sign of life; a holder refreshes its lock six times in them
_POLL = 0.1  # seconds between two looks at a lock that is held
_ATTEMPTS = 10  # looks at a lock that names nobody, before it is refused


class InUseError(RuntimeError):
    """A folder that another process writes; the message says which, and what to do."""


class FileLock:
    """Hold `path` while inside `with`; waits for another holder, or with `wait=False` raises.

    The lock of a process of this machine that is gone is taken over at once, any other after
    `stale_after` seconds without a sign of life, that of a living process of this machine after ten
    times as long. A holder that was away for so long finds out by `still_held`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with FileLock(Path(folder) / "x.lock") as lock:
    ...         inside = lock.path.exists()
    ...     inside, lock.path.exists()
    (True, False)
    """

    def __init__(self, path: Path, *, wait: bool = True, stale_after: float = _STALE) -> None:
        self.path, self.wait, self.stale_after = path, wait, stale_after
        self._lease = SoftFileLease(
            path,
            lease_duration=10 * stale_after,
            heartbeat_interval=stale_after / 6,
            thread_local=False,
        )

    def still_held(self) -> bool:
        """Whether it is this holder's still; a lock file that was removed is made again."""
        try:
            return f"token={self._lease.token}\n".encode() in self.path.read_bytes()
        except FileNotFoundError:
            self._lease.release(force=True)
            with contextlib.suppress(OSError, Timeout):
                self._lease.acquire(timeout=0)
            return self._lease.is_locked
        except OSError:  # a network that stutters: nobody is known to have taken it
            return True

    def __enter__(self) -> FileLock:
        attempt = 0
        while True:
            with contextlib.suppress(OSError):
                self._remove_expired()
            try:
                self._lease.acquire(timeout=0)
                return self
            except Timeout:
                pass
            except PermissionError:  # of another user's lock file, unless there is none
                if not self.path.exists():
                    raise
            # A process that has just made the file writes its name into it in a moment.
            named = self._lease.owner is not None or attempt >= _ATTEMPTS
            if not self.wait and named and self.path.exists():
                raise InUseError(
                    f"{self.path.parent} is being written by {self._holder()}: wait for it to end, "
                    f"or give another folder; if that process is gone, delete {self.path}"
                )
            time.sleep(_POLL)
            attempt += 1

    def __exit__(self, *_: object) -> None:
        self._lease.release(force=True)

    def _holder(self) -> str:
        owner = self._lease.owner
        if owner is None:
            return "a process that has left no name"
        return f"process {owner.pid} on {owner.hostname.partition('?')[0]}"

    def _remove_expired(self) -> None:
        """Remove a lock that was not refreshed for too long, unless another just took it over."""
        expired = self.path.stat()
        limit = self.stale_after * (10 if self._holder_runs_here() else 1)
        if time.time() - expired.st_mtime <= limit or self._age(expired) <= limit:
            return
        aside = self._aside()
        with _alone_on_this_machine(self.path.parent):
            if not _same_file(self.path.stat(), expired):
                return
            os.replace(self.path, aside)
        if not _same_file(aside.stat(), expired):  # another machine's, of this moment
            with contextlib.suppress(OSError):
                os.link(aside, self.path)
        aside.unlink()

    def _holder_runs_here(self) -> bool:
        owner = self._lease.owner
        if owner is None or owner.hostname.partition("?")[0] != socket.gethostname():
            return False
        if os.name != "posix":  # there a signal of 0 is no question
            return True
        try:
            os.kill(owner.pid, 0)
        except OSError as error:
            return not isinstance(error, ProcessLookupError)
        return True

    def _age(self, lock: os.stat_result) -> float:
        """Seconds since its last refresh, by the file system's clock: ours may be ahead of it."""
        probe = self._aside()
        probe.touch()
        try:
            return probe.stat().st_mtime - lock.st_mtime
        finally:
            probe.unlink()

    def _aside(self) -> Path:
        name = self.path.name.removeprefix(".")
        return self.path.with_name(f".{name}.{uuid.uuid4().hex}")


class FolderOwner:
    """Own a folder while inside `with`: its `.lock` says which process does.

    A folder that another process owns is refused with `InUseError`; with `wait` it is waited for.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with FolderOwner(folder), FolderOwner(folder):
    ...     pass
    Traceback (most recent call last):
    uncollapse._base.lock.InUseError: ... is being written by process ...
    """

    def __init__(self, folder: Path, *, wait: bool = False) -> None:
        self.folder = folder
        self._lock = FileLock(folder / ".lock", wait=wait)
        self._made = False

    def __enter__(self) -> FolderOwner:
        self._made = not self.folder.is_dir()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock.__enter__()
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


@contextlib.contextmanager
def _alone_on_this_machine(folder: Path) -> Iterator[None]:
    """Keep other processes of this machine out, where the file system can; a crash lets them in."""
    handle = None
    with contextlib.suppress(OSError):  # Windows opens no folder, NFS locks none
        handle = os.open(folder, os.O_RDONLY)
        lock_descriptor(handle)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _same_file(first: os.stat_result, second: os.stat_result) -> bool:
    return os.path.samestat(first, second) and first.st_mtime_ns == second.st_mtime_ns
