"""A labelled batch: its rows in their frame, and which rows share a class.

Everything stays on the rows' device; the host reads from it once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike, class_ids, label_array, points
from uncollapse._base.check import InputError
from uncollapse.distances.frame import Frame, on_host, prepare

__all__ = ["Batch", "Classes", "label_numbers"]


@dataclass(frozen=True, eq=False)
class Classes:
    """Anchors, and the candidates they are compared with, class by class.

    The candidates of anchor i's class are `order[low[i] : high[i]]`, ascending. `apart` is False
    where candidate i is anchor i itself, as without references. `most` is the largest number of
    positives of an anchor, `usable` the number of anchors with a positive and a negative,
    `triplets` the number of all (anchor, positive, negative).
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
        """`[N, most]` positives of each anchor, ascending, then padding; and which are real.

        The padding is the anchor itself or, with references, its first positive.
        """
        order, device, last = self.order, self.order.device, len(self.order) - 1
        column = torch.arange(max(self.most, 1), device=device)
        place = self.low[:, None] + column
        if self.apart:
            padding = order[self.low.clamp(max=last)]
        else:
            padding = torch.arange(len(self.low), device=device)
            rank = torch.empty_like(order)  # of each candidate in `order`
            rank[order] = torch.arange(len(order), device=device)
            place += place >= rank[: len(self.low), None]
        real = column < self.counts[:, None]
        return torch.where(real, order[place.clamp(max=last)], padding[:, None]), real


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of a batch on the graph, their frame, and their classes where labels are known.

    `rows` are the `count` anchors followed by the references, if any. Candidate j, as tuples name
    it, is row `offset + j`. `label_range` and `sample_range` are the smallest and the largest of
    `labels` (None where those were names) and of `sample_ids`.

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
        normalize: bool = False,
        own: bool = False,
    ) -> Batch:
        """Check and arrange a batch, dividing rows by their norms with `normalize`.

        `own` says that the first references are the embeddings again: reference i is no positive of
        row i.
        """
        rows, count = _joined_rows(embeddings, ref_embeddings)
        references, device = len(rows) - count, rows.device
        apart = references > 0 and not own
        reach, build = prepare([rows], normalize=normalize)
        to_read = [reach]  # what the host must know, in one look at the device
        samples = numbers = ref_numbers = ranges = None
        numeric = False
        if sample_ids is not None:
            samples = _whole_numbers(sample_ids, count, "sample_ids")
            if samples is None:
                raise InputError("sample_ids", "names", "the rows' numbers in the dataset")
            samples = samples.to(device)
            to_read += torch.aminmax(samples)
        if labels is not None:
            if references and ref_labels is None:
                allowed = f"{references} labels, one for each row of ref_embeddings"
                raise InputError("ref_labels", None, allowed)
            numbers, ref_numbers, numeric = label_numbers(
                labels, ref_labels if references else None, count, references
            )
            numbers = numbers.to(device)
            ref_numbers = None if ref_numbers is None else ref_numbers.to(device)
            ranges = _class_ranges(numbers, numbers if ref_numbers is None else ref_numbers)
            to_read += [*torch.aminmax(numbers), *_class_counts(*ranges, apart)]
        size, *read = torch.stack([value.to(reach.dtype) for value in to_read]).tolist()
        if not math.isfinite(size):
            points(rows.detach(), "embeddings")  # raises, naming the rows
        read = [int(value) for value in read]
        classes = None if ranges is None else Classes(*ranges, apart, *read[-3:])
        label_range = (read[-5], read[-4]) if numeric else None
        sample_range = (read[0], read[1]) if samples is not None else None
        labelled = (numbers, ref_numbers, classes, samples, label_range, sample_range)
        return cls(rows, count, build(size)[0], *labelled)

    @property
    def classes(self) -> Classes:
        """Which rows share a class; an error where there are no labels."""
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


def label_numbers(
    labels: ArrayLike,
    ref_labels: ArrayLike | None = None,
    n: int | None = None,
    ref_n: int | None = None,
) -> tuple[Tensor, Tensor | None, bool]:
    """Labels, and those of the references, as int64; and whether they were whole numbers before.

    Names are numbered over both, in the order of their classes. `n` and `ref_n` are how many there
    must be.

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


def _class_counts(order: Tensor, low: Tensor, high: Tensor, apart: bool) -> list[Tensor]:
    """`most`, `usable` and `triplets` of `Classes`."""
    positives = high - low - int(not apart)
    pairs = positives * (len(order) - (high - low))
    return [positives.max(), (pairs > 0).sum(), pairs.sum()]


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
