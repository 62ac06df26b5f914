"""Nearest and farthest columns of each row, exactly as float64 differences would choose them.

One pass over float32 products finds the winner and everybody within the rounding error of it. Where
that is more than the winner, those few are measured by direct differences; where it is a crowd (a
class within a millionth of its distance), the row is done again in float64, and only what is
within the far smaller error there is measured directly. Ties go to the lowest index.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array
from uncollapse.mining._frame import Frame

__all__ = ["Looker", "first_argmin", "scan", "search"]


_CROWD = 16  # candidates a doubtful row, on average, above which float64 products are cheaper
_FINE_ELEMENTS = 1 << 19  # float64 products held at a time
_INF = float("inf")


class Looker(Protocol):
    """Who looks for neighbours: the rows `anchors` (`at` indexes the same), seeing not all."""

    anchors: Tensor
    at: slice | Tensor

    def hide(self, values: Tensor, rows: Tensor | None = None) -> None:
        """Put infinity at the columns that `anchors[rows]` may not choose."""


def search(
    frame: Frame,
    values: Tensor,
    looker: Looker,
    *,
    beyond: tuple[Tensor, Tensor] | None = None,
    farthest: bool = False,
) -> tuple[Tensor, Tensor]:
    """Nearest column of each row, if asked only `beyond` another: `(index, found)`.

    `values` are the frame's coarse products of the looker's rows, `[b, N]`, hidden as it says; with
    `farthest` they are of opposite sign. `beyond` are for each row a row of the batch, `[b]`, whose
    distance must be exceeded, and the coarse product with it; the values are then overwritten.
    """
    product, anchors = frame.coarse, looker.anchors
    error = product.error[looker.at][:, None]
    bound = None if beyond is None else beyond[1][:, None] - 2 * error
    index, found, best, row, column = scan(values, error, bound)
    if frame.collapsed:  # every distance is exactly 0, and none exceeds another
        return index, found if beyond is None else torch.zeros_like(found)
    if len(row) == 0:
        return index, found
    runs = np.flatnonzero(np.diff(row, prepend=-1))  # the doubtful rows, each a run of entries
    doubtful = torch.from_numpy(row[runs]).to(anchors.device)
    above = None if beyond is None else frame.squares(anchors[doubtful], beyond[0][doubtful])
    if len(row) <= _CROWD * len(runs):
        who = anchors[torch.from_numpy(row).to(anchors.device)]
        exact = frame.squares(who, torch.from_numpy(column).to(anchors.device)).cpu().numpy()
        if farthest:
            exact = -exact
        elif above is not None:
            limit = np.repeat(above.cpu().numpy(), np.diff(runs, append=len(row)))
            exact = np.where(exact > limit, exact, np.inf)
        order = np.lexsort((column, exact, row))[runs]  # the first of each run: of equals too
        index[doubtful] = torch.from_numpy(column[order]).to(anchors.device)
        # Everybody else is farther than the winner's value and twice the error.
        base = product.square[looker.at].flatten()[doubtful]
        sure = best.flatten()[doubtful] + error.flatten()[doubtful] + (-base if farthest else base)
        unsettled = torch.from_numpy(exact[order]).to(sure.device) > sure
        doubtful, above = doubtful[unsettled], None if above is None else above[unsettled]
    step = max(1, _FINE_ELEMENTS // values.shape[1])
    for start in range(0, len(doubtful), step):
        rows = doubtful[start : start + step]
        limits = None if above is None else above[start : start + step][:, None]
        index[rows], found[rows] = _settle(frame, looker, rows, limits, farthest)
    return index, found


def scan(
    values: Tensor, error: Tensor, bound: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Array, Array]:
    """`(index, found, best, row, column)`: each row's lowest value not below the bound, and doubts.

    The last two list, for the rows in which values off by up to `error` (and a bound by twice that)
    could have made another one win, all entries that could.
    """
    if values.device.type == "cpu":
        return _scan_cpu(values, error, bound)
    return _scan(values, error, bound)


def first_argmin(values: Tensor) -> Tensor:
    """argmin of each row, the lowest index of equals."""
    if values.device.type == "cpu":
        return torch.from_numpy(values.numpy().argmin(axis=1))
    return values.argmin(dim=1)


def _settle(
    frame: Frame, looker: Looker, rows: Tensor, above: Tensor | None, farthest: bool
) -> tuple[Tensor, Tensor]:
    """The same search in float64, with direct differences where even that could mislead."""
    product, anchors = frame.fine, looker.anchors[rows]
    error = product.error[anchors][:, None]
    values = product.block(anchors).add_(product.square[anchors][:, None])
    sign = -1.0 if farthest else 1.0
    values.mul_(sign)
    looker.hide(values, rows)

    def measure(near: Tensor) -> None:
        r, c = near.nonzero(as_tuple=True)
        values[r, c] = sign * frame.squares(anchors[r], c)

    if above is not None:
        measure((values - above).abs() <= error)
        values.masked_fill_(values <= above, _INF)
    best = values.amin(dim=1, keepdim=True)
    measure((values <= best + 2 * error) & (values < _INF))
    index = values.argmin(dim=1)
    return index, values.gather(1, index[:, None]).flatten() < _INF


def _scan_cpu(
    values: Tensor, error: Tensor, bound: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Array, Array]:
    """`_scan` with NumPy, whose argmin takes a tenth of the time of torch's."""
    v, band = values.numpy(), 2 * error.numpy()
    if bound is None:
        index = v.argmin(axis=1)
        best = v[np.arange(len(v)), index][:, None]
        found = best < np.inf
        near = v <= best + band
        certain = None
    else:
        # Above the bound a difference is a positive float, whose bits order as unsigned integers;
        # below it the sign bit makes it larger than any of them: no masking pass is needed.
        low = bound.numpy()
        gap = np.subtract(v, low, out=v)
        bits = gap.view(np.uint32 if gap.itemsize == 4 else np.uint64)
        index = bits.argmin(axis=1)
        best = gap[np.arange(len(v)), index][:, None]
        found = (best >= 0) & (best < np.inf)
        near = bits <= np.where(found, best + band, 0).astype(gap.dtype).view(bits.dtype)
        certain = best > 2 * band
        best = best + low
    row, column = _doubtful(near, found, certain)
    winner, exists, value = map(torch.from_numpy, (index, found[:, 0], best))
    return winner, exists, value, row, column


def _doubtful(near: Array, found: Array, certain: Array | None) -> tuple[Array, Array]:
    """Entries of the found rows that have more than one near, or one that may not count."""
    rows, columns = near.shape
    row, column = np.divmod(np.flatnonzero(near), columns)
    doubt = found[:, 0] & (np.bincount(row, minlength=rows) > 1)
    if certain is not None:
        doubt |= found[:, 0] & ~certain[:, 0]
    kept = doubt[row]
    return row[kept], column[kept]


def _scan(
    values: Tensor, error: Tensor, bound: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Array, Array]:
    """`scan` with torch, for devices without a NumPy view."""
    if bound is not None:
        values = values.masked_fill(values < bound, _INF)
    index = values.argmin(dim=1, keepdim=True)
    best = values.gather(1, index)
    found = best < _INF
    near = values <= best + 2 * error
    doubt = near.sum(dim=1, keepdim=True) > 1
    if bound is not None:
        doubt |= best <= bound + 4 * error
    row, column = (near & doubt & found).nonzero(as_tuple=True)
    return index.flatten(), found.flatten(), best, row.cpu().numpy(), column.cpu().numpy()
