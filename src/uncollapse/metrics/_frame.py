"""Points made ready for exact ranking: a common centre and scale, narrow tiles with a proven error.

A tile of squared distances comes from one float32 product. `Side.band` bounds its error for every
pair, so that a comparison is either certain or settled by float64 differences of the input.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array
from uncollapse._base.check import InputError
from uncollapse.distances import binary_scale, float32_is_exact

__all__ = ["Side", "make_sides", "narrow_dtype"]

_BLOCK_ELEMENTS = 1 << 18  # float64 values converted at a time: 2 MB
_UNDERFLOW = 1e-35  # products of coordinates far below the scale vanish in float32
_SLACK = 16  # roundings of a squared distance beyond the dot product's own d


@dataclass(frozen=True)
class Side:
    """One set of points in the order the engine uses (class by class).

    Position i is row `order[i]` of `rows`. Its exact coordinates are `rows[order[i]] * factor[i]`
    in float64; a tile uses them about the common `middle`, rounded to `norms.dtype`. `unit` is the
    length 1 (of the input, or of rows of norm 1) in these coordinates. `twin[i]` is equal for two
    positions only if their rows are equal.
    """

    rows: Tensor
    order: Tensor
    factor: Tensor
    middle: Tensor
    unit: float
    norms: Tensor
    band: Tensor
    twin: Tensor
    narrow: Tensor | None

    @property
    def size(self) -> int:
        """Number of points."""
        return len(self.order)

    def exact(self, positions: Tensor | slice) -> Tensor:
        """Exact coordinates in float64; only their differences mean anything."""
        return self.rows[self.order[positions]].double() * self.factor[positions][:, None]

    def at(self, positions: Tensor) -> Side:
        """Some of the points, as a side of its own."""
        return replace(
            self,
            order=self.order[positions],
            factor=self.factor[positions],
            norms=self.norms[positions],
            band=self.band[positions],
            twin=self.twin[positions],
            narrow=None if self.narrow is None else self.narrow[positions],
        )

    def block(self, low: int, high: int) -> Tensor:
        """Coordinates about the centre for a tile, rounded to its dtype."""
        if self.narrow is not None:
            return self.narrow[low:high]
        return (self.exact(slice(low, high)) - self.middle).to(self.norms.dtype)

    def squares(self, i: Tensor, other: Side, j: Tensor) -> Tensor:
        """Exact squared distances of position pairs, in blocks."""
        out = torch.empty(len(i), dtype=torch.float64, device=i.device)
        step = _rows_at_a_time(self.rows)
        for low in range(0, len(i), step):
            part = slice(low, low + step)
            out[part] = (self.exact(i[part]) - other.exact(j[part])).square().sum(1)
        return out


def make_sides(
    sets: list[tuple[str, Tensor, Array]], *, normalize: bool, resident: bool
) -> list[Side]:
    """Prepare `(name, rows, order)` sets about one common centre and scale.

    `resident` keeps the narrow copy of all points; otherwise tiles are converted as needed.
    """
    device = sets[0][1].device
    orders = [torch.from_numpy(order).to(device) for _, _, order in sets]
    rows = [values for _, values, _ in sets]
    factors, scale = _factors([(name, values) for name, values, _ in sets], normalize)
    width = sets[0][1].shape[1]
    dtype = narrow_dtype()
    gamma = (width + _SLACK) * torch.finfo(dtype).eps / 2

    total = torch.zeros(width, dtype=torch.float64, device=device)
    parts = [(a, f, part) for a, f in zip(rows, factors, strict=True) for part in _parts(a)]
    for a, f, part in parts:
        total += (a[part].double() * f[part, None]).sum(0)
    middle = total / sum(map(len, rows))
    reach = max(
        float((a[part].double() * f[part, None]).sub_(middle).abs_().max()) for a, f, part in parts
    )
    # A power of two, so that no coordinate is rounded by it: squares then stay in float32's range.
    zoom = 1 / binary_scale(reach)
    sides = []
    for a, order, f, twin in zip(rows, orders, factors, _twins(rows), strict=True):
        factor = f[order] * zoom
        norms = torch.empty(len(order), dtype=dtype, device=device)
        narrow = torch.empty(len(order), width, dtype=dtype, device=device) if resident else None
        for part in _parts(a):
            wide = (a[order[part]].double() * factor[part, None]).sub_(middle * zoom)
            norms[part] = wide.square().sum(1).to(dtype)
            if narrow is not None:
                narrow[part] = wide.to(dtype)
        band = norms * gamma + _UNDERFLOW
        sides.append(
            Side(a, order, factor, middle * zoom, scale * zoom, norms, band, twin[order], narrow)
        )
    return sides


def narrow_dtype() -> torch.dtype:
    """float32, unless the process allows float32 products to be rounded to fewer bits."""
    return torch.float32 if float32_is_exact() else torch.float64


def _factors(sets: list[tuple[str, Tensor]], normalize: bool) -> tuple[list[Tensor], float]:
    """What each row is multiplied by (1/norm, or one power of two for all), and what 1 becomes."""
    ends = [end for _, rows in sets for end in torch.aminmax(rows)]  # without a copy of the rows
    largest = max(abs(float(end)) for end in ends)
    scale = 1 / binary_scale(largest)
    factors = []
    for name, rows in sets:
        factor = torch.full((len(rows),), scale, dtype=torch.float64, device=rows.device)
        if normalize:
            for part in _parts(rows):
                norm = torch.linalg.vector_norm(rows[part].double(), dim=1)
                if not bool((norm > 0).all()):
                    first = part.start + int((norm == 0).nonzero()[0])
                    raise InputError(name, f"zeros only in row {first}", "rows that have a norm")
                factor[part] = 1.0 / norm
        factors.append(factor)
    return factors, 1.0 if normalize else scale


def _twins(sets: list[Tensor]) -> list[Tensor]:
    """A number a row, equal only for equal rows: two collapsed points need no arithmetic."""
    joined_keys = torch.cat([_hashes(rows) for rows in sets]).cpu().numpy()
    _, first, group = np.unique(joined_keys, return_index=True, return_inverse=True)
    group = group.astype(np.int64)
    head = first[group]
    sizes = np.array([len(rows) for rows in sets])
    starts = np.cumsum(sizes) - sizes
    check = np.flatnonzero(head != np.arange(len(head)))
    step = _rows_at_a_time(sets[0])
    for low in range(0, len(check), step):
        part = check[low : low + step]
        different = (_gather(sets, starts, part) != _gather(sets, starts, head[part])).any(1)
        bad = part[different.cpu().numpy()]
        group[bad] = len(first) + bad  # two different rows with one hash
    ends = starts + sizes
    device = sets[0].device
    return [torch.from_numpy(group[a:b]).to(device) for a, b in zip(starts, ends, strict=True)]


def _gather(sets: list[Tensor], starts: Array, index: Array) -> Tensor:
    if len(sets) == 1:
        return sets[0][torch.from_numpy(index)]
    owner = np.searchsorted(starts, index, side="right") - 1
    out = torch.empty(len(index), sets[0].shape[1], dtype=sets[0].dtype, device=sets[0].device)
    for number, rows in enumerate(sets):
        mine = owner == number
        out[torch.from_numpy(mine)] = rows[torch.from_numpy(index[mine] - starts[number])]
    return out


def _hashes(rows: Tensor) -> Tensor:
    bits = torch.int32 if rows.dtype == torch.float32 else torch.int64
    generator = torch.Generator().manual_seed(0)
    span = (1 << 62) - 1
    key = torch.randint(-span, span, (2, rows.shape[1]), generator=generator).to(rows.device) | 1
    out = torch.empty(len(rows), dtype=torch.int64, device=rows.device)
    for part in _parts(rows):
        mixed = (rows[part].contiguous().view(bits).long() + key[0]) * key[1]
        out[part] = ((mixed ^ (mixed >> 31)) * key[0]).sum(1)
    return out


def _rows_at_a_time(rows: Tensor) -> int:
    return max(1, _BLOCK_ELEMENTS // rows.shape[1])


def _parts(rows: Tensor) -> list[slice]:
    step = _rows_at_a_time(rows)
    return [slice(low, min(low + step, len(rows))) for low in range(0, len(rows), step)]
