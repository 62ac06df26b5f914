"""Points made ready for exact ranking: their frame, class by class, and which rows are equal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array
from uncollapse._base.check import InputError
from uncollapse._base.extras import compiled
from uncollapse.distances import Frame, float32_is_exact, on_host

__all__ = ["RankedSet", "check_norms", "equal_rows", "narrow_dtype", "ranked_sets"]

_CHUNK = 1 << 18  # coordinates looked at together


@dataclass(frozen=True, eq=False)
class RankedSet:
    """One set of points in the order of the ranking; positions are rows of the `frame`.

    `twin[i]` is equal for two positions only if their rows are equal.
    """

    frame: Frame
    twin: Tensor

    def __len__(self) -> int:
        return len(self.twin)

    def at(self, positions: Tensor) -> RankedSet:
        """Some of the points, as a set of its own."""
        return RankedSet(self.frame.at(positions), self.twin[positions])


def ranked_sets(
    sets: list[tuple[str, Tensor, Array]], *, normalize: bool, resident: bool
) -> list[RankedSet]:
    """Prepare `(name, rows, order)` sets about one common centre and scale.

    `resident` keeps the narrow copy of all points; otherwise tiles are converted as needed.
    """
    rows = [values for _, values, _ in sets]
    orders = [torch.from_numpy(order).to(values.device) for _, values, order in sets]
    frames = Frame.of_sets(
        rows, sphere=normalize, dtype=narrow_dtype(), resident=resident, orders=orders
    )
    for (name, _, _), frame in zip(sets, frames, strict=True):
        check_norms(frame, name)
    twins = _twins(rows)
    return [
        RankedSet(frame, torch.zeros_like(order) if frame.collapsed else twin[order])
        for frame, order, twin in zip(frames, orders, twins, strict=True)
    ]


def narrow_dtype() -> torch.dtype:
    """float32, unless the process allows float32 products to be rounded to fewer bits."""
    return torch.float32 if float32_is_exact() else torch.float64


def check_norms(frame: Frame, name: str) -> None:
    """Raise `InputError` for the first row of zeros, which has no direction."""
    if isinstance(frame.factor, Tensor) and not bool(frame.factor.all()):
        first = int((frame.factor == 0).nonzero()[0])
        raise InputError(name, f"zeros only in row {first}", "rows that have a norm")


def equal_rows(x: Tensor) -> Array:
    """A number for each row, equal only for equal rows.

    >>> number = equal_rows(torch.tensor([[1.0], [2.0], [1.0]]))
    >>> bool(number[0] == number[2]), bool(number[0] == number[1])
    (True, False)
    """
    found: Array = _twins([x])[0].cpu().numpy()
    return found


def _twins(sets: list[Tensor]) -> list[Tensor]:
    """A number for each row, equal only for equal rows: two collapsed points need no arithmetic."""
    sizes = [len(rows) for rows in sets]
    keys = torch.cat([_hashes(rows) for rows in sets]).cpu().numpy()
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    head, group = first[group], group.astype(np.int64)
    check = np.flatnonzero(head != np.arange(len(head)))
    for part in np.array_split(check, len(check) * sets[0].shape[1] // _CHUNK + 1):
        same = (_gather(sets, part) == _gather(sets, head[part])).all(1)
        bad = part[~same.cpu().numpy()]
        group[bad] = len(first) + bad  # two different rows with one hash
    return list(torch.split(torch.from_numpy(group).to(sets[0].device), sizes))


def _gather(sets: list[Tensor], index: Array) -> Tensor:
    """Rows of all sets by their number in the joined list."""
    out = sets[0].new_empty(len(index), sets[0].shape[1])
    low = 0
    for rows in sets:
        mine = torch.from_numpy((index >= low) & (index < low + len(rows)))
        out[mine] = rows[torch.from_numpy(index)[mine] - low]
        low += len(rows)
    return out


def _hashes(rows: Tensor) -> Tensor:
    bits = torch.int32 if rows.dtype == torch.float32 else torch.int64
    generator = torch.Generator().manual_seed(0)
    span = (1 << 62) - 1
    key = torch.randint(-span, span, (2, rows.shape[1]), generator=generator).to(rows.device) | 1
    out = torch.empty(len(rows), dtype=torch.int64, device=rows.device)
    kernels = compiled.kernels if on_host(rows) else None
    if kernels is not None:
        kernels.row_hashes(rows.contiguous().view(bits).numpy(), key.numpy(), out.numpy())
        return out
    step = max(1, _CHUNK // rows.shape[1])
    for low in range(0, len(rows), step):
        mixed = (rows[low : low + step].contiguous().view(bits).long() + key[0]) * key[1]
        out[low : low + step] = ((mixed ^ (mixed >> 31)) * key[0]).sum(1)
    return out
