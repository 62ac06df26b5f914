"""Rows about their own centre, over their own scale: distances with a known error.

The identity |x - y|² = |x|² + |y|² - 2x·y loses every digit once the spread of the points is small
beside their norm. About their centre, and over a power of two, rows of float32 keep their digits at
any spread; what a product of them gets wrong is bounded, and differences settle what is in doubt.
`Batch` is a labelled batch in such a frame, `pairwise_distances` HNM (1) for users.
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

from uncollapse._base.arrays import ArrayLike, class_ids, label_array, points
from uncollapse._base.check import InputError, check_bool
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
        """The compiled kernels if they pay off for these rows, else None."""
        large = on_host(self.given) and len(self.given) >= _COMPILED_FROM
        return compiled.kernels if large else None

    @property
    def gamma(self) -> float:
        """Relative error of a product: see the class."""
        return (self.dim + _SLACK) * torch.finfo(self.norms.dtype).eps / 2

    @cached_property
    def band(self) -> Tensor:
        """`[N]`: a squared distance from a product is exact up to `band[i] + band[j]`."""
        return self.norms * self.gamma + _UNDERFLOW

    @cached_property
    def wide(self) -> Tensor:
        """All rows in these coordinates, in float64 (where the device has it)."""
        if self._wide is not None:
            return self._wide
        return self.exact(slice(None)).sub_(self.centre).mul_(float(not self.collapsed))

    @cached_property
    def normalized(self) -> Frame:
        """The frame of the rows divided by their norms; itself if they already are."""
        if isinstance(self.factor, Tensor):
            return self.seen_as(1 / self.zoom)
        orders = None if self.order is None else [self.order]
        dtype = self.norms.dtype
        return Frame.of_sets([self.given], normalize=True, dtype=dtype, orders=orders, known=1.0)[0]

    @property
    def fine(self) -> Frame:
        """The same frame with `z` in float64."""
        if self.norms.dtype == self.centre.dtype:
            return self  # not kept by itself: such a cycle would hold its memory
        return self._fine

    @cached_property
    def _fine(self) -> Frame:
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
        """The same frame with `z` in memory, if it was built without; needs a few MB more."""
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
        """Rows before centring, in float64: only their differences are meaningful."""
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
        """`squares` as distances in the caller's units."""
        return self.squares(i, j).sqrt_().mul_(self.unit)

    def pull_back(self, gradient: Tensor) -> Tensor:
        """Gradient with respect to the rows as given, from that of the rows used; may overwrite.

        For normalised rows the part along each row is removed, the remainder divided by its norm.
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


def exact_squares(x: Frame, i: Tensor | slice, y: Frame, j: Tensor | slice) -> Tensor:
    """Squared distances of all rows i to all rows j of `y` by differences, in float64.

    Equal rows are at exactly 0. On a device the way of all squares: its float32 products would need
    a list of the pairs that are too close for them, whose length the host waits to know.
    """
    here, there = x.exact(i), y.exact(j)
    if x.collapsed:
        return here.new_zeros(len(here), len(there))
    gap = torch.cdist(here, there, compute_mode="donot_use_mm_for_euclid_dist")
    return gap.square_()


def prepare(
    sets: Sequence[Tensor],
    *,
    normalize: bool = False,
    dtype: torch.dtype | None = None,
    resident: bool = True,
    orders: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Callable[[float], list[Frame]]]:
    """`Frame.of_sets` without its one device synchronisation: the reach, and the frames' builder.

    The reach is the largest coordinate about the centre, not finite where a row is not. A caller
    on a device reads it together with other values it needs, and calls the builder with it.
    """
    sets = [x.detach().contiguous() for x in sets]
    work, before = working_dtype(sets[0]), 1.0
    dtype = dtype or (work if screen_dtype() == torch.float64 else sets[0].dtype)
    if sets[0].dtype == torch.float64 and on_host(sets[0]):
        largest = max(float(torch.linalg.vector_norm(x, math.inf)) for x in sets)
        if not 1 / _EXTREME < largest < _EXTREME:
            before = 1 / binary_scale(largest)
    if len(sets) == 1 and resident and orders is None and before == 1.0:
        large_enough = len(sets[0]) >= _COMPILED_FROM and sets[0].numel() <= _WHOLE
        large_enough = large_enough and sets[0].dtype in (torch.float32, torch.float64)
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
            total += _exact(x, factor, part, work).sub_(first).sum(0)
    centre = first + total / sum(len(x) for x in sets)
    reach = torch.zeros_like(centre[0])
    for x, factor in zip(sets, factors, strict=True):
        for part in _parts(*x.shape):
            # Not in a list: small results in between would keep the memory of each part in use.
            reach = torch.maximum(reach, _exact(x, factor, part, work).sub_(centre).abs_().amax())
    # Rows of length 1 that differ by no more than their rounding are one point.
    one_point = 4 * torch.finfo(work).eps if normalize else 0.0
    if normalize and not on_host(sets[0]):  # building without reading the reach gives zeros
        spread = (reach > one_point).to(work)
        factors, centre = [factor * spread for factor in factors], centre * spread

    def build(largest: float) -> list[Frame]:
        collapsed = largest <= one_point
        zoom = 1.0 if collapsed else 1 / binary_scale(largest)
        whole = zoom if normalize else zoom * before
        norms = torch.empty(0, dtype=dtype, device=centre.device)
        coordinates = (centre * zoom, whole, 1 / whole, None, norms, collapsed)
        row_orders: Sequence[Tensor | None] = orders or [None] * len(sets)
        return [
            _filled(Frame(x, factor * zoom, *coordinates, order), resident)
            for x, factor, order in zip(sets, factors, row_orders, strict=True)
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
    """Whether NumPy and the compiled kernels can read this tensor's memory."""
    return x.device.type == "cpu" and not _as_on_a_device


@contextmanager
def device_path() -> Iterator[None]:
    """Treat tensors in host memory as if they were on a device; for tests without one."""
    global _as_on_a_device
    before, _as_on_a_device = _as_on_a_device, True
    try:
        yield
    finally:
        _as_on_a_device = before


def working_dtype(x: Tensor) -> torch.dtype:
    """float64, except on devices without it (Apple's MPS)."""
    return torch.float32 if x.device.type == "mps" else torch.float64


def screen_dtype() -> torch.dtype:
    """The fastest dtype for screening many pairs, whatever the dtype of the rows.

    float64 where torch has been told to round float32 products to fewer digits.
    """
    exact = torch.get_float32_matmul_precision() == "highest"
    return torch.float32 if exact else torch.float64


def squared_norms(rows: Tensor) -> Tensor:
    """Sums of squares along the last axis, summed in the same order for any shape."""
    if on_host(rows):
        array = rows.numpy()
        return torch.from_numpy(np.einsum("...d,...d->...", array, array))
    return (rows * rows).sum(dim=-1)


def row_argmin(values: Tensor) -> Tensor:
    """Column of the smallest value of each row; ties go to the lower column."""
    if on_host(values):  # NumPy takes a tenth of torch's time for it
        return torch.from_numpy(values.numpy().argmin(axis=1))
    return values.argmin(dim=1)


def _exact(x: Tensor, factor: Tensor | float, rows: Tensor | slice, work: torch.dtype) -> Tensor:
    """A copy of the rows multiplied by their factors."""
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


# A labelled batch: its rows in their frame, and which rows share a class.


@dataclass(frozen=True, eq=False)
class Classes:
    """Anchors, and the candidates they are compared with, class by class.

    The candidates of anchor i's class are `order[low[i] : high[i]]`, ascending. `apart` is False
    where candidate i is anchor i itself, as without references. `most` is the largest number of
    positives of an anchor, `usable` the number of anchors with a positive and a negative, `pairs`
    and `triplets` the number of all (anchor, positive) and (anchor, positive, negative).
    """

    order: Tensor
    low: Tensor
    high: Tensor
    apart: bool
    most: int
    usable: int
    pairs: int
    triplets: int

    @cached_property
    def counts(self) -> Tensor:
        """Number of positives of each anchor."""
        return self.high - self.low - int(not self.apart)

    @cached_property
    def anchors(self) -> Tensor:
        """Rows that have both a positive and a negative."""
        if self.usable == len(self.low):
            return torch.arange(len(self.low), device=self.low.device)
        negatives = len(self.order) - (self.high - self.low)
        return true_entries(((self.counts > 0) & (negatives > 0))[None], self.usable)[1]

    @cached_property
    def table(self) -> tuple[Tensor, Tensor]:
        """`[N, most]` positives of each anchor, ascending, then padding; and which are real.

        The padding is the anchor itself or, with references, its first positive.
        """
        order, device, last = self.order, self.order.device, len(self.order) - 1
        column = torch.arange(max(self.most, 1), device=device)
        position = self.low[:, None] + column
        if self.apart:
            padding = order[self.low.clamp(max=last)]
        else:
            padding = torch.arange(len(self.low), device=device)
            rank = torch.empty_like(order)  # of each candidate in `order`
            rank[order] = torch.arange(len(order), device=device)
            position += position >= rank[: len(self.low), None]
        real = column < self.counts[:, None]
        return torch.where(real, order[position.clamp(max=last)], padding[:, None]), real


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of a batch on the graph, their frame, and their classes where labels are known.

    `rows` are the `count` anchors followed by the references, if any. Candidate j, as tuples name
    it, is row `offset + j`. `label_range` and `sample_range` are the smallest and the largest of
    `labels` (None where those were names) and of `sample_ids`. `zeros` says that one of the rows to
    normalise is 0: its cosines are 0, and not 1 - d²/2.

    >>> batch = Batch.of(torch.tensor([[0.0], [1.0], [3.0]]), ["a", "a", "b"])
    >>> batch.classes.usable, batch.classes.triplets, batch.classes.table[0].tolist()
    (2, 2, [[1], [0], [2]])
    """

    rows: Tensor
    count: int
    frame: Frame
    zeros: bool
    labels: Tensor | None = None
    ref_labels: Tensor | None = None
    known: Classes | None = None
    sample_ids: Tensor | None = None
    label_range: tuple[int, int] | None = None
    sample_range: tuple[int, int] | None = None

    @classmethod
    def of(
        cls,
        embeddings: ArrayLike,
        labels: ArrayLike | None,
        ref_embeddings: ArrayLike | None = None,
        ref_labels: ArrayLike | None = None,
        *,
        sample_ids: ArrayLike | None = None,
        normalize: bool = False,
        own: bool = False,
    ) -> Batch:
        """Check and arrange a batch; `normalize` divides the rows by their norms.

        `own` says that the first references are the embeddings again: reference i is no positive of
        row i.
        """
        rows, count = _joined_rows(embeddings, ref_embeddings)
        references, device = len(rows) - count, rows.device
        apart = references > 0 and not own
        reach, build = prepare([rows], normalize=normalize)
        least = rows.detach().abs().amax(1).amin() if normalize else torch.ones_like(reach)
        to_read = [reach, least]  # what the host must know, in one look at the device
        samples = numbers = ref_numbers = ranges = None
        numeric = False
        if sample_ids is not None:
            samples = _whole_numbers(sample_ids, count, "sample_ids")
            if samples is None:
                raise InputError("sample_ids", "names", "the rows' numbers in the dataset")
            samples = samples.to(device, non_blocking=True)
            to_read += torch.aminmax(samples)
        if labels is not None:
            if references and ref_labels is None:
                allowed = f"{references} labels, one for each row of ref_embeddings"
                raise InputError("ref_labels", None, allowed)
            numbers, ref_numbers, numeric = label_numbers(
                labels, ref_labels if references else None, count, references
            )
            numbers = numbers.to(device, non_blocking=True)
            ref_numbers = None if ref_numbers is None else ref_numbers.to(device, non_blocking=True)
            ranges = _class_ranges(numbers, numbers if ref_numbers is None else ref_numbers)
            order, low, high = ranges
            positives = high - low - int(not apart)
            pairs = positives * (len(order) - (high - low))
            counts = positives.max(), (pairs > 0).sum(), positives.sum(), pairs.sum()
            to_read += [*torch.aminmax(numbers), *counts]
        size, smallest, *read = torch.stack([value.to(reach.dtype) for value in to_read]).tolist()
        if not math.isfinite(size):
            points(rows.detach(), "embeddings")  # raises, naming the rows
        read = [int(value) for value in read]
        classes = None if ranges is None else Classes(*ranges, apart, *read[-4:])
        label_range = (read[-6], read[-5]) if numeric else None
        sample_range = (read[0], read[1]) if samples is not None else None
        labelled = (numbers, ref_numbers, classes, samples, label_range, sample_range)
        return cls(rows, count, build(size)[0], smallest == 0, *labelled)

    @property
    def classes(self) -> Classes:
        """Which rows share a class; an error if there are no labels."""
        if self.known is None:
            raise InputError("labels", None, "labels, one for each row, where no tuples are given")
        return self.known

    @property
    def offset(self) -> int:
        """Where the candidates begin among the rows."""
        return self.count if len(self.rows) > self.count else 0

    @property
    def reach(self) -> float:
        """Largest coordinate of the centred rows as the loss sees them, within a factor of 2."""
        return 0.0 if self.frame.collapsed else 0.75 / self.frame.zoom

    @property
    def candidates(self) -> int:
        """Number of rows that can be positives or negatives."""
        return len(self.rows) - self.offset


def label_numbers(
    labels: ArrayLike,
    ref_labels: ArrayLike | None = None,
    n: int | None = None,
    ref_n: int | None = None,
) -> tuple[Tensor, Tensor | None, bool]:
    """Labels, and those of the references, as int64; and whether they were whole numbers before.

    Names are numbered over both, in sorted order. `n` and `ref_n` are the required lengths.

    >>> label_numbers(["b", "a"], ["a", "c"])
    (tensor([1, 0]), tensor([0, 2]), False)
    """
    numbers = _whole_numbers(labels, n, "labels")
    ref_numbers = None if ref_labels is None else _whole_numbers(ref_labels, ref_n, "ref_labels")
    if numbers is not None and (ref_labels is None or ref_numbers is not None):
        return numbers, ref_numbers, True
    names = label_array(labels).tolist()
    count = len(names)
    if ref_labels is not None:
        names += label_array(ref_labels).tolist()
    ids = torch.from_numpy(class_ids(names, None)[0])
    return ids[:count], None if ref_labels is None else ids[count:], False


def _whole_numbers(labels: ArrayLike, n: int | None, name: str) -> Tensor | None:
    """Labels as int64, or None where they are names (or too large)."""
    if isinstance(labels, Tensor) and not labels.is_floating_point():
        count = len(labels) if labels.ndim == 1 else 0
        if labels.is_complex() or count == 0 or n not in (None, count):
            label_array(labels, n, name)  # raises, saying what is wrong
        return labels.detach().long()
    array = label_array(labels, n, name)
    if array.dtype.kind not in "iufb":
        return None
    wide = array.dtype.itemsize == 8 and array.dtype.kind in "uf"
    if wide and array.size and not (array.min() >= -(2**63) and array.max() < 2**63):
        return None
    return torch.from_numpy(array.astype(np.int64))


def _class_ranges(labels: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The candidates class by class, and for each label where its class begins and ends."""
    ordered, order = torch.sort(candidates, stable=True)
    low = torch.searchsorted(ordered, labels)
    return order, low, torch.searchsorted(ordered, labels, right=True)


def true_entries(mask: Tensor, count: int | None) -> tuple[Tensor, Tensor]:
    """Rows and columns of the True entries: `nonzero`, without waiting where the `count` is known.

    >>> true_entries(torch.tensor([[False, True], [True, False]]), 2)
    (tensor([0, 1]), tensor([1, 0]))
    """
    if count is None or on_host(mask):
        row, column = mask.nonzero(as_tuple=True)
        return row, column
    flat = mask.flatten()
    position = torch.where(flat, flat.cumsum(0) - 1, count)  # what is False goes behind the last
    entry = torch.arange(len(flat), device=mask.device)
    entry = entry.new_empty(count + 1).scatter_(0, position, entry)[:count]
    return entry // mask.shape[1], entry % mask.shape[1]


def _joined_rows(embeddings: ArrayLike, ref_embeddings: ArrayLike | None) -> tuple[Tensor, int]:
    """Embeddings followed by references, checked and on the graph; and how many embeddings."""
    x = _rows(embeddings, "embeddings")
    if ref_embeddings is None:
        return x, len(x)
    y = _rows(ref_embeddings, "ref_embeddings")
    if y.shape[1] != x.shape[1]:
        raise InputError("ref_embeddings", f"{y.shape[1]} columns", f"{x.shape[1]} as embeddings")
    return torch.cat([x, y.to(device=x.device, dtype=x.dtype)]), len(x)


def _rows(values: ArrayLike, name: str) -> Tensor:
    on_device = isinstance(values, Tensor) and not on_host(values)
    return points(values, name, check_finite=not on_device)


# All distances of two sets, and row by row: HNM (1), differentiable as often as asked.

# A pair whose squared distance is below this share of |x|² + |y|² is measured by differences, so
# that the result is right to its own dtype's precision (to 1e-10 in float64).
_CLOSE = {torch.float32: 1e-9, torch.float64: 1e-5}


def pairwise_distances(
    x: ArrayLike, y: ArrayLike | None = None, *, squared: bool = False
) -> Tensor:
    """All distances between the rows of `x` and the rows of `y` (of `x` itself by default).

    Shapes `[N, d]` and `[M, d]` give `[N, M]`, in the inputs' dtype (float16 and bfloat16 give
    float32). Differentiable, with subgradient 0 where a distance is 0. With `y=None` the result is
    exactly symmetric with an exactly zero diagonal. The relative error of a float32 distance is a
    few 1e-7 at any spread, around any centre, for any mixture of tight and far groups.

    >>> pairwise_distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    tensor([[0., 5.],
            [5., 0.]])
    >>> pairwise_distances([[0.0], [1.0]], [[3.0]], squared=True).tolist()
    [[9.0], [4.0]]
    """
    a = points(x)
    check_bool("squared", squared)
    if y is None:
        return known_distances(a, squared=squared)
    b = _other_rows(y, a)
    dtype = torch.promote_types(a.dtype, b.dtype)
    return known_distances(a.to(dtype), b.to(dtype), squared=squared)


def known_distances(
    x: Tensor, y: Tensor | None = None, *, squared: bool = False, reach: float | None = None
) -> Tensor:
    """`pairwise_distances` of rows that are already checked and have one dtype.

    Pass `reach`, their largest coordinate about their centre to a few powers of two (0 where all
    rows coincide), to skip a device synchronisation.
    """
    return _Pairwise.apply(x, x if y is None else y, y is None, squared, reach)  # type: ignore[no-any-return,no-untyped-call]


def paired_distances(x: ArrayLike, y: ArrayLike, *, squared: bool = False) -> Tensor:
    """Distance from each row of `x` to the same row of `y`, by direct differences.

    Differentiable, with subgradient 0 where a distance is 0; nothing is added to keep it away
    from 0.

    >>> paired_distances(torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.tensor([[3.0, 4.0]] * 2))
    tensor([5.0000, 3.6056])
    """
    a = points(x)
    b = _other_rows(y, a)
    if len(a) != len(b):
        raise InputError("y", f"{len(b)} rows", f"{len(a)}, one for each row of x")
    wide = working_dtype(a)
    dtype = torch.promote_types(a.dtype, b.dtype)
    return difference_norms(a.to(wide) - b.to(wide), squared=squared).to(dtype)


def difference_norms(difference: Tensor, *, squared: bool = False) -> Tensor:
    """Norms of rows, or their squares, differentiable any number of times; 0 at 0."""
    if squared:
        return difference.square().sum(dim=1)
    # vector_norm has no second derivative at 0.
    apart = (difference != 0).any(dim=1, keepdim=True)
    norm: Tensor = torch.linalg.vector_norm(difference.masked_fill(~apart, 1.0), dim=1)
    return norm * apart[:, 0]


def unit_rows(rows: Tensor) -> Tensor:
    """Rows divided by their norms, differentiable; a row of zeros stays 0.

    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    whole = (rows != 0).any(1, keepdim=True)
    # A zero row's norm has no second derivative: it is kept out of the norms, not of their result.
    norm = torch.linalg.vector_norm(rows.masked_fill(~whole, 1.0), dim=1, keepdim=True)
    unit: Tensor = rows / norm * whole
    return unit


def centre(x: Tensor) -> Tensor:
    """Rows minus their mean, in float64 where the device has it.

    >>> centre(torch.tensor([[1.0], [3.0]])).flatten().tolist()
    [-1.0, 1.0]
    """
    wide = x.detach().to(working_dtype(x))
    return wide - wide.mean(dim=0)


def _other_rows(y: ArrayLike, x: Tensor) -> Tensor:
    rows = points(y, "y")
    if rows.shape[1] != x.shape[1]:
        raise InputError("y", f"{rows.shape[1]} columns", f"{x.shape[1]} as in x")
    return rows


class _Pairwise(torch.autograd.Function):
    """Distances and their gradient, in float64 about the common centre.

    The backward pass is made of differentiable operations, so there are second derivatives too.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, same: bool, squared: bool, reach: float | None
    ) -> Tensor:
        square, unit = _wide_squares(x, None if same else y, reach)
        wide = square.mul_(unit * unit) if squared else square.sqrt_().mul_(unit)
        result = wide.to(x.dtype)
        ctx.save_for_backward(x, y, result)
        ctx.same, ctx.squared = same, squared
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, y, result = ctx.saved_tensors
        wide = working_dtype(x)
        a, b = x.to(wide), y.to(wide)
        middle = (a if ctx.same else torch.cat([a, b])).detach().mean(0)
        a, b = a - middle, b - middle
        weight = grad.to(wide)
        if ctx.squared:
            weight = 2 * weight
        else:
            # d|x - y| = (x - y)/|x - y|; at distance 0 the subgradient 0 is taken.
            apart = result > 0
            weight = weight * apart / result.to(wide).masked_fill(~apart, 1.0)
        if ctx.same:
            weight = weight + weight.T
            return (weight.sum(1, keepdim=True) * a - weight @ a).to(x.dtype), *[None] * 4
        grad_x = weight.sum(1, keepdim=True) * a - weight @ b
        grad_y = weight.sum(0)[:, None] * b - weight.T @ a
        return grad_x.to(x.dtype), grad_y.to(y.dtype), None, None, None


def _wide_squares(
    x: Tensor, y: Tensor | None, reach: float | None
) -> tuple[Tensor, float | Tensor]:
    """Squared distances divided by unit², and the unit, a power of two that avoids underflow."""
    sets, dtype = [x] if y is None else [x, y], working_dtype(x)
    frames = Frame.of_sets(sets, dtype=dtype, known=reach)
    a, b = frames[0], frames[-1]
    if not on_host(x):
        return exact_squares(a, slice(None), b, slice(None)), a.unit
    square = short_squares(a, slice(None), b).add_(a.norms[:, None]).clamp_(min=0.0)
    close = square <= (a.norms[:, None] + b.norms).mul_(_CLOSE[x.dtype])
    if y is None:
        close.triu_(1)
    rows, columns = close.nonzero(as_tuple=True)
    if len(rows):
        square[rows, columns] = a.squares(rows, columns, b)
    if y is None:
        square = square.triu_(1)
        square += square.T.clone()
    return square, a.unit
