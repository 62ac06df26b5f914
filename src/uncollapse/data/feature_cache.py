"""What a frozen network makes of samples, computed once into a memory-mapped `.npy` file.

The file is named by a digest of the samples, their transform and the network, so it fits or is
another file; it is written aside and renamed, so a reader sees a finished one or none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.files import streamed_aside
from uncollapse._base.lock import FileLock
from uncollapse._base.progress import ProgressOption, progress_reporter
from uncollapse.data.cache import MappedSource, cache_folder, explain_cache_error
from uncollapse.data.types import ImageSource, LabelledImages, SubsetSource

__all__ = ["FeatureFile", "with_features"]

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
            with FileLock(path.with_suffix(".lock")) as lock:
                if not path.is_file():  # another process may have made it meanwhile
                    _compute(data, network, path, lock, progress)
    except OSError as error:
        raise explain_cache_error(error, folder, "feature") from error
    return replace(data, features=FeatureFile(path))


def _compute(
    data: LabelledImages,
    network: Callable[[Tensor], Tensor],
    path: Path,
    lock: FileLock,
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
            lock.refresh()
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
