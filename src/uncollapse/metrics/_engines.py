"""The two ways to scan a tile, behind one face: compiled by numba, or torch on any device."""

from __future__ import annotations

import importlib.util
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.check import InputError, check_choice
from uncollapse.metrics import _tiles
from uncollapse.metrics._frame import Side
from uncollapse.metrics._strip import Strip
from uncollapse.metrics._task import Task

__all__ = ["TILE", "Engine", "choose_engine"]

TILE = 640  # rows and columns: one float32 tile stays near the cores


class CompiledEngine:
    """Tiles scanned by numba."""

    def __init__(self, task: Task, x: Side, y: Side) -> None:
        from uncollapse._kernels import rank as _numba

        self._kernels, self._task = _numba, task
        self._x, self._y = (
            _numba.Points(*(getattr(side, name).numpy() for name in _numba.Points._fields))
            for side in (x, y)
        )
        self._strip: Strip | None = None
        self._known: Any = None
        self._scratch = np.empty(TILE * TILE, np.int32), np.empty(TILE * TILE, np.int32)

    def own(self, low: int, high: int, start: Tensor, out: Tensor) -> None:
        """Distances to the positives."""
        t = self._task
        self._kernels.own_squares(
            self._x, self._y, low, high, t.own_low, t.own_high, t.query_skip, t.gallery_skip,
            t.gallery is None, start.numpy(), out.numpy(),
        )  # fmt: skip
        begin = start.numpy()
        counts = np.diff(begin)
        bounds = np.r_[0, np.flatnonzero(np.diff(counts)) + 1, high - low]
        for a, b in pairwise(bounds.tolist()):  # queries with equally many positives
            if counts[a] >= self._kernels.SHORT:
                out[begin[a] : begin[b]].numpy().reshape(b - a, counts[a]).sort(axis=1)

    def scan(self, tile: Tensor, a: int, c: int, strip: Strip, low: int, both: bool) -> None:
        """Count one tile for its rows and, with `both`, for its columns."""
        if strip is not self._strip:
            self._strip = strip
            names = self._kernels.Progress._fields
            self._known = self._kernels.Progress(*(getattr(strip, n).numpy() for n in names))
        known = self._known
        low_high = self._task.own_low, self._task.own_high
        self._kernels.scan(tile.numpy(), a, c, self._x, self._y, *low_high, low, known)
        if both:
            self._kernels.scan_columns(tile.numpy(), a, c, self._x, known, *self._scratch)


class TorchEngine:
    """Tiles scanned by torch."""

    def __init__(self, task: Task, x: Side, y: Side) -> None:
        self._x, self._y = x, y
        device = x.rows.device
        self._low, self._high, self._x_skip, self._y_skip = (
            torch.from_numpy(array).to(device)
            for array in (task.own_low, task.own_high, task.query_skip, task.gallery_skip)
        )

    def own(self, low: int, high: int, start: Tensor, out: Tensor) -> None:
        """Distances to the positives."""
        _tiles.own_squares(
            self._x, self._y, low, high, self._low, self._high, self._x_skip, self._y_skip,
            start, out,
        )  # fmt: skip

    def scan(self, tile: Tensor, a: int, c: int, strip: Strip, low: int, both: bool) -> None:
        """Count one tile for its rows and, with `both`, for its columns."""
        rows, columns = tile.shape
        tile += self._y.norms[c : c + columns]
        tile += self._x.norms[a : a + rows, None]
        own_low, own_high = self._low[a : a + rows], self._high[a : a + rows]
        if int(own_low.min()) < c + columns and int(own_high.max()) > c:
            place = torch.arange(c, c + columns, device=tile.device)
            tile[(place >= own_low[:, None]) & (place < own_high[:, None])] = torch.inf
        _tiles.scan(tile, self._x, a, self._y, c, strip, a - low)
        if both:
            _tiles.scan(tile.T, self._x, c, self._x, a, strip, c)


Engine = CompiledEngine | TorchEngine


def choose_engine(engine: str, x: Tensor) -> type[Engine]:
    """The engine class for these points: numba on a CPU if it is installed, unless told."""
    check_choice("engine", engine, ("auto", "numba", "torch"))
    if engine == "numba" and x.device.type != "cpu":
        raise InputError("engine", "'numba' with points on " + x.device.type, "'torch' or 'auto'")
    if engine == "auto":
        fits = x.device.type == "cpu" and importlib.util.find_spec("numba") is not None
        engine = "numba" if fits else "torch"
    return CompiledEngine if engine == "numba" else TorchEngine
