"""Checksums: JSON files that carry their own, and those of the files beside them.

A JSON file with one digit changed is still JSON; only its checksum tells.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from uncollapse._base.files import DamagedFileError, read_json, write_json

__all__ = ["read_sealed", "sha256_of", "sums_of", "write_sealed"]

_SEAL = "seal"


def write_sealed(path: Path, values: Mapping[str, Any]) -> None:
    """Write a JSON object with its checksum in it, aside and renamed."""
    plain = json.loads(json.dumps(dict(values)))  # as it will be read: keys of text, lists
    write_json(path, plain | {_SEAL: _digest(plain)})


def read_sealed(path: Path) -> dict[str, Any]:
    """The object of such a file without its checksum; `DamagedFileError` if that differs.

    A file without one, of an earlier version, is taken as it is.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.json"
    >>> write_sealed(path, {"step": 8})
    >>> read_sealed(path)
    {'step': 8}
    >>> _ = path.write_text(path.read_text().replace("8", "9", 1))
    >>> read_sealed(path)
    Traceback (most recent call last):
    uncollapse._base.files.DamagedFileError: ...a.json is damaged: its checksum differs
    """
    values: dict[str, Any] = read_json(path)
    seal = values.pop(_SEAL, None)
    if seal is not None and seal != _digest(values):
        raise DamagedFileError(path, "its checksum differs")
    return values


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sums_of(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The SHA-256 of these files of a folder, by name; of those that are there."""
    return {name: sha256_of(folder / name) for name in names if (folder / name).is_file()}


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
