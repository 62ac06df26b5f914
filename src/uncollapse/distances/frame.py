"""Rows about their own centre, over their own scale: distances with a known error.

The identity |x - y|² = |x|² + |y|² - 2x·y loses every digit once the spread of the points is small
beside their norm. About their centre, and over a power of two, rows of float32 keep their digits at
any spread; what a product of them gets wrong is bounded, and differences settle what is in doubt.
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

from uncollapse._base.extras import compiled

_COMPILED_FROM = 128  # rows from which loading the compiled kernels is worth it
_CHUNK = 1 << 18  # float64 values converted at a time: 2 MB
_WHOLE = 1 << 22  # up to so many values the compiled kernels may keep the float64 rows: 32 MB
_SLACK = 16  # roundings of a squared distance beyond the d of its dot product
_UNDERFLOW = 1e-35  # products of coordinates far below the scale vanish in float32
_EXTREME = 1e100  # coordinates beyond it, or its inverse, would over- or underflow when squared
_as_on_a_device = False  # set by `device_path`


@dataclass(frozen=True, eq=False)
class Frame:
    """The rows `given`, and the same rows about their centre over a power of two, narrow: `z`.

    In the frame's coordinates row i is `given[i] * factor[i] - centre`, in float64: `wide`.
    `factor` is `zoom`, a power of two, divided by the row's norm if the rows are normalised (0 for
    a row of zeros, which stays at 0). `unit` is the length of 1 in these coordinates, as the caller
    sees distances. `norms` are the squared norms of `z`. Where all rows coincide every coordinate
    is 0 and `collapsed` is True. With an `order`, row i of the frame is `given[order[i]]`: another
    order, or some of the rows, without a copy of them.

    A squared distance |z_i|² + |z_j|² - 2 z_i·z_j is within `gamma` (|z_i|² + |z_j|²) + 1e-35 of
    the true one: the bound d·u of a dot product of length d, and the roundings around it.

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
    _wide: Tensor | None = None  # `wide`, where the rows are few

    @classmethod
    def of(
        cls,
        x: Tensor,
        *,
        normalize: bool = False,
        dtype: torch.dtype | None = None,
        resident: bool = True,
    ) -> Frame:
        """Frame of `[N, d]` rows, divided by their norms first with `normalize`.

        `dtype` is that of `z`: by default the rows' own, or float64 where torch rounds float32
        products to fewer digits. Without `resident`, `z` is not kept and blocks of it are made when
        asked for: memory is then O(N), and a few MB.
        """
        return cls.of_sets([x], normalize=normalize, dtype=dtype, resident=resident)[0]

    @classmethod
    def of_sets(
        cls,
        sets: Sequence[Tensor],
        *,
        normalize: bool = False,
        dtype: torch.dtype | None = None,
        resident: bool = True,
        orders: Sequence[Tensor] | None = None,
        known: float | None = None,
    ) -> list[Frame]:
        """Frames of several sets of rows about one common centre, with one scale.

        `orders`, one per set, are the orders of their rows in the frames; nothing but `z` is then
        kept of them. Pass `known`, the largest coordinate about the centre, to skip a device
        synchronisation.
        """
        reach, build = prepare(
            sets, normalize=normalize, dtype=dtype, resident=resident, orders=orders
        )
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
    def wide(self) -> Tensor:
        """All rows in these coordinates, in float64 (where the device has it)."""
        if self._wide is not None:
            return self._wide
        return self.exact(slice(None)).sub_(self.centre).mul_(float(not self.collapsed))

    @cached_property
    def normalized(self) -> Frame:
        """The frame of the same rows divided by their norms; this one where it is that already."""
        if isinstance(self.factor, Tensor):
            return self.seen_as(1 / self.zoom)
        orders = None if self.order is None else [self.order]
        dtype = self.norms.dtype
        return Frame.of_sets([self.given], normalize=True, dtype=dtype, orders=orders, known=1.0)[0]

    @cached_property
    def fine(self) -> Frame:
        """The same frame with `z` in float64."""
        if self.norms.dtype == self.centre.dtype:
            return self
        return replace(self, z=self.wide, norms=squared_norms(self.wide), _wide=self.wide)

    def seen_as(self, unit: float | Tensor) -> Frame:
        """The same frame, with another `unit`."""
        return replace(self, unit=unit)

    def at(self, rows: Tensor | slice) -> Frame:
        """Some of the rows as a frame of its own, in the same coordinates."""
        changes: dict[str, Any] = {"norms": self.norms[rows]}
        changes |= {
            name: values[rows]
            for name, values in (("z", self.z), ("_wide", self._wide), ("order", self.order))
            if values is not None
        }
        if self.order is None:
            changes["given"] = self.given[rows]
            if isinstance(self.factor, Tensor):
                changes["factor"] = self.factor[rows]
        return replace(self, **changes)

    def kept(self) -> Frame:
        """The same frame with `z`, where it was made without; needs a few MB beside it."""
        if self.z is not None:
            return self
        z = self.norms.new_empty(len(self), self.dim)
        for part in _parts(*z.shape):
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
            _wide=None,
        )

    def exact(self, rows: Tensor | slice) -> Tensor:
        """Rows before the centre is taken off, in float64: only their differences mean anything."""
        rows = rows if self.order is None else self.order[rows]
        return _exact(self.given, self.factor, rows, working_dtype(self.given))

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
        if self.collapsed:
            return torch.zeros(j.shape, dtype=self.centre.dtype, device=j.device)
        if isinstance(i, slice):
            i = torch.arange(*i.indices(len(self)), device=j.device)
        there = self if other is None else other
        step = max(1, 2 * _CHUNK // (self.dim * max(math.prod(j.shape[1:]), 1)))
        parts = []
        for here, columns in zip(torch.split(i, step), torch.split(j, step), strict=True):
            gap = there.exact(columns.reshape(-1)).view(*columns.shape, self.dim)
            own = self.exact(here)
            gap -= own if j.ndim == 1 else own[:, None]
            parts.append(squared_norms(gap))
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def distances(self, i: Tensor | slice, j: Tensor) -> Tensor:
        """The same as distances that the caller sees."""
        return self.squares(i, j).sqrt_().mul_(self.unit)

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


def short_squares(
    x: Frame,
    i: Tensor | slice,
    y: Frame | None = None,
    j: Tensor | slice = slice(None),
    out: Tensor | None = None,
    scale: float = 1.0,
) -> Tensor:
    """|y_j|² - 2 x_i·y_j: squared distances short of |x_i|², which leaves the order of a row.

    Rows i of `x` against rows j of `y` (of `x` by default, both in the same coordinates), times
    `scale`, into `out` where given. Right to `scale` (x.band[i] + y.band[j]).

    >>> frame = Frame.of(torch.tensor([[0.0], [1.0], [3.0]]))
    >>> (short_squares(frame, slice(0, 1)) + frame.norms[0]).sqrt() * frame.unit
    tensor([[0., 1., 3.]])
    """
    y = x if y is None else y
    rows, norms = x.block(i), y.norms[j]
    buffer = None if out is None else out[: len(rows)]
    start = norms if scale == 1.0 else norms * scale
    return torch.addmm(start, rows, y.block(j).T, alpha=-2.0 * scale, out=buffer)


def prepare(
    sets: Sequence[Tensor],
    *,
    normalize: bool = False,
    dtype: torch.dtype | None = None,
    resident: bool = True,
    orders: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Callable[[float], list[Frame]]]:
    """`Frame.of_sets` short of its one look at the data: the reach, and what builds the frames.

    The reach is the largest coordinate about the centre, not finite where a row is not. A caller
    on a device reads it together with whatever else it must know, and builds with its value.
    """
    sets = [x.detach().contiguous() for x in sets]
    work, before = working_dtype(sets[0]), 1.0
    dtype = dtype or (sets[0].dtype if float32_is_exact() else work)
    if sets[0].dtype == torch.float64 and on_host(sets[0]):
        largest = max(float(torch.linalg.vector_norm(x, math.inf)) for x in sets)
        if not 1 / _EXTREME < largest < _EXTREME:
            before = 1 / binary_scale(largest)
    if len(sets) == 1 and resident and orders is None and before == 1.0:
        large_enough = len(sets[0]) >= _COMPILED_FROM and sets[0].numel() <= _WHOLE
        kernels = compiled.kernels if large_enough and on_host(sets[0]) else None
        if kernels is not None:
            frame, size = _compiled_frame(kernels, sets[0], normalize, dtype)
            return torch.tensor(size, dtype=work), lambda _: [frame]
    factors = [_inverse_norms(x, work, before) if normalize else before for x in sets]
    # The first row is taken off first: the mean of equal rows is then exactly that row.
    first = _exact(sets[0], factors[0], slice(0, 1), work)[0]
    total = torch.zeros_like(first)
    for x, factor in zip(sets, factors, strict=True):
        for part in _parts(*x.shape):
            total += (_exact(x, factor, part, work) - first).sum(0)
    centre = first + total / sum(len(x) for x in sets)
    largest_parts = [
        (_exact(x, factor, part, work) - centre).abs_().amax()
        for x, factor in zip(sets, factors, strict=True)
        for part in _parts(*x.shape)
    ]
    reach = torch.stack(largest_parts).amax()
    # Rows of length 1 that differ by no more than their rounding are one point.
    one_point = 4 * torch.finfo(work).eps if normalize else 0.0
    if normalize and not on_host(sets[0]):  # whoever builds without reading the reach gets zeros
        spread = (reach > one_point).to(work)
        factors, centre = [factor * spread for factor in factors], centre * spread

    def build(largest: float) -> list[Frame]:
        collapsed = largest <= one_point
        zoom = 1.0 if collapsed else 1 / binary_scale(largest)
        whole = zoom if normalize else zoom * before
        norms = torch.empty(0, dtype=dtype, device=centre.device)
        coordinates = (centre * zoom, whole, 1 / whole, None, norms, collapsed)
        places: Sequence[Tensor | None] = orders or [None] * len(sets)
        return [
            _filled(Frame(x, factor * zoom, *coordinates, order), resident)
            for x, factor, order in zip(sets, factors, places, strict=True)
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


def screen_dtype() -> torch.dtype:
    """The dtype a first look at many pairs is taken in, whatever that of the rows: the fastest."""
    return torch.float32 if float32_is_exact() else torch.float64


def squared_norms(rows: Tensor) -> Tensor:
    """Sums of squares along the last axis; in the same order of summation whatever the shape."""
    if on_host(rows):
        array = rows.numpy()
        return torch.from_numpy(np.einsum("...d,...d->...", array, array))
    return (rows * rows).sum(dim=-1)


def row_argmin(values: Tensor) -> Tensor:
    """Column of each row's least value, the lowest of equals."""
    if on_host(values):  # NumPy takes a tenth of torch's time for it
        return torch.from_numpy(values.numpy().argmin(axis=1))
    return values.argmin(dim=1)


def _exact(x: Tensor, factor: Tensor | float, rows: Tensor | slice, work: torch.dtype) -> Tensor:
    """A copy of the rows times their factors."""
    if isinstance(rows, Tensor):
        wide = x.index_select(0, rows).to(work)
    else:
        wide = x[rows].to(work, copy=True)
    if isinstance(factor, Tensor):
        return wide.mul_(factor[rows][:, None])
    return wide if factor == 1.0 else wide.mul_(factor)


def _inverse_norms(x: Tensor, work: torch.dtype, before: float) -> Tensor:
    factor = torch.empty(len(x), dtype=work, device=x.device)
    for part in _parts(*x.shape):
        norm = squared_norms(x[part].to(work) * before).sqrt_()  # the same for equal rows
        factor[part] = torch.where(norm > 0, before / norm, torch.zeros_like(norm))
    return factor


def _filled(frame: Frame, resident: bool) -> Frame:
    """The frame with its norms, and `z` if `resident`."""
    n = len(frame.given if frame.order is None else frame.order)
    norms = frame.norms.new_empty(n)
    z = norms.new_empty(n, frame.dim) if resident else None
    wide = None
    for part in _parts(n, frame.dim):
        wide = frame.exact(part).sub_(frame.centre)
        if frame.collapsed:
            wide.zero_()
        narrow = wide.to(norms.dtype)
        norms[part] = squared_norms(narrow)
        if z is not None:
            z[part] = narrow
    few = wide is not None and len(wide) == n and resident and frame.order is None
    return replace(frame, z=z, norms=norms, _wide=wide if few else None)


def _compiled_frame(
    kernels: Any, x: Tensor, normalize: bool, dtype: torch.dtype
) -> tuple[Frame, float]:
    wide = torch.empty(x.shape, dtype=torch.float64)
    factor, centre = wide.new_empty(len(x)), wide.new_empty(x.shape[1])
    z, norms = torch.empty(x.shape, dtype=dtype), torch.empty(len(x), dtype=dtype)
    out = (factor, centre, wide, z, norms)
    reach, zoom = kernels.frame_rows(x.numpy(), normalize, *(tensor.numpy() for tensor in out))
    collapsed = zoom == 0.0
    zoom = zoom or 1.0
    scale = factor if normalize else zoom
    return Frame(x, scale, centre, zoom, 1 / zoom, z, norms, collapsed, _wide=wide), reach


def _parts(rows: int, dim: int) -> list[slice]:
    """The rows in pieces of 2 MB of float64."""
    step = max(1, _CHUNK // dim)
    return [slice(low, min(low + step, rows)) for low in range(0, rows, step)]
