"""Decoded images and frozen features, computed once into memory-mapped files.

A cache is a manifest (JSON) and the file of values it names, which is written first: a reader sees
a finished cache or none. A lock only avoids doing the work twice.
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

from uncollapse._base.files import read_json, write_json, written_aside
from uncollapse._base.lock import FileLock
from uncollapse._base.progress import ProgressOption, Report, progress_reporter
from uncollapse.data.images import FileSource, decode_all
from uncollapse.data.listing import DataError, LoadReport
from uncollapse.data.types import ImageSource, LabelledImages, SubsetSource

_BATCH = 64  # samples that a frozen network takes at a time
_HALF = float(np.finfo(np.float16).max)

# Writes the values to a file, calling a report now and then; returns what the manifest says of it.
_Build = Callable[[BinaryIO, Report], dict[str, Any]]


class CacheError(DataError):
    """A cache that cannot be written; the message says where, why, and what to do."""


@dataclass(frozen=True)
class MappedSource:
    """Samples in a memory-mapped file of raw values; reopened in each process it is sent to."""

    path: Path
    count: int
    shape: tuple[int, ...]
    dtype: str = "u1"
    _maps: dict[str, Tensor] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return self.count

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_maps": {}}

    def read(self, rows: Tensor) -> Tensor:
        """The samples of these rows, copied out of the map."""
        if "map" not in self._maps:
            # Copy-on-write: torch wants writable memory, the file must not change.
            values = np.memmap(self.path, self.dtype, "c", shape=(self.count, *self.shape))
            self._maps["map"] = torch.from_numpy(values)
        return self._maps["map"].index_select(0, rows)


@dataclass(frozen=True)
class Cached:
    """A finished cache: its images, their rows in the source, and the report of decoding."""

    source: MappedSource
    rows: tuple[int, ...]
    report: LoadReport


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
    origin: str = "",
    folder: Path | None = None,
    progress: ProgressOption = None,
) -> Cached:
    """The images of `source` from the cache called `name`, which is built if none matches.

    One cache is kept for each name, origin and decoding. It matches if the decoding and the path,
    size and modification time of every file are unchanged. Safe with several processes: one builds,
    the others wait and read. Images that cannot be decoded are left out and named in the report.
    `progress(done, total)` is called while building; by default a bar is drawn if standard error is
    a terminal.

    >>> import tempfile
    >>> from PIL import Image
    >>> from uncollapse.data.images import Decoding
    >>> from uncollapse.data.listing import ImageRef
    >>> with tempfile.TemporaryDirectory() as scratch:
    ...     file = Path(scratch, "a.png")
    ...     Image.new("RGB", (4, 4), (9, 9, 9)).save(file)
    ...     source = FileSource([ImageRef(file)], Decoding(size=(2, 2)))
    ...     images = cached(source, "example", folder=Path(scratch, "cache"))
    >>> int(images.source.read(torch.tensor([0])).max())
    9
    """

    def build(file: BinaryIO, report: Report) -> dict[str, Any]:
        rows: list[int] = []

        def keep(row: int, pixels: np.ndarray[Any, Any]) -> None:
            # Plain writes, not a writable map: a full disk is then an error, not a crash.
            file.write(pixels.tobytes())
            rows.append(row)

        odd = decode_all(source, keep, report)
        return {
            "shape": [len(rows), *source.shape],
            "rows": rows,
            "unreadable": odd.unreadable,
            "converted": odd.converted,
            "decoding": asdict(source.how),
        }

    folder = cache_folder() if folder is None else folder
    identity = hashlib.sha256(repr((name, origin, source.how)).encode()).hexdigest()[:16]
    manifest = folder / f"{name}-{identity}.json"
    need = len(source) * int(np.prod(source.shape))
    return _find_or_build("image", manifest, _fingerprint(source), build, progress, need)


def with_features(
    data: LabelledImages,
    network: Callable[[Tensor], Tensor],
    identity: str,
    *,
    folder: Path | None = None,
) -> LabelledImages:
    """The same samples with the features that `network` computes for them, from a cache.

    `identity` says which network it is, and how `data.transform` prepares its samples. Feature maps
    are kept in half precision, vectors in float32. Safe with several processes: one computes, the
    others wait and read.

    >>> import tempfile
    >>> from uncollapse.data import TensorSource
    >>> data = LabelledImages(TensorSource(torch.ones(3, 4)), torch.tensor([0, 1, 1]))
    >>> with tempfile.TemporaryDirectory() as scratch:
    ...     made = with_features(data, lambda x: 2 * x[:, :2], "twice", folder=Path(scratch))
    ...     made[[0, 2]][0].tolist(), made.shape
    ([[2.0, 2.0], [2.0, 2.0]], (4,))
    """

    def build(file: BinaryIO, report: Report) -> dict[str, Any]:
        shape, dtype = list[int](), "<f4"
        for start in range(0, len(data), _BATCH):
            features = network(data[start : start + _BATCH][0]).float().contiguous().cpu().numpy()
            if features.ndim == 4:
                features, dtype = features.clip(-_HALF, _HALF), "<f2"
            file.write(features.astype(dtype).tobytes())
            shape = [len(data), *features.shape[1:]]
            report(min(start + _BATCH, len(data)), len(data))
        return {"shape": shape, "dtype": dtype, "rows": list(range(len(data)))}

    folder = cache_folder() if folder is None else folder
    digest = hashlib.blake2b(identity.encode(), digest_size=16)
    _add_samples(digest, data.source)
    fingerprint = digest.hexdigest()
    manifest = folder / f"features-{fingerprint}.json"
    features = _find_or_build("feature", manifest, fingerprint, build)
    return replace(data, features=features.source)


def _find_or_build(
    kind: str,
    manifest: Path,
    fingerprint: str,
    build: _Build,
    progress: ProgressOption = None,
    need: int = 0,
) -> Cached:
    """The cache with this fingerprint; `need` is the number of bytes that building it takes."""
    ready = _open(manifest, fingerprint)
    if ready is not None:
        return ready
    try:
        manifest.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(manifest.with_suffix(".lock")):
            ready = _open(manifest, fingerprint)  # another process may have built it meanwhile
            if ready is None:
                free = shutil.disk_usage(manifest.parent).free
                if need > free:
                    why = f"{need / 1e9:.1f} GB needed, {free / 1e9:.1f} GB free"
                    raise OSError(errno.ENOSPC, why)
                verb = "decoding" if kind == "image" else "computing"
                with progress_reporter(progress, f"{verb} {kind}s") as report:
                    _write(manifest, fingerprint, build, report)
                ready = _open(manifest, fingerprint)
    except OSError as error:
        raise _explained(error, manifest.parent, kind) from error
    if ready is None:
        raise CacheError(f"the cache in {manifest.parent} was removed while it was being built")
    return ready


def _write(manifest: Path, fingerprint: str, build: _Build, report: Report) -> None:
    """Build into a new file, name it in the manifest, and remove files no longer in use."""
    values = manifest.with_name(f"{manifest.stem}-{uuid.uuid4().hex[:12]}.bin")
    try:
        with written_aside(values) as aside, aside.open("wb") as file:
            entry = build(file, report)
        write_json(manifest, entry | {"fingerprint": fingerprint, "values": values.name})
    except BaseException:
        values.unlink(missing_ok=True)
        raise
    for pattern in (f"{manifest.stem}-*", f".{manifest.stem}*"):
        for old in manifest.parent.glob(pattern):  # of a changed source, or of a killed build
            if old != values:
                with contextlib.suppress(OSError):
                    old.unlink()


def _open(manifest: Path, fingerprint: str) -> Cached | None:
    """The finished cache; None if there is none, it does not match, or it is damaged."""
    try:
        entry = read_json(manifest)
        if entry["fingerprint"] != fingerprint:
            return None
        values = manifest.with_name(entry["values"])
        shape, dtype = tuple(map(int, entry["shape"])), entry.get("dtype", "u1")
        rows = tuple(map(int, entry["rows"]))
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        if values.stat().st_size != size or len(rows) != shape[0]:
            return None
        source = MappedSource(values, shape[0], shape[1:], dtype)
        if rows:
            source.read(torch.arange(1))  # open now: another process may rebuild and remove it
        converted = {str(mode): tuple(n) for mode, n in entry.get("converted", {}).items()}
        unreadable = tuple(map(str, entry.get("unreadable", ())))
        return Cached(source, rows, LoadReport(unreadable=unreadable, converted=converted))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _fingerprint(source: FileSource) -> str:
    """Digest of the decoding, and of each file's path, size and modification time."""
    digest = hashlib.sha256(repr(source.how).encode())
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


def _add_samples(digest: hashlib.blake2b, source: ImageSource) -> None:
    """Digest of the samples; a cache of images by its file name, which is unique to its content."""
    if isinstance(source, MappedSource):
        digest.update(f"{source.path.name} {source.count} {source.shape}".encode())
    elif isinstance(source, SubsetSource):
        _add_samples(digest, source.source)
        digest.update(source.rows.numpy().data)
    else:
        for start in range(0, len(source), 1024):
            rows = torch.arange(start, min(start + 1024, len(source)))
            samples = source.read(rows).contiguous()
            digest.update(f"{tuple(samples.shape)} {samples.dtype}".encode())
            digest.update(samples.numpy().data)


def _explained(error: OSError, folder: Path, kind: str) -> CacheError:
    """Why a cache cannot be written, and what to do about it."""
    why = f"it cannot be written ({error.strerror or error})"
    if error.errno == errno.ENOSPC:
        why = f"the disk is full ({error.strerror})"
    instead = ", or pass cache=False to decode images each time" if kind == "image" else ""
    return CacheError(
        f"{kind} cache in {folder}: {why}; set UNCOLLAPSE_CACHE to another folder{instead}"
    )
