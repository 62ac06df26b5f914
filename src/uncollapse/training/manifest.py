"""`manifest.json` of a run folder: its files with their checksums, its log, its best checkpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from uncollapse._base.files import DamagedFileError, read_json, write_json

_MANIFEST = "manifest.json"
_FORMAT = 1


@dataclass(frozen=True)
class Manifest:
    """Checksums of the files in a run folder, to detect later changes.

    `files` has the SHA-256 of each file by its path in the folder. Of the log, which grows,
    the first `log_bytes` have the checksum `log_sha256`. `best` is the step of the best
    checkpoint. The file ends with a checksum of itself. A file that is not listed is not verified;
    where the manifest itself cannot be used, `complaint` says why, and nothing is verified.
    """

    folder: Path
    files: Mapping[str, str] = field(default_factory=dict)
    log_bytes: int = 0
    log_sha256: str | None = None
    best: int | None = None
    complaint: str | None = None

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read the manifest of a run folder.

        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.txt").write_text("a")
        >>> Manifest(folder).record("a.txt").write()
        >>> _ = (folder / "a.txt").write_text("b")
        >>> Manifest.read(folder).damage("a.txt")
        '...a.txt is damaged: its checksum differs'
        """
        path = folder / _MANIFEST
        if not path.is_file():
            why = "is missing: it was lost, or the run is of an earlier version"
            return cls(folder, complaint=f"{path} {why}; its files are not verified")
        try:
            values = read_json(path)
            seal = values.pop("seal", None)
            if seal != _digest(values) or values.pop("format", None) != _FORMAT:
                raise DamagedFileError(path, "its checksum differs")
        except DamagedFileError as error:
            return cls(folder, complaint=f"{error}; the files of the run are not verified")
        return cls(folder, **values)

    def write(self) -> None:
        """Write `manifest.json`, with its own checksum."""
        kept = ("files", "log_bytes", "log_sha256", "best")
        values = {"format": _FORMAT} | {name: getattr(self, name) for name in kept}
        write_json(self.folder / _MANIFEST, values | {"seal": _digest(values)})

    def record(self, *names: str) -> Manifest:
        """A manifest with the present checksums of these files; missing ones are dropped."""
        there = [name for name in names if (self.folder / name).is_file()]
        sums = {name: _sha256(self.folder / name) for name in there}
        return replace(self, files={**self.without(names).files, **sums})

    def with_log(self, path: Path) -> Manifest:
        """A manifest with the present length and checksum of the log."""
        content = path.read_bytes() if path.is_file() else b""
        return replace(self, log_bytes=len(content), log_sha256=hashlib.sha256(content).hexdigest())

    def without(self, names: Iterable[str]) -> Manifest:
        """A manifest without these files."""
        gone = set(names)
        return replace(self, files={k: v for k, v in self.files.items() if k not in gone})

    def damage(self, name: str) -> str | None:
        """What is wrong with a file; None if it is as it was recorded, or not listed."""
        path = self.folder / name
        if name not in self.files:
            return None
        if not path.is_file():
            return f"{path} is missing"
        if _sha256(path) == self.files[name]:
            return None
        return str(DamagedFileError(path, "its checksum differs"))

    def check(self, name: str) -> None:
        """Raise `DamagedFileError` for a file that is there and not as it was recorded."""
        if (self.folder / name).is_file() and self.damage(name) is not None:
            raise DamagedFileError(self.folder / name, "its checksum differs")

    def log_damage(self, path: Path, *, ended: bool = False) -> str | None:
        """What is wrong with the log; once the run has `ended`, it may not have grown either."""
        if self.log_sha256 is None:
            return None
        content = path.read_bytes() if path.is_file() else b""
        if not content and self.log_bytes:
            return f"{path} is missing"
        known = hashlib.sha256(content[: self.log_bytes]).hexdigest() == self.log_sha256
        if known and not (ended and len(content) > self.log_bytes):
            return None
        return str(DamagedFileError(path, f"it is not as {_MANIFEST} knows it"))


def record_files(folder: Path, *names: str) -> None:
    """Record files of a run as they are now, where its manifest can be used."""
    manifest = Manifest.read(folder)
    if manifest.complaint is None:
        manifest.record(*names).write()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
