"""The scan of `_tile_scan` by the compiled kernels, where they may look at the points' memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array
from uncollapse._base.extras import compiled
from uncollapse.distances import Frame, on_host
from uncollapse.metrics._ranked_set import RankedSet
from uncollapse.metrics._strip import Strip
from uncollapse.metrics._task import Task
from uncollapse.metrics._tile_scan import TILE, Counter, TorchScan

__all__ = ["CompiledScan", "Scan", "scan_for"]

_ALL = slice(None)
_SHARED_FROM = 1 << 14  # distances to positives from which threads share them


class CompiledScan:
    """The same as `TorchScan`."""

    shared = True

    def __init__(self, kernels: ModuleType, task: Task, x: RankedSet, y: RankedSet) -> None:
        self._kernels, self._task = kernels, task
        self._x, self._y = (kernels.RankedPoints(*_arrays(points)) for points in (x, y))
        self._columns = y.frame

    def own(self, low: int, high: int, start: Tensor, out: Tensor) -> None:
        """Exact squared distances from each query of [low, high) to its positives, ascending."""
        t, begin = self._task, start.numpy()
        mutual = t.gallery is None and low == 0 and high == len(t.own_low)

        def measure(part: tuple[int, int]) -> None:
            self._kernels.own_squares(
                self._x, self._y, *part, low, t.own_low, t.own_high, t.query_skip, t.gallery_skip,
                mutual, begin, out.numpy(),
            )  # fmt: skip

        parts = [
            (low + a, low + b)
            for a, b in _shares(t.own_low[low:high], begin, torch.get_num_threads())
        ]
        if len(parts) == 1:
            measure(parts[0])
        else:
            with ThreadPoolExecutor(len(parts)) as pool:
                list(pool.map(measure, parts))
        counts = np.diff(begin)
        bounds = np.r_[0, np.flatnonzero(np.diff(counts)) + 1, high - low]
        for a, b in pairwise(bounds.tolist()):  # queries with equally many positives
            if counts[a] >= self._kernels.SORTED_BELOW:
                out[begin[a] : begin[b]].numpy().reshape(b - a, counts[a]).sort(axis=1)

    def counter(self, strip: Strip, low: int) -> Counter:
        """What counts tiles for this strip, whose first query is `low`: one for each thread."""
        names = self._kernels.StripArrays._fields
        known = self._kernels.StripArrays(*(getattr(strip, n).numpy() for n in names))
        buffer = torch.empty(TILE * TILE, dtype=self._columns.norms.dtype)
        pairs, grouped = (np.empty(TILE * TILE + 1, np.int32) for _ in range(2))
        own = self._task.own_low, self._task.own_high

        def count(left: Frame, a: int, columns: slice, both: bool) -> None:
            right, norms = self._columns.block(columns), self._columns.norms[columns]
            tile = buffer[: len(left) * len(right)].view(len(left), len(right))
            # Without the norms: adding them is another pass over the tile.
            torch.addmm(norms, left.block(_ALL), right.T, beta=0.0, alpha=-2.0, out=tile)
            self._kernels.count_tile(
                tile.numpy(), a, columns.start, self._x, self._y, *own, low, known,
                both, pairs, grouped,
            )  # fmt: skip

        return count


Scan = CompiledScan | TorchScan


def scan_for(task: Task, x: RankedSet, y: RankedSet) -> Scan:
    """Compiled on a CPU if numba is there, in torch otherwise."""
    kernels = compiled.kernels if on_host(x.twin) else None
    return TorchScan(task, x, y) if kernels is None else CompiledScan(kernels, task, x, y)


def _shares(own_low: Array, start: Array, threads: int) -> list[tuple[int, int]]:
    """Ranges of queries with about as many positives each, none of which divides a class."""
    if start[-1] < _SHARED_FROM:
        threads = 1
    wanted = np.searchsorted(start, start[-1] * np.arange(1, threads) / threads)
    classes = np.flatnonzero(np.diff(own_low)) + 1
    bounds = np.r_[classes, len(own_low)][np.searchsorted(classes, wanted)]
    return list(pairwise(np.unique(np.r_[0, bounds, len(own_low)]).tolist()))


def _arrays(points: RankedSet) -> list[Any]:
    frame = points.frame
    factor = frame.factor
    if not isinstance(factor, Tensor):
        factor = torch.full((len(frame.given),), factor, dtype=torch.float64)
    tensors = (frame.given, frame.order, factor, frame.norms, frame.band, points.twin)
    return [tensor.numpy() for tensor in tensors if tensor is not None]
