"""The scan of `_tile_scan` by the compiled kernels, where they may look at the points' memory."""

from __future__ import annotations

from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.extras import compiled
from uncollapse.distances import on_host
from uncollapse.metrics._ranked_set import RankedSet
from uncollapse.metrics._strip import Strip
from uncollapse.metrics._task import Task
from uncollapse.metrics._tile_scan import TorchScan

__all__ = ["TILE", "CompiledScan", "Scan", "scan_for"]

TILE = 640  # rows and columns: one float32 tile stays near the cores


class CompiledScan:
    """The same as `TorchScan`."""

    def __init__(self, kernels: ModuleType, task: Task, x: RankedSet, y: RankedSet) -> None:
        self._kernels, self._task = kernels, task
        self._x, self._y = (kernels.RankedPoints(*_arrays(points)) for points in (x, y))
        self._strip: Strip | None = None
        self._known: Any = None
        self._scratch = np.empty(TILE * TILE, np.int32), np.empty(TILE * TILE, np.int32)

    def own(self, low: int, high: int, start: Tensor, out: Tensor) -> None:
        """Exact squared distances from each query of [low, high) to its positives, ascending."""
        t = self._task
        begin = start.numpy()
        self._kernels.own_squares(
            self._x, self._y, low, high, t.own_low, t.own_high, t.query_skip, t.gallery_skip,
            t.gallery is None, begin, out.numpy(),
        )  # fmt: skip
        counts = np.diff(begin)
        bounds = np.r_[0, np.flatnonzero(np.diff(counts)) + 1, high - low]
        for a, b in pairwise(bounds.tolist()):  # queries with equally many positives
            if counts[a] >= self._kernels.SORTED_BELOW:
                out[begin[a] : begin[b]].numpy().reshape(b - a, counts[a]).sort(axis=1)

    def scan(self, tile: Tensor, a: int, c: int, strip: Strip, low: int, both: bool) -> None:
        """Count the tile of queries a... and gallery c..., and with `both` its transpose too."""
        if strip is not self._strip:
            self._strip = strip
            names = self._kernels.StripArrays._fields
            self._known = self._kernels.StripArrays(*(getattr(strip, n).numpy() for n in names))
        known, own = self._known, (self._task.own_low, self._task.own_high)
        self._kernels.scan_rows(tile.numpy(), a, c, self._x, self._y, *own, low, known)
        if both:
            self._kernels.scan_columns(tile.numpy(), a, c, self._x, known, *self._scratch)


Scan = CompiledScan | TorchScan


def scan_for(task: Task, x: RankedSet, y: RankedSet) -> Scan:
    """Compiled on a CPU if numba is there, in torch otherwise."""
    kernels = compiled.kernels if on_host(x.twin) else None
    return TorchScan(task, x, y) if kernels is None else CompiledScan(kernels, task, x, y)


def _arrays(points: RankedSet) -> list[Any]:
    frame = points.frame
    factor = frame.factor
    if not isinstance(factor, Tensor):
        factor = torch.full((len(frame.given),), factor, dtype=torch.float64)
    tensors = (frame.given, frame.order, factor, frame.norms, frame.band, points.twin)
    return [tensor.numpy() for tensor in tensors if tensor is not None]
