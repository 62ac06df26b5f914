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
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.files import read_json, streamed_aside, write_json
from uncollapse._base.lock import FileLock
from uncollapse._base.progress import ProgressOption, progress_reporter
from uncollapse.data.images import FileSource, Findings, decode_each
from uncollapse.data.listing import DataError
from uncollapse.data.types import ImageSource, LabelledImages, SubsetSource

__all__ = [
    "CacheError",
    "Cached",
    "FeatureFile",
    "MappedSource",
    "cache_folder",
    "cached",
    "explain_cache_error",
    "with_features",
]


_FORMAT = 1
_SHOWN_EVERY = 64  # images decoded between two reports of progress


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
        with FileLock(manifest.with_suffix(".lock")):
            ready = _open(manifest, print_of)  # another process may have built it meanwhile
            if ready is None:
                _build(source, manifest, print_of, progress, workers)
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
            entry = _decode_all(source, file, progress, workers)
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
            if done % _SHOWN_EVERY == 0 or done == len(source):
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


# What a frozen network makes of samples, computed once into a memory-mapped `.npy` file.

_BATCH = 64


@dataclass(frozen=True)
class FeatureFile:
    """Features in a memory-mapped file; a process it is sent to opens it again."""

    path: Path
    _maps: dict[str, Tensor] = field(default_factory=dict, repr=False, compare=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample's features."""
        return tuple(self._map.shape[1:])

    def __len__(self) -> int:
        return len(self._map)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "_maps": {}}

    def read(self, rows: Tensor) -> Tensor:
        """The features of these rows, copied out of the map."""
        return self._map.index_select(0, rows)

    @property
    def _map(self) -> Tensor:
        if "map" not in self._maps:
            # Copy-on-write: torch wants writable memory, the file must not change.
            self._maps["map"] = torch.from_numpy(np.load(self.path, mmap_mode="c"))
        return self._maps["map"]


def with_features(
    data: LabelledImages,
    network: Callable[[Tensor], Tensor],
    identity: str,
    *,
    folder: Path | None = None,
    progress: ProgressOption = None,
) -> LabelledImages:
    """The same samples with the features that `network` makes of them, from a cache.

    `identity` says which network it is, and how `data.transform` prepares its samples. Safe with
    several processes: one computes, the others wait and read.

    >>> import tempfile
    >>> from uncollapse.data import TensorSource
    >>> data = LabelledImages(TensorSource(torch.ones(3, 4)), torch.tensor([0, 1, 1]))
    >>> with tempfile.TemporaryDirectory() as scratch:
    ...     made = with_features(data, lambda x: 2 * x[:, :2], "twice", folder=Path(scratch))
    ...     made[[0, 2]][0].tolist(), made.shape
    ([[2.0, 2.0], [2.0, 2.0]], (4,))
    """
    folder = cache_folder() if folder is None else folder
    path = folder / f"features-{_digest(data, identity)}.npy"
    try:
        if not path.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(path.with_suffix(".lock")):
                if not path.is_file():  # another process may have made it meanwhile
                    _compute(data, network, path, progress)
    except OSError as error:
        raise explain_cache_error(error, folder, "feature") from error
    return replace(data, features=FeatureFile(path))


def _compute(
    data: LabelledImages,
    network: Callable[[Tensor], Tensor],
    path: Path,
    progress: ProgressOption,
) -> None:
    starts = range(0, len(data), _BATCH)
    with streamed_aside(path) as file, progress_reporter(progress, "computing features") as show:
        for start in starts:
            made = network(data[start : start + _BATCH][0]).float().contiguous().cpu().numpy()
            if start == 0:
                shape = (len(data), *made.shape[1:])
                header = {"descr": "<f4", "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_2_0(file, header)
            file.write(made.tobytes())
            show(min(start + _BATCH, len(data)), len(data))


def _digest(data: LabelledImages, identity: str) -> str:
    digest = hashlib.blake2b(identity.encode(), digest_size=16)
    _add(digest, data.source)
    return digest.hexdigest()


def _add(digest: hashlib.blake2b, source: ImageSource) -> None:
    """Samples by what they are; a cache of images by its name, which no other content ever has."""
    if isinstance(source, MappedSource):
        digest.update(f"{source.path.name} {source.count} {source.shape}".encode())
    elif isinstance(source, SubsetSource):
        _add(digest, source.source)
        digest.update(source.rows.numpy().data)
    else:
        for start in range(0, len(source), 1024):
            rows = torch.arange(start, min(start + 1024, len(source)))
            samples = source.read(rows).contiguous()
            digest.update(f"{tuple(samples.shape)} {samples.dtype}".encode())
            digest.update(samples.numpy().data)
