"""Losses around others: sums of losses, trimmed tuples, cross-entropy beside a metric loss."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from uncollapse._base.arrays import ArrayLike
from uncollapse._base.check import InputError, check_choice, check_int, check_kind, check_number
from uncollapse.distances import working_dtype
from uncollapse.losses.base import (
    Batch,
    Choice,
    Elements,
    Loss,
    Named,
    Number,
    TupleLoss,
    TupleWrapper,
    Wrapper,
)
from uncollapse.losses.on_graph import graph_rows
from uncollapse.losses.proxies import NamedClasses, check_columns, parameter_rows
from uncollapse.mining.random import check_generator


class MultipleLosses(Wrapper):
    """Σ w_i L_i: any of the other losses, with a weight each.

    Each has its own miner, normalisation and parameters; tuples and references go to all of them.
    The **first** is `inner`: it is the loss whose mining a guard changes, so put the one that is
    mined first.

    Siblings: `IdentityLoss` adds the cross-entropy of a learned classifier to one loss. PML's
    `MultipleLosses` is the same sum, with the miners beside it.

    Collapse: gradients add up, and so do drifts: the sum pulls to a point where Σ w_i drift_i is
    positive. What it costs when all embeddings coincide is the sum of what each does.

    Args:
        losses: two or more losses.
        weights: one each, at least 0; 1 by default.

    >>> import torch
    >>> from uncollapse.losses import ContrastiveLoss, TripletLoss
    >>> both = [TripletLoss(margin=0.2), ContrastiveLoss(margin=1.0)]
    >>> loss = MultipleLosses(both, weights=[1, 0.5])
    >>> loss(torch.zeros(4, 2), [0, 0, 1, 1])  # 0.2 + 0.5 · 1
    tensor(0.7000)
    >>> loss.inner.margin
    0.2
    """

    def __init__(self, losses: Sequence[Loss], *, weights: Sequence[float] | None = None) -> None:
        given = list(check_kind("losses", losses, Iterable, "two losses or more"))
        if len(given) < 2:
            raise InputError("losses", f"{len(given)}", "two losses or more")
        for loss in given:
            if not isinstance(loss, Loss):
                raise InputError("losses", type(loss).__name__, "losses of uncollapse.losses")
        super().__init__(given[0])
        weights = [1.0] * len(given) if weights is None else weights
        factors = list(check_kind("weights", weights, Iterable, "one number for each loss"))
        if len(factors) != len(given):
            raise InputError("weights", f"{len(factors)}", f"{len(given)}, one for each loss")
        self.others = nn.ModuleList(given[1:])
        self.weights = tuple(check_number("weights", w, 0.0) for w in factors)

    @property
    def losses(self) -> list[Loss]:
        """All of them."""
        return [self.inner, *self.others]

    @property
    def labels_needed(self) -> bool:  # type: ignore[override]
        """As any of them does."""
        return any(loss.labels_needed for loss in self.losses)

    @property
    def labels_used(self) -> bool:  # type: ignore[override]
        """As any of them does."""
        return any(loss.labels_used for loss in self.losses)

    def numbered(self, labels: ArrayLike | None) -> ArrayLike | None:
        """Labels as rows of the parameters, the same in every loss that has some."""
        for loss in self.losses:
            labels = loss.numbered(labels)
        return labels

    def value(self, batch: Batch, tuples: Named) -> Tensor:
        """The sum."""
        first, *others = (
            weight * loss.value(_normalized_as(batch, self.normalize, loss), tuples)
            for weight, loss in zip(self.weights, self.losses, strict=True)
        )
        for part in others:
            first = first + part
        return first


def _normalized_as(batch: Batch, normalized: bool, loss: Loss) -> Batch:
    """The batch as this loss sees it: its rows divided by their norms, or not."""
    if loss.normalize == normalized:
        return batch
    references = batch.rows[batch.offset :] if batch.offset else None
    other = Batch.of(
        batch.rows[: batch.count],
        batch.labels,
        references,
        batch.ref_labels,
        sample_ids=batch.sample_ids,
        normalize=loss.normalize,
    )
    return replace(other, label_range=batch.label_range)


# Trimmed loss: Shen & Sanghavi 2019, as EPS compares it (appendix C).

_ON = ("all", "positives")


def trim(elements: Elements, fraction: float, on: str = "all") -> Elements:
    """The `fraction` of the tuples that are easiest, in their old order; see `TrimmedLoss`.

    >>> charged = Elements(torch.tensor([3.0, 1.0, 2.0, 9.0]), torch.tensor([5.0, 7.0, 6.0,
    ... -torch.inf]), torch.arange(4))
    >>> trim(charged, 0.5).loss, trim(charged, 0.5, on="positives").loss
    (tensor([1., 2.]), tensor([3., 9.]))
    """
    check_number("fraction", fraction, 0.0, 1.0)
    check_choice("on", on, _ON)
    real = torch.ones_like(elements.anchor, dtype=torch.bool)
    real = real if elements.real is None else elements.real
    key, trimmed = elements.loss.detach(), real
    if on == "positives":
        key, trimmed = elements.pull, elements.pull > -torch.inf
    order = key.masked_fill(~trimmed, torch.inf).argsort(stable=True)
    candidates = trimmed.sum(dtype=working_dtype(key))
    kept = (fraction * candidates + 1e-9).floor()  # 0.7 · 10 is 7, not 6.999…
    rank = torch.argsort(order)
    return elements.take(real & (~trimmed | (rank < kept)))


class TrimmedLoss(TupleWrapper):
    """Another loss, over the `fraction` of its tuples that are easiest at the moment.

    `on="all"` keeps the tuples with the smallest losses (Shen & Sanghavi, for noisy labels: what a
    model cannot fit is likely mislabelled). `on="positives"` ranks by the positive part alone, the
    distance or similarity to the positive, and keeps every tuple that has none (the negative pairs
    of `ContrastiveLoss` and `MarginLoss`): easy positives by a batch-wide quantile where
    `Miner("easy", ...)` takes each anchor's nearest.

    Needs what the inner loss needs. The tuples are the inner loss's `elements`: triplets for
    `TripletLoss`; pairs for `ContrastiveLoss`, `MarginLoss`, `SupConLoss`, `NPairLoss`; samples for
    `MultiSimilarityLoss`, `ProxyNCALoss`. They are listed: an unmined `TripletLoss` takes O(N²K)
    memory here, so give it a miner (EPS trims random triplets: `Miner("random", "random")`).

    EPS found trimming all tuples of little use against class collapse; trimming the positives is
    what helps.

    Collapse: as the inner loss; ties are cut in the order of the tuples.

    Args:
        loss: any of the other losses.
        fraction: share of the tuples kept, in [0, 1], rounded down.
        on: which tuples are trimmed.

    >>> from uncollapse.losses.contrastive import ContrastiveLoss
    >>> loss = TrimmedLoss(ContrastiveLoss(), fraction=0.5, on="positives")
    >>> loss(torch.tensor([[0.0], [1.0], [5.0], [8.0]]), [0, 0, 1, 1])  # 1, and not 3
    tensor(1.)
    """

    on = Choice(*_ON)
    fraction = Number(0.0, 1.0)

    def __init__(self, loss: TupleLoss, *, fraction: float, on: str = "all") -> None:
        super().__init__(loss)
        self.on, self.fraction = on, fraction

    def listed(self, batch: Batch, tuples: Named) -> Elements:
        """Those of the inner loss that are kept."""
        return trim(self.inner.listed(batch, tuples), self.fraction, self.on)


# Cross-entropy beside a metric loss, the usual re-ID recipe: Luo et al. 2019, torchreid.

NECKS = ("none", "batch-norm")
_EPSILON = 1e-5  # of batch norm, as torch has it


def standardised(rows: Tensor) -> Tensor:
    """Each column less its mean, over its standard deviation: batch norm of this batch.

    >>> standardised(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    tensor([[-1.0000,  0.0000],
            [ 1.0000,  0.0000]])
    """
    centred = rows - rows.mean(0)
    unit: Tensor = centred / (centred.square().mean(0) + _EPSILON).sqrt()
    return unit


class IdentityLoss(Wrapper):
    """Another loss + `weight` · cross-entropy of a linear classifier of the embeddings.

    The classifier, one row per class and no bias, is learned: give this module's parameters to the
    optimiser. It is part of the loss, not of the network: what is exported and searched is the
    embedding. It sees embeddings as they come, also where the inner loss divides them by their
    norms, and with `neck="batch-norm"` standardised over the batch (Luo et al.'s BNNeck; its
    statistics are the batch's own, its scale is the classifier's), so that the two losses do not
    compete over the scale. Labels are 0 to `num_classes` - 1, or at most so many names, which are
    numbered as they first come and saved with the loss.

    Needs what the inner loss needs, and labels with tuples too. The cross-entropy is the mean over
    all samples of the batch: tuples, miners and references are the inner loss's alone. There are
    no `elements`, as the cross-entropy is of no tuple: to trim, put `TrimmedLoss` inside.

    Siblings: `ProxyNCALoss(exclude_positive=False)` is a cross-entropy too, of distances to one row
    per class, and needs no second loss.

    Collapse: when all embeddings are one z, the cross-entropy pushes each along
    Wᵀ(q - softmax(Wz)), q its smoothed label: two classes are moved apart along the difference of
    their rows of the classifier W, as long as these differ, so a collapsed batch is no stationary
    point, and costs more than the inner loss's margin. No guarantee: the push is as long as those
    differences times `weight`, and batch-hard mining, whose pull is about 1, wins over a much
    shorter one (on noise it collapses with `weight=0.1`, and with 1 it does not). The samples of
    one class are moved alike: against class collapse it does nothing.

    Args:
        loss: any of the other losses.
        num_classes: number of classes, at least 2.
        dim: embedding dimension.
        weight: factor of the cross-entropy; torchreid and Luo et al. have 1.
        label_smoothing: share ε of the label that is spread over all classes, in [0, 1]; 0.1 is
            common.
        neck: what stands between embedding and classifier: `"none"` or `"batch-norm"`.
        generator: source of the starting classifier: normal, rows of length about 1.

    >>> from uncollapse.losses.triplet import TripletLoss
    >>> loss = IdentityLoss(TripletLoss(margin=0.2), num_classes=2, dim=2)
    >>> loss.classifier.data = torch.zeros(2, 2)
    >>> loss(torch.zeros(4, 2), [0, 0, 1, 1])  # 0.2 + log 2
    tensor(0.8931, grad_fn=<AddBackward0>)
    """

    neck = Choice(*NECKS)
    weight = Number(0.0)
    label_smoothing = Number(0.0, 1.0)
    labels_needed = True

    def __init__(
        self,
        loss: Loss,
        *,
        num_classes: int,
        dim: int,
        weight: float = 1.0,
        label_smoothing: float = 0.0,
        neck: str = "none",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(loss)
        shape = check_int("num_classes", num_classes, 2), check_int("dim", dim)
        self.weight, self.label_smoothing, self.neck = weight, label_smoothing, neck
        drawn = torch.randn(shape, generator=check_generator("generator", generator))
        self.classifier = nn.Parameter(drawn / math.sqrt(dim))
        self.names = NamedClasses(shape[0])

    def numbered(self, labels: ArrayLike | None) -> ArrayLike | None:
        """Labels as rows of the classifier; those of the inner loss's parameters are the same."""
        return self.names.numbers(self.inner.numbered(labels))

    def value(self, batch: Batch, tuples: Named) -> Tensor:
        """The loss of a checked batch."""
        identity = self._cross_entropy(batch)
        return self.inner.value(batch, tuples) + self.weight * identity

    def _cross_entropy(self, batch: Batch) -> Tensor:
        classes, dim = self.classifier.shape
        check_columns(batch.frame.dim, dim, classes, "the classifier has")
        own = parameter_rows(batch.labels, batch.label_range, classes, "labels")
        rows = batch.rows[: batch.count]
        if self.neck == "batch-norm":  # near a collapse float32 has no digits left for it
            rows = standardised(graph_rows(batch, normalize=False)[: batch.count]).to(rows.dtype)
        if rows.is_inference():  # autograd keeps no such tensor for the classifier's gradient
            rows = rows.clone()
        logits = rows @ self.classifier.to(rows.device, rows.dtype).T
        return functional.cross_entropy(logits, own, label_smoothing=self.label_smoothing)
