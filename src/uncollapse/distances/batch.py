"""A labelled batch: its rows in their frame, and who shares a class with whom.

Everything stays on the rows' device, and the host looks at it once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike, class_ids, label_array, points
from uncollapse._base.check import InputError
from uncollapse.distances.frame import Frame, on_host, prepare

__all__ = ["Batch", "Classes"]


@dataclass(frozen=True, eq=False)
class Classes:
    """Anchors, and the candidates they are compared with, class by class.

    The candidates of anchor i's class are `order[low[i] : high[i]]`, ascending. Where candidate i
    is anchor i itself, as it is without references, `apart` is False. `most` is the largest number
    of positives an anchor has, `usable` the number of anchors with a positive and a negative,
    `triplets` that of all (anchor, positive, negative).
    """

    order: Tensor
    low: Tensor
    high: Tensor
    apart: bool
    most: int
    usable: int
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
        return ((self.counts > 0) & (negatives > 0)).nonzero().flatten()

    @cached_property
    def table(self) -> tuple[Tensor, Tensor]:
        """`[N, most]` positives of each anchor, ascending, filled up; and which are real.

        What fills up is the anchor itself, or, with references, its first positive.
        """
        if on_host(self.order):
            known = self.order.numpy(), self.low.numpy(), self.counts.numpy()
            found, real = _table(np, self, *known)
            return torch.from_numpy(found), torch.from_numpy(real)
        return _table(torch, self, self.order, self.low, self.counts)


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of a batch on the graph, their frame, and their classes where labels are known.

    `rows` are the `count` anchors and, behind them, the references where there are any. Candidate
    j, as tuples name it, is row `offset + j`. `label_range` and `sample_range` are the smallest and
    the largest of `labels` (None where those were names) and of `sample_ids`.

    >>> batch = Batch.of(torch.tensor([[0.0], [1.0], [3.0]]), ["a", "a", "b"])
    >>> batch.classes.usable, batch.classes.triplets, batch.classes.table[0].tolist()
    (2, 2, [[1], [0], [2]])
    """

    rows: Tensor
    count: int
    frame: Frame
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
        sphere: bool = False,
        own: bool = False,
    ) -> Batch:
        """Check and arrange a batch, on the unit `sphere` if asked; raises `InputError`.

        `own` says that the first references are the embeddings again: reference i is no positive of
        row i.
        """
        rows, count = _joined_rows(embeddings, ref_embeddings)
        referred = ref_embeddings is not None
        apart = referred and not own
        reach, build = prepare([rows], sphere=sphere)
        samples = None
        if sample_ids is not None:
            samples = _whole_numbers(sample_ids, count, "sample_ids")
            if samples is None:
                raise InputError("sample_ids", "names", "the rows' numbers in the dataset")
            samples = samples.to(rows.device)
        # What the host must know, in one look at the device.
        numbers: list[Any] = [reach, *_ends(samples)]
        if labels is None:
            size, *ends = _read(numbers)
            mine = theirs = known = None
            numbered = False
        else:
            mine, theirs, numbered = _label_numbers(
                labels, count, ref_labels if referred else None, len(rows) - count, rows.device
            )
            order, low, high = _class_ranges(mine, theirs)
            positives = high - low - int(not apart)
            pairs = positives * (len(order) - (high - low))
            numbers += [*_ends(mine), positives.max(), (pairs > 0).sum(), pairs.sum()]
            size, *ends, most, usable, triplets = _read(numbers)
            order, low, high = _tensor(order), _tensor(low), _tensor(high)
            known = Classes(order, low, high, apart, int(most), int(usable), int(triplets))
        if not math.isfinite(size):
            points(rows.detach(), "embeddings")  # says which rows
        spans = [(int(ends[i]), int(ends[i + 1])) for i in range(0, len(ends), 2)]
        sample_range = spans.pop(0) if samples is not None else None
        label_range = spans.pop(0) if mine is not None and numbered else None
        frame = build(size)[0]
        return cls(rows, count, frame, mine, theirs, known, samples, label_range, sample_range)

    @property
    def classes(self) -> Classes:
        """Who shares a class with whom; an error where there are no labels."""
        if self.known is None:
            raise InputError("labels", None, "labels, one for each row, where no tuples are given")
        return self.known

    @property
    def offset(self) -> int:
        """Where the candidates begin among the rows."""
        return self.count if len(self.rows) > self.count else 0

    @property
    def reach(self) -> float:
        """Largest coordinate about the centre, as the loss sees the rows; to a factor of 2."""
        return 0.0 if self.frame.collapsed else 0.75 / self.frame.zoom

    @property
    def candidates(self) -> int:
        """How many rows may be positives and negatives."""
        return len(self.rows) - self.offset


def _joined_rows(embeddings: ArrayLike, ref_embeddings: ArrayLike | None) -> tuple[Tensor, int]:
    """Embeddings and, behind them, references, checked and on the graph; how many embeddings."""
    x = _rows(embeddings, "embeddings")
    if ref_embeddings is None:
        return x, len(x)
    y = _rows(ref_embeddings, "ref_embeddings")
    if y.shape[1] != x.shape[1]:
        raise InputError("ref_embeddings", f"{y.shape[1]} columns", f"{x.shape[1]} as embeddings")
    return torch.cat([x, y.to(device=x.device, dtype=x.dtype)]), len(x)


def _rows(values: ArrayLike, name: str) -> Tensor:
    given_device = isinstance(values, Tensor) and not on_host(values)
    return points(values, name, check_finite=not given_device)


def _label_numbers(
    labels: ArrayLike, n: int, ref_labels: ArrayLike | None, m: int, device: torch.device
) -> tuple[Tensor, Tensor | None, bool]:
    """Labels as whole numbers on the device, of references too; whether they were such before."""
    if m and ref_labels is None:
        raise InputError("ref_labels", None, f"{m} labels, one for each row of ref_embeddings")
    mine = _whole_numbers(labels, n, "labels")
    theirs = None if ref_labels is None else _whole_numbers(ref_labels, m, "ref_labels")
    if mine is None or (m and theirs is None):  # names: numbered in the order of their classes
        both = [label for values in (labels, ref_labels if m else []) for label in _listed(values)]
        ids = torch.from_numpy(class_ids(both, n + m)[0])
        return ids[:n].to(device), ids[n:].to(device) if m else None, False
    return mine.to(device), theirs.to(device) if m and theirs is not None else None, True


def _whole_numbers(labels: ArrayLike, n: int, name: str) -> Tensor | None:
    """Labels as int64, or None where they are names."""
    if isinstance(labels, Tensor) and not labels.is_floating_point():
        return _checked(labels, n, name)
    array = label_array(labels, n, name)
    if array.dtype.kind not in "iufb":
        return None
    if array.dtype.itemsize == 8 and array.dtype.kind in "uf" and not _fits(array):
        return None
    return torch.from_numpy(array.astype(np.int64))


def _fits(array: Any) -> bool:
    return not array.size or bool(array.min() >= -(2**63) and array.max() < 2**63)


def _checked(labels: Tensor, n: int, name: str) -> Tensor:
    if labels.ndim != 1 or len(labels) != n or labels.is_complex():
        label_array(labels, n, name)  # says what is wrong
    return labels.detach().long()


def _listed(values: ArrayLike | None) -> list[object]:
    if values is None:
        return []
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _class_ranges(labels: Tensor, candidates: Tensor | None) -> tuple[Any, Any, Any]:
    """Candidates class by class, and for each label where its class begins and ends.

    As arrays on a CPU, where NumPy's small operations take a third of the time of torch's.
    """
    if on_host(labels):
        mine = labels.numpy()
        theirs = mine if candidates is None else candidates.numpy()
        order = theirs.argsort(kind="stable")
        ordered = theirs[order]
        if candidates is None:
            return order, *_runs(order, ordered)
        return order, ordered.searchsorted(mine), ordered.searchsorted(mine, side="right")
    lined, place = torch.sort(labels if candidates is None else candidates, stable=True)
    low = torch.searchsorted(lined, labels)
    return place, low, torch.searchsorted(lined, labels, right=True)


def _runs(order: Any, ordered: Any) -> tuple[Any, Any]:
    """The same where the labels are the candidates: each is in a run of equal ones."""
    starts = np.append(0, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1)
    sizes = np.diff(starts, append=len(order))
    low, high = np.empty((2, len(order)), np.int64)
    low[order], high[order] = starts.repeat(sizes), (starts + sizes).repeat(sizes)
    return low, high


def _table(xp: Any, classes: Classes, order: Any, low: Any, counts: Any) -> tuple[Any, Any]:
    """`Classes.table` with NumPy or torch, whichever the arrays are of."""
    place_on = {} if xp is np else {"device": order.device}
    column = xp.arange(max(classes.most, 1), **place_on)
    row = xp.arange(len(low), **place_on)
    place, last = low[:, None] + column, len(order) - 1
    if classes.apart:
        filler = order[low.clip(max=last)]
    else:
        rank = xp.empty_like(order)  # place of each candidate in `order`
        rank[order] = xp.arange(len(order), **place_on)
        place += place >= rank[: len(low), None]
        filler = row
    real = column < counts[:, None]
    return xp.where(real, order[place.clip(max=last)], filler[:, None]), real


def _ends(values: Tensor | None) -> list[Any]:
    """Smallest and largest, to be read; nothing of nothing."""
    if values is None:
        return []
    if on_host(values):
        array = values.numpy()
        return [array.min(), array.max()]
    return list(torch.aminmax(values))


def _read(numbers: list[Any]) -> list[float]:
    """Numbers on a device, in one transfer; on a CPU there is nothing to wait for."""
    if on_host(numbers[0]):
        return [float(value) for value in numbers]
    read: list[float] = torch.stack([v.to(numbers[0].dtype) for v in numbers]).tolist()
    return read


def _tensor(values: Any) -> Tensor:
    return values if isinstance(values, Tensor) else torch.from_numpy(values)
