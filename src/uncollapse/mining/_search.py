"""Nearest and farthest columns of each row, exactly as float64 differences would choose them.

One pass over float32 products finds the winner and counts who else lies within the rounding error
of it; only rows where somebody does are looked at again, in float64, and there only the columns
within the (now far smaller) error are measured by direct differences. Ties go to the lowest index.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uncollapse.mining._frame import Frame

__all__ = ["search"]

Array = np.ndarray[Any, Any]
Hide = Callable[[Tensor, Tensor], None]

_FINE_ELEMENTS = 1 << 19  # float64 products held at a time
_INF = float("inf")


def search(
    frame: Frame,
    values: Tensor,
    anchors: Tensor,
    hide: Hide,
    *,
    pairs: Tensor | None = None,
    above: Tensor | None = None,
    farthest: bool = False,
) -> tuple[Tensor, Tensor]:
    """Nearest column of each row whose squared distance exceeds `above`: `(index, found)`.

    `values` are the frame's coarse products of the rows `anchors`, `[b, N]`, with the columns that
    may not be chosen at infinity; `hide(values, rows)` does that to products of `anchors[rows]`.
    With `pairs` of shape `[t]` the answer has a row for each of `anchors[pairs]`; `above` is `[t]`,
    in squared distance. With `farthest` the values (and products for `hide`) are of opposite sign.
    """
    which = torch.arange(len(anchors), device=anchors.device) if pairs is None else pairs
    product = frame.coarse
    error = product.error[anchors[which]][:, None]
    low: Tensor | None = None
    if above is not None:
        low = (above - product.square[anchors[which]]).to(values.dtype)[:, None]
    scan = _scan_cpu if values.device.type == "cpu" else _scan
    index = torch.empty(len(which), dtype=torch.int64, device=anchors.device)
    found = torch.empty(len(which), dtype=torch.bool, device=anchors.device)
    doubtful = torch.empty_like(found)
    step = max(1, len(values))
    for start in range(0, len(which), step):
        part = slice(start, start + step)
        rows = values if pairs is None else values[which[part]]
        bound = None if low is None else low[part]
        index[part], found[part], doubtful[part] = scan(rows, error[part], bound)
    if frame.collapsed:
        return index, found
    again = doubtful.nonzero().flatten()
    step = max(1, _FINE_ELEMENTS // values.shape[1])
    for start in range(0, len(again), step):
        some = again[start : start + step]
        limit = None if above is None else above[some][:, None]
        index[some], found[some] = _settle(frame, anchors, which[some], hide, limit, farthest)
    return index, found


def _settle(
    frame: Frame, anchors: Tensor, rows: Tensor, hide: Hide, above: Tensor | None, farthest: bool
) -> tuple[Tensor, Tensor]:
    """The same search in float64, with direct differences where even that could mislead."""
    product, who = frame.fine, anchors[rows]
    error = product.error[who][:, None]
    values = product.block(who).add_(product.square[who][:, None])
    sign = -1.0 if farthest else 1.0
    values.mul_(sign)
    hide(values, rows)

    def measure(near: Tensor) -> None:
        r, c = near.nonzero(as_tuple=True)
        values[r, c] = sign * frame.squares(who[r], c)

    if above is not None:
        measure((values - above).abs() <= error)
        values.masked_fill_(values <= above, _INF)
    best = values.amin(dim=1, keepdim=True)
    measure((values <= best + 2 * error) & (values < _INF))
    index = values.argmin(dim=1)
    return index, values.gather(1, index[:, None]).flatten() < _INF


def _scan_cpu(values: Tensor, error: Tensor, low: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """`_scan` with NumPy, whose argmin takes a tenth of the time of torch's."""
    v, band = values.numpy(), 2 * error.numpy()
    if low is None:
        index = v.argmin(axis=1)
        best = np.take_along_axis(v, index[:, None], axis=1)
        found = best[:, 0] < np.inf
        doubtful = _crowded(v <= best + band)
    else:
        # Above the bound a difference is a positive float, whose bits order as unsigned integers;
        # below it the sign bit makes it larger than any of them: no masking pass is needed.
        gap = v - (low.numpy() - error.numpy())
        bits = gap.view(np.uint32 if gap.itemsize == 4 else np.uint64)
        index = bits.argmin(axis=1)
        best = np.take_along_axis(gap, index[:, None], axis=1)
        found = (best[:, 0] >= 0) & (best[:, 0] < np.inf)
        near = bits <= np.abs(best + band).view(bits.dtype)
        doubtful = _crowded(near) | (best <= band)[:, 0]
    return tuple(map(torch.from_numpy, (index, found, found & doubtful)))  # type: ignore[return-value]


def _crowded(near: Array) -> Array:
    """Rows with more than one True, fast when few are."""
    rows, columns = near.shape
    if np.count_nonzero(near) > 4 * rows:
        return np.asarray(np.count_nonzero(near, axis=1) > 1)
    return np.asarray(np.bincount(np.flatnonzero(near) // columns, minlength=rows) > 1)


def _scan(values: Tensor, error: Tensor, low: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Winner of each row, whether there is one, and whether rounding could have chosen another."""
    if low is not None:
        values = values.masked_fill(values <= low - error, _INF)
    index = values.argmin(dim=1, keepdim=True)
    best = values.gather(1, index)
    found = best < _INF
    doubtful = found & ((values <= best + 2 * error).sum(dim=1, keepdim=True) > 1)
    if low is not None:
        doubtful |= found & (best <= low + error)
    return index.flatten(), found.flatten(), doubtful.flatten()
