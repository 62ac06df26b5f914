"""Rows in the frame where their distances can be trusted: own centre, own scale, known error.

The identity |x - y|² = |x|² + |y|² - 2x·y loses every digit once the spread of the points is small
beside their norm. About their centre, and over a power of two, rows of float32 keep their digits at
any spread; what a product of them gets wrong is bounded, and differences settle the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array
from uncollapse._base.extras import compiled

__all__ = [
    "Frame",
    "binary_scale",
    "device_path",
    "float32_is_exact",
    "on_host",
    "prepare",
    "product_dtype",
    "screen_dtype",
    "squared_norms",
    "working_dtype",
]

_COMPILED_FROM = 128  # rows from which loading the compiled kernels is worth it
_CHUNK = 1 << 18  # float64 values converted at a time where not all are: 2 MB
_WHOLE = 1 << 22  # up to so many values the float64 rows are kept: 32 MB
_SLACK = 16  # roundings of a squared distance beyond the d of its dot product
_UNDERFLOW = 1e-35  # products of coordinates far below the scale vanish in float32
_as_on_a_device = False  # set by `device_path`
_EXTREME = 1e100  # coordinates beyond it, or its inverse, would over- or underflow when squared


@dataclass(frozen=True, eq=False)
class Frame:
    """The rows `given`, and the same about their centre over a power of two, in narrow form `z`.

    In the frame's coordinates row i is `given[i] * factor[i] - centre`, taken in float64: `wide`.
    `factor` is `zoom`, a power of two, or on the unit sphere that over each row's norm (0 for a row
    of zeros, which stays at 0). `unit` is what 1 in these coordinates is in the distances a caller
    sees. `norms` are the squared norms of `z`. Where all rows coincide every coordinate is 0 and
    `collapsed` is True. With an `order`, row i of the frame is `given[order[i]]`: another order, or
    some of the rows, without a copy of them.

    A squared distance |z_i|² + |z_j|² - 2 z_i·z_j is within `gamma` (|z_i|² + |z_j|²) of the true
    one, and 1e-35: the bound d·u of a dot product of length d, and the roundings around it.

    >>> frame = Frame.of(torch.tensor([[1e6, 0.0], [1e6 + 3.0, 4.0]]))
    >>> frame.distances(torch.tensor([0]), torch.tensor([1])).tolist()
    [5.0]
    """

    given: Tensor
    factor: Tensor | float
    centre: Tensor
    zoom: float
    unit: float | Tensor
    z: Tensor | None
    norms: Tensor
    collapsed: bool
    order: Tensor | None = None

    @classmethod
    def of(
        cls,
        x: Tensor,
        *,
        sphere: bool = False,
        dtype: torch.dtype | None = None,
        resident: bool = True,
    ) -> Frame:
        """Frame of `[N, d]` rows, divided by their norms first if on the `sphere`.

        `dtype` is that of `z` (see `product_dtype`). Without `resident`, `z` is not kept and blocks
        of it are made when asked for: memory is then O(N), and a few MB.
        """
        return cls.of_sets([x], sphere=sphere, dtype=dtype, resident=resident)[0]

    @classmethod
    def of_sets(
        cls,
        sets: Sequence[Tensor],
        *,
        sphere: bool = False,
        dtype: torch.dtype | None = None,
        resident: bool = True,
        orders: Sequence[Tensor] | None = None,
        known: float | None = None,
    ) -> list[Frame]:
        """Frames of several sets of rows about one common centre, with one scale.

        `orders`, one for each set, are the orders of their rows in the frames; nothing but `z` is
        then kept of them. Who has `known` how far the rows reach spares a device the look at them.
        """
        reach, build = prepare(sets, sphere=sphere, dtype=dtype, resident=resident, orders=orders)
        return build(float(reach) if known is None or on_host(sets[0]) else known)

    def __len__(self) -> int:
        return len(self.norms)

    @property
    def dim(self) -> int:
        """Number of columns."""
        return self.given.shape[1]

    @property
    def kernels(self) -> Any:
        """The compiled kernels where they are worth it for these rows, else None."""
        large = on_host(self.given) and len(self.given) >= _COMPILED_FROM
        return compiled.kernels if large else None

    @property
    def gamma(self) -> float:
        """Relative error of a product: see the class."""
        return (self.dim + _SLACK) * torch.finfo(self.norms.dtype).eps / 2

    @cached_property
    def band(self) -> Tensor:
        """`[N]`: a squared distance from a product is right to `band[i] + band[j]`."""
        return self.norms * self.gamma + _UNDERFLOW

    @cached_property
    def widest(self) -> Tensor:
        """The largest squared norm."""
        return self.norms.amax()

    @cached_property
    def wide(self) -> Tensor:
        """All rows in these coordinates, in float64 (where the device has it)."""
        return self.exact(slice(None)).sub_(self.centre).mul_(float(not self.collapsed))

    @cached_property
    def sphere(self) -> Frame:
        """The frame of the same rows divided by their norms; this one where it is that already."""
        if isinstance(self.factor, Tensor):
            return self.seen_as(1 / self.zoom)
        orders = None if self.order is None else [self.order]
        options: Any = {"dtype": self.norms.dtype, "orders": orders, "known": 1.0}
        return Frame.of_sets([self.given], sphere=True, **options)[0]

    @cached_property
    def fine(self) -> Frame:
        """The same frame with `z` in float64."""
        if self.norms.dtype == self.centre.dtype:
            return self
        return replace(self, z=self.wide, norms=squared_norms(self.wide))

    def seen_as(self, unit: float | Tensor) -> Frame:
        """The same frame, a length of 1 in its coordinates being `unit` to the caller."""
        changed = replace(self, unit=unit)
        for name in ("wide", "band", "widest"):  # what is known already stays known
            if name in self.__dict__:
                changed.__dict__[name] = self.__dict__[name]
        return changed

    def at(self, rows: Tensor | slice) -> Frame:
        """Some of the rows as a frame of its own, in the same coordinates."""
        z = None if self.z is None else self.z[rows]
        if self.order is not None:
            return replace(self, z=z, norms=self.norms[rows], order=self.order[rows])
        factor = self.factor[rows] if isinstance(self.factor, Tensor) else self.factor
        some = replace(self, given=self.given[rows], factor=factor, z=z, norms=self.norms[rows])
        if "wide" in self.__dict__:
            some.__dict__["wide"] = self.wide[rows]
        return some

    def kept(self) -> Frame:
        """The same frame with `z`, where it was made without; needs a few MB beside it."""
        if self.z is not None:
            return self
        z = self.norms.new_empty(len(self), self.dim)
        for part in _parts(len(self), self.dim, lean=True):
            z[part] = self.block(part)
        return replace(self, z=z)

    def beside(self, coordinates: Tensor) -> Frame:
        """Other points, given in this frame's coordinates, as a frame to be compared with it."""
        return replace(
            self,
            given=coordinates,
            factor=1.0,
            centre=torch.zeros_like(self.centre),
            z=coordinates,
            norms=squared_norms(coordinates),
            collapsed=False,
            order=None,
        )

    def exact(self, rows: Tensor | slice) -> Tensor:
        """Rows before the centre is taken off, in float64: only their differences mean anything."""
        if isinstance(rows, Tensor) and on_host(self.given):
            return torch.from_numpy(self.exact_host(rows.numpy()))
        rows = rows if self.order is None else self.order[rows]
        return _exact(self.given, self.factor, rows, working_dtype(self.given))

    def exact_host(self, rows: Array) -> Array:
        """The same of some rows in the host's memory: NumPy gathers in a tenth of torch's time."""
        rows = rows if self.order is None else self.order.numpy()[rows]
        some = self.given.numpy()[rows].astype(np.float64, copy=False)
        if isinstance(self.factor, Tensor):
            some *= self.factor.numpy()[rows][..., None]
        elif self.factor != 1.0:
            some *= self.factor
        return some

    def block(self, rows: Tensor | slice) -> Tensor:
        """Rows of `z`."""
        if self.z is not None:
            return self.z[rows]
        block = self.exact(rows).sub_(self.centre)
        return (block.zero_() if self.collapsed else block).to(self.norms.dtype)

    def squares(self, i: Tensor | slice, j: Tensor, other: Frame | None = None) -> Tensor:
        """Squared distances of rows i to rows j (of `other`) by differences of the given rows.

        `b` rows `i`, and `j` of shape `[b]` or `[b, k]`; in the frame's coordinates, float64.
        """
        if isinstance(i, slice):
            i = torch.arange(*i.indices(len(self)), device=j.device)
        if on_host(self.given):
            return torch.from_numpy(self.squares_host(i.numpy(), j.numpy(), other))
        there = self if other is None else other
        if self.collapsed:
            return torch.zeros(j.shape, dtype=self.centre.dtype, device=j.device)
        step = self._pairs_at_a_time(j.shape)
        if len(j) > step:
            parts = zip(torch.split(i, step), torch.split(j, step), strict=True)
            return torch.cat([self.squares(a, b, other) for a, b in parts])
        gap = there.exact(j if j.ndim == 1 else j.reshape(-1)).view(*j.shape, self.dim)
        here = self.exact(i)
        gap -= here if j.ndim == 1 else here[:, None]
        return squared_norms(gap)

    def squares_host(self, i: Array, j: Array, other: Frame | None = None) -> Array:
        """The same of rows in the host's memory, with NumPy."""
        there = self if other is None else other
        if self.collapsed:
            return np.zeros(j.shape)
        step = self._pairs_at_a_time(j.shape)
        if len(j) > step:
            starts = range(0, len(j), step)
            parts = [(i[low : low + step], j[low : low + step]) for low in starts]
            return np.concatenate([self.squares_host(a, b, other) for a, b in parts])
        gap, here = there.exact_host(j), self.exact_host(i)
        gap -= here if j.ndim == 1 else here[:, None]
        squares: Array = np.einsum("...d,...d->...", gap, gap)
        return squares

    def _pairs_at_a_time(self, shape: Sequence[int]) -> int:
        width = self.dim if len(shape) == 1 else max(shape[1], 1) * self.dim
        return max(1, 2 * _CHUNK // width)

    def pull_back(self, gradient: Tensor) -> Tensor:
        """Gradient by the rows as given, from the one by the rows seen; may overwrite it.

        On the sphere the part along each row goes, and what is left is over the row's norm.
        """
        if not isinstance(self.factor, Tensor):
            return gradient
        inverse = self.factor / self.zoom
        kernels = compiled.kernels if on_host(gradient) else None
        if kernels is not None:
            kernels.tangent(gradient.numpy(), self.given.numpy(), inverse.numpy())
            return gradient
        rows = self.exact(slice(None)) / self.zoom
        radial = (gradient * rows).sum(dim=1, keepdim=True)
        return (gradient - radial * rows) * inverse[:, None]

    def distances(self, i: Tensor | slice, j: Tensor) -> Tensor:
        """The same as distances that the caller sees."""
        return self.squares(i, j).sqrt_().mul_(self.unit)


def prepare(
    sets: Sequence[Tensor],
    *,
    sphere: bool = False,
    dtype: torch.dtype | None = None,
    resident: bool = True,
    orders: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Callable[[float], list[Frame]]]:
    """What `Frame.of_sets` does short of its one look at the data: the reach, and what is left.

    The reach is the largest coordinate about the centre, not finite where a row is not. A caller
    on a device reads it together with whatever else it must know, and goes on with its value.
    """
    sets = [x.detach().contiguous() for x in sets]
    dtype = dtype or product_dtype(sets[0])
    work, before = working_dtype(sets[0]), 1.0
    if sets[0].dtype == torch.float64 and on_host(sets[0]):
        largest = max(float(torch.linalg.vector_norm(x, math.inf)) for x in sets)
        if not 1 / _EXTREME < largest < _EXTREME:
            before = 1 / binary_scale(largest)
    plain = len(sets) == 1 and resident and orders is None and before == 1.0
    if plain and _small_enough(sets[0]):
        kernels = compiled.kernels
        if kernels is not None:
            frame, size = _compiled_frame(kernels, sets[0], sphere, dtype)
            return torch.tensor(size, dtype=work), lambda _: [frame]
    if plain and on_host(sets[0]) and sets[0].numel() <= _WHOLE:
        return _small_frame(sets[0], sphere, dtype)
    lean = not resident or orders is not None
    factors = [_sphere_factor(x, work, before, lean) if sphere else before for x in sets]
    centre = _mean(sets, factors, work, lean)
    reach = torch.stack(
        [
            (_exact(x, f, part, work) - centre).abs_().amax()
            for x, f in zip(sets, factors, strict=True)
            for part in _parts(len(x), x.shape[1], lean)
        ]
    ).amax()
    one_point = _one_point(sphere, work)
    if sphere and not on_host(sets[0]):  # who builds without a look at the reach gets zeros too
        whole_sphere = (reach > one_point).to(work)
        factors, centre = [f * whole_sphere for f in factors], centre * whole_sphere

    def build(largest: float) -> list[Frame]:
        collapsed = largest <= one_point
        zoom = 1.0 if collapsed else 1 / binary_scale(largest)
        whole = zoom if sphere else zoom * before
        places: Sequence[Tensor | None] = orders or [None] * len(sets)
        return [
            _frame(x, f * zoom, centre * zoom, whole, dtype, resident, collapsed, order)
            for x, f, order in zip(sets, factors, places, strict=True)
        ]

    return reach, build


def binary_scale(largest: float) -> float:
    """The power of two just above a size, or 1 for 0: dividing by it rounds nothing.

    >>> binary_scale(5.0), binary_scale(0.0)
    (8.0, 1.0)
    """
    exponent = min(max(math.frexp(largest)[1], -1021), 1023)  # its inverse is a number as well
    return math.ldexp(1.0, exponent) if largest > 0 else 1.0


def on_host(x: Tensor) -> bool:
    """Whether NumPy and the compiled kernels may look at this tensor's memory."""
    return x.device.type == "cpu" and not _as_on_a_device


@contextmanager
def device_path() -> Iterator[None]:
    """Treat tensors in the host's memory as those of a device; for tests without one."""
    global _as_on_a_device
    before, _as_on_a_device = _as_on_a_device, True
    try:
        yield
    finally:
        _as_on_a_device = before


def working_dtype(x: Tensor) -> torch.dtype:
    """float64, except on devices that have none (Apple's MPS)."""
    return torch.float32 if x.device.type == "mps" else torch.float64


def float32_is_exact() -> bool:
    """Whether float32 products keep float32's digits: torch may be told to round them to fewer."""
    return torch.get_float32_matmul_precision() == "highest"


def product_dtype(x: Tensor) -> torch.dtype:
    """The dtype products of rows are taken in: the rows' own, if that keeps its digits."""
    return x.dtype if float32_is_exact() else working_dtype(x)


def screen_dtype() -> torch.dtype:
    """The dtype a first look at many pairs is taken in, whatever that of the rows: the fastest."""
    return torch.float32 if float32_is_exact() else torch.float64


def squared_norms(rows: Tensor) -> Tensor:
    """Sums of squares along the last axis; in the same order of summation whatever the shape."""
    if on_host(rows):
        array = rows.numpy()
        return torch.from_numpy(np.einsum("...d,...d->...", array, array))
    return (rows * rows).sum(dim=-1)


def _exact(x: Tensor, factor: Tensor | float, rows: Tensor | slice, work: torch.dtype) -> Tensor:
    wide = x[rows].to(work)
    if isinstance(factor, Tensor):
        return wide * factor[rows][:, None]
    if factor == 1.0:
        return wide.clone() if wide.dtype == x.dtype and isinstance(rows, slice) else wide
    return wide * factor


def _sphere_factor(x: Tensor, work: torch.dtype, before: float, lean: bool) -> Tensor:
    factor = torch.empty(len(x), dtype=work, device=x.device)
    for part in _parts(len(x), x.shape[1], lean):
        norm = squared_norms(x[part].to(work) * before).sqrt_()  # the same for equal rows
        factor[part] = torch.where(norm > 0, before / norm, torch.zeros_like(norm))
    return factor


def _mean(
    sets: Sequence[Tensor], factors: Sequence[Tensor | float], work: torch.dtype, lean: bool
) -> Tensor:
    # The first row goes first: the mean of equal rows is then exactly that row.
    first = _exact(sets[0], factors[0], slice(0, 1), work)[0]
    total = torch.zeros_like(first)
    for x, f in zip(sets, factors, strict=True):
        for part in _parts(len(x), x.shape[1], lean):
            total += (_exact(x, f, part, work) - first).sum(0)
    return first + total / sum(len(x) for x in sets)


def _frame(
    x: Tensor,
    factor: Tensor | float,
    centre: Tensor,
    zoom: float,
    dtype: torch.dtype,
    resident: bool,
    collapsed: bool,
    order: Tensor | None,
) -> Frame:
    n = len(x) if order is None else len(order)
    norms = torch.empty(n, dtype=dtype, device=x.device)
    z = norms.new_empty(n, x.shape[1]) if resident else None
    frame = Frame(x, factor, centre, zoom, 1 / zoom, z, norms, collapsed, order)
    for part in _parts(n, x.shape[1], lean=not resident or order is not None):
        wide = frame.exact(part).sub_(centre)
        if collapsed:
            wide.zero_()
        if len(wide) == n and resident and order is None:
            frame.__dict__["wide"] = wide  # small sets: kept, it will be asked for
        narrow = wide.to(dtype)
        norms[part] = squared_norms(narrow)
        if z is not None:
            z[part] = narrow
    return frame


def _small_frame(
    x: Tensor, sphere: bool, dtype: torch.dtype
) -> tuple[Tensor, Callable[[float], list[Frame]]]:
    """The same of one set of few rows, which are converted once."""
    factor = _sphere_factor(x, torch.float64, 1.0, lean=False) if sphere else 1.0
    wide = _exact(x, factor, slice(None), torch.float64)
    # The first row goes first: the mean of equal rows is then exactly that row.
    first = wide[0].clone()
    mean = wide.sub_(first).sum(0).div_(len(x))
    wide.sub_(mean)
    centre = first.add_(mean)

    def build(largest: float) -> list[Frame]:
        collapsed = largest <= _one_point(sphere, torch.float64)
        zoom = 1.0 if collapsed else 1 / binary_scale(largest)
        wide.mul_(0.0 if collapsed else zoom)  # a power of two: nothing is rounded
        z = wide.to(dtype)
        scaled = (factor * zoom, centre * zoom, zoom, 1 / zoom)
        frame = Frame(x, *scaled, z, squared_norms(z), collapsed)
        frame.__dict__["wide"] = wide
        return [frame]

    low, high = torch.aminmax(wide)
    return torch.maximum(high, -low), build


def _one_point(sphere: bool, work: torch.dtype) -> float:
    """A reach up to this is none: rows of length 1 that differ by their rounding are one point."""
    return 4 * torch.finfo(work).eps if sphere else 0.0


def _small_enough(x: Tensor) -> bool:
    return len(x) >= _COMPILED_FROM and x.numel() <= _WHOLE and on_host(x)


def _compiled_frame(
    kernels: Any, x: Tensor, sphere: bool, dtype: torch.dtype
) -> tuple[Frame, float]:
    wide = torch.empty(x.shape, dtype=torch.float64)
    factor, centre = wide.new_empty(len(x)), wide.new_empty(x.shape[1])
    z, norms = torch.empty(x.shape, dtype=dtype), torch.empty(len(x), dtype=dtype)
    out = (factor, centre, wide, z, norms)
    reach, zoom = kernels.frame_rows(x.numpy(), sphere, *(tensor.numpy() for tensor in out))
    collapsed = zoom == 0.0
    zoom = zoom or 1.0
    scale = factor if sphere else zoom
    frame = Frame(x, scale, centre, zoom, 1 / zoom, z, norms, collapsed)
    frame.__dict__["wide"] = wide
    return frame, reach


def _parts(rows: int, dim: int, lean: bool = False) -> Iterator[slice]:
    """Rows in one piece where they are few, else (or if `lean`) in pieces of 2 MB of float64."""
    whole = not lean and rows * dim <= _WHOLE
    step = max(1, rows if whole else _CHUNK // dim)
    for low in range(0, rows, step):
        yield slice(low, min(low + step, rows))
