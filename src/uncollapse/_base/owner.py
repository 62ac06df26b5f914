"""A folder has one writer: a second one is refused, and one that lost the folder stops."""

from __future__ import annotations

import contextlib
from pathlib import Path

from uncollapse._base.lock import FileLock, LockedError

__all__ = ["FolderOwner", "InUseError"]

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
    uncollapse._base.owner.InUseError: ... is being written by process ...
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
