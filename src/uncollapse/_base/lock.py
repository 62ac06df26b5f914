"""Lock files between processes: one works, others wait or are refused.

`filelock` holds, refreshes and takes over the locks of dead processes. Added here: a lock that
nobody refreshed is removed by its age. filelock would have to watch it that long first, keeps an
empty one for ever, and takes nothing over on network file systems.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from pathlib import Path
from typing import Self

from filelock import SoftFileLease, Timeout

_STALE = 60.0  # seconds without a refresh; a holder refreshes its lock six times in them


class InUseError(RuntimeError):
    """Another process is writing to the folder; the message names it and says what to do."""


class FileLock:
    """Hold `path` while inside `with`; waits for another holder, or with `wait=False` raises.

    The lock of a dead process on this machine is taken over at once, any other after a minute
    without a refresh. A holder that was suspended for that long finds out with `still_held`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with FileLock(Path(folder) / "x.lock") as lock:
    ...         inside = lock.path.exists()
    ...     inside, lock.path.exists()
    (True, False)
    """

    def __init__(self, path: Path, *, wait: bool = True) -> None:
        self.path, self.wait = path, wait
        self._lease = SoftFileLease(
            path, lease_duration=10 * _STALE, heartbeat_interval=_STALE / 6, thread_local=False
        )

    def still_held(self) -> bool:
        """Whether this holder still has the lock; a lock file that was deleted is made again."""
        try:
            return f"token={self._lease.token}\n".encode() in self.path.read_bytes()
        except FileNotFoundError:
            self._lease.release(force=True)
            with contextlib.suppress(OSError, Timeout):
                self._lease.acquire(timeout=0)
            return self._lease.is_locked
        except OSError:  # a network that stutters: nobody is known to have taken it
            return True

    def __enter__(self) -> Self:
        named_by = time.monotonic() + 1.0  # who has just made the file writes its name into it
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
            owner, holder = self._lease.owner, "an unknown process"
            if owner is not None:
                holder = f"process {owner.pid} on {owner.hostname.partition('?')[0]}"
            if not self.wait and self.path.exists() and (owner or time.monotonic() > named_by):
                raise InUseError(
                    f"{self.path.parent} is being written by {holder}: wait for it to end, "
                    f"or give another folder; if that process is gone, delete {self.path}"
                )
            time.sleep(0.1)  # until the next look

    def __exit__(self, *_: object) -> None:
        self._lease.release(force=True)

    def _remove_expired(self) -> None:
        """Remove a lock that was not refreshed for too long, unless another just took it over."""
        expired = self.path.stat()
        if time.time() - expired.st_mtime <= _STALE:
            return
        aside = self.path.with_name(f".{self.path.name.removeprefix('.')}.{uuid.uuid4().hex}")
        aside.touch()
        try:
            # By the file system's clock: ours may be ahead of it.
            is_old = aside.stat().st_mtime - expired.st_mtime > _STALE
            if is_old and _same_file(self.path.stat(), expired):
                os.replace(self.path, aside)
                if not _same_file(aside.stat(), expired):  # another's, of this moment
                    os.link(aside, self.path)
        finally:
            aside.unlink()


class FolderOwner(FileLock):
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
        super().__init__(folder / ".lock", wait=wait)
        self.folder, self._made = folder, False

    def __enter__(self) -> Self:
        self._made = not self.folder.is_dir()
        self.folder.mkdir(parents=True, exist_ok=True)
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self._made:  # nothing came of it: leave nothing behind
            with contextlib.suppress(OSError):
                self.folder.rmdir()

    def check(self) -> None:
        """Raise unless this process still owns the folder; call it before important writes."""
        if not self.still_held():
            raise InUseError(f"{self.folder} was taken over by another process; this one stops")


def _same_file(first: os.stat_result, second: os.stat_result) -> bool:
    return os.path.samestat(first, second) and first.st_mtime_ns == second.st_mtime_ns
