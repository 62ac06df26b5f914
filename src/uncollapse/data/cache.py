"""Decoded images, resized once into a memory-mapped file: the second epoch runs at memory speed.

A cache is a manifest (JSON) and the pixel file it names, which is written first: a reader sees a
finished cache or none. A lock only saves doing the work twice.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.files import read_json, streamed_aside, write_json
from uncollapse._base.lock import FileLock
from uncollapse._base.progress import ProgressOption, progress_reporter
from uncollapse.data.images import FileSource, Findings, decode_each
from uncollapse.data.load_report import DataError

__all__ = ["CacheError", "Cached", "MappedSource", "cache_folder", "cached", "explain_cache_error"]

_FORMAT = 1
_SIGN_OF_LIFE = 64  # images decoded between two of them


class CacheError(DataError):
    """A cache that cannot be written; the message says where, why, and what to do."""


@dataclass(frozen=True)
class MappedSource:
    """Images in a memory-mapped file of raw uint8; a process it is sent to opens it again."""

    path: Path
    count: int
    shape: tuple[int, ...]
    _maps: dict[str, Tensor] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return self.count

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "count": self.count, "shape": self.shape, "_maps": {}}

    def read(self, rows: Tensor) -> Tensor:
        """The images of these rows, copied out of the map."""
        if "map" not in self._maps:
            # Copy-on-write: torch wants writable memory, the file must not change.
            pixels = np.memmap(self.path, np.uint8, "c", shape=(self.count, *self.shape))
            self._maps["map"] = torch.from_numpy(pixels)
        return self._maps["map"].index_select(0, rows)


@dataclass(frozen=True)
class Cached:
    """A finished cache: its images, which rows of the source they are, and what decoding met."""

    source: MappedSource
    rows: tuple[int, ...]
    unreadable: tuple[str, ...] = ()
    converted: dict[str, tuple[str, ...]] = field(default_factory=dict)


def cache_folder() -> Path:
    """`UNCOLLAPSE_CACHE`, or `~/.cache/uncollapse`.

    >>> cache_folder().is_absolute() or "UNCOLLAPSE_CACHE" in os.environ
    True
    """
    return Path(os.environ.get("UNCOLLAPSE_CACHE") or "~/.cache/uncollapse").expanduser()


def cached(
    source: FileSource,
    name: str,
    *,
    place: str = "",
    folder: Path | None = None,
    progress: ProgressOption = None,
    workers: int | None = None,
) -> Cached:
    """The images of `source` from a cache called `name`, which is built if there is none that fits.

    One cache is kept for each name, place and decoding. It fits when format, decoding and every
    file's path, size and modification time are those it was built from. Safe with several
    processes: one builds, the others wait and read. Images that cannot be decoded are left out and
    named. `progress(done, total)` is told while building; by default a bar is drawn when standard
    error is a terminal.

    >>> import tempfile
    >>> from PIL import Image
    >>> from uncollapse.data.images import Decoding
    >>> from uncollapse.data.listing import ImageRef
    >>> with tempfile.TemporaryDirectory() as scratch:
    ...     file = Path(scratch, "a.png")
    ...     Image.new("RGB", (4, 4), (9, 9, 9)).save(file)
    ...     source = FileSource([ImageRef(file)], Decoding(size=(2, 2)))
    ...     found = cached(source, "example", folder=Path(scratch, "cache"))
    >>> int(found.source.read(torch.tensor([0])).max())
    9
    """
    folder = cache_folder() if folder is None else folder
    print_of = _fingerprint(source)
    identity = hashlib.sha256(repr((name, place, source.how)).encode()).hexdigest()[:16]
    manifest = folder / f"{name}-{identity}.json"
    ready = _open(manifest, print_of)
    if ready is not None:
        return ready
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(manifest.with_suffix(".lock")) as lock:
            ready = _open(manifest, print_of)  # another process may have built it meanwhile
            if ready is None:
                _build(source, manifest, print_of, lock, progress, workers)
                ready = _open(manifest, print_of)
    except OSError as error:
        raise explain_cache_error(error, folder, "image") from error
    if ready is None:
        raise CacheError(f"the cache in {folder} was removed while it was being built")
    return ready


def _fingerprint(source: FileSource) -> str:
    """Digest of the format, the decoding, and each file's path, size and modification time."""
    digest = hashlib.sha256(repr((_FORMAT, source.how)).encode())
    seen: dict[Path, str] = {}
    for image in source.images:
        if image.path not in seen:
            try:
                status = image.path.stat()
                seen[image.path] = f"{image.path}|{status.st_size}|{status.st_mtime_ns}"
            except OSError:
                seen[image.path] = f"{image.path}|gone"
        digest.update(f"{seen[image.path]}|{image.member}\n".encode())
    return digest.hexdigest()


def _open(manifest: Path, print_of: str) -> Cached | None:
    """The finished cache, or None when there is none, it is of something else, or is damaged."""
    try:
        found = read_json(manifest)
        if found["fingerprint"] != print_of:
            return None
        pixels = manifest.with_name(found["pixels"])
        shape = tuple(int(length) for length in found["shape"])
        if pixels.stat().st_size != int(np.prod(shape, dtype=np.int64)):
            return None
        rows = tuple(int(row) for row in found["rows"])
        unreadable = tuple(map(str, found["unreadable"]))
        converted = {str(mode): tuple(names) for mode, names in found["converted"].items()}
        if len(rows) != shape[0]:
            return None
        source = MappedSource(pixels, shape[0], shape[1:])
        if rows:
            source.read(torch.arange(1))  # open now: another process may rebuild and remove it
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return Cached(source, rows, unreadable, converted)


def _build(
    source: FileSource,
    manifest: Path,
    print_of: str,
    lock: FileLock,
    progress: ProgressOption,
    workers: int | None,
) -> None:
    need = len(source) * int(np.prod(source.shape))
    free = shutil.disk_usage(manifest.parent).free
    if need > free:
        raise OSError(errno.ENOSPC, f"{need / 1e9:.1f} GB needed, {free / 1e9:.1f} GB free")
    pixels = manifest.with_name(f"{manifest.stem}-{uuid.uuid4().hex[:12]}.u8")
    try:
        with streamed_aside(pixels) as file:
            entry = _decode_all(source, file, lock, progress, workers)
        entry |= {"fingerprint": print_of, "pixels": pixels.name, "decoding": asdict(source.how)}
        write_json(manifest, entry)
    except BaseException:
        pixels.unlink(missing_ok=True)
        raise
    for pattern in (f"{manifest.stem}-*", f".{manifest.stem}*"):
        for old in manifest.parent.glob(pattern):
            # What no manifest names any more: of a changed source, or of a killed build.
            if old != pixels:
                with contextlib.suppress(OSError):
                    old.unlink()


def _decode_all(
    source: FileSource,
    file: BinaryIO,
    lock: FileLock,
    progress: ProgressOption,
    workers: int | None,
) -> dict[str, Any]:
    """Write every readable image to `file` in order; return what the manifest says of them."""
    rows: list[int] = []
    findings = Findings()
    with progress_reporter(progress, "decoding images") as show:
        for image in decode_each(source, workers):
            findings.add(source.images[image.row], image)
            if image.pixels is not None:
                # Plain writes, not a writable map: a full disk is then an error, not a crash.
                file.write(image.pixels.tobytes())
                rows.append(image.row)
            done = image.row + 1
            if done % _SIGN_OF_LIFE == 0 or done == len(source):
                lock.refresh()
                show(done, len(source))
    return {"shape": [len(rows), *source.shape], "rows": rows} | asdict(findings)


def explain_cache_error(error: OSError, folder: Path, what: str) -> CacheError:
    """Say why a cache cannot be written, and what to do; `what` it holds."""
    if error.errno == errno.ENOSPC:
        why = f"the disk is full ({error.strerror})"
    else:
        why = f"it cannot be written ({error.strerror or error})"
    instead = ", or pass cache=False to decode images each time" if what == "image" else ""
    return CacheError(
        f"{what} cache in {folder}: {why}; set UNCOLLAPSE_CACHE to another folder{instead}"
    )
