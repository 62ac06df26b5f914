"""Cross-entropy beside a metric loss, the usual re-ID recipe: Luo et al. 2019, torchreid.

Label smoothing is that of Szegedy et al. 2016, §7.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from uncollapse._base.arrays import ArrayLike
from uncollapse._base.check import InputError, check_int
from uncollapse.distances.batch import Batch
from uncollapse.losses._named_classes import NamedClasses, check_columns
from uncollapse.losses.base import Elements, Loss, Wrapper, graph_rows
from uncollapse.losses.margin import parameter_rows
from uncollapse.mining.tuples import Pairs, Triplets

__all__ = ["NECKS", "IdentityLoss", "smoothed_cross_entropy", "standardised"]

NECKS = ("none", "batch-norm")
_EPSILON = 1e-5  # of batch norm, as torch has it


def smoothed_cross_entropy(logits: Tensor, classes: Tensor, smoothing: float) -> Tensor:
    """-Σ_k q_k log softmax(logits)_k, q = 1 - ε + ε/C for the own class, ε/C for each other.

    `logits` `[n, C]`, `classes` `[n]`; one entry per row.

    >>> smoothed_cross_entropy(torch.tensor([[0.0, 0.0]]), torch.tensor([1]), 0.1)
    tensor([0.6931])
    """
    own = logits.gather(1, classes[:, None])[:, 0]
    return logits.logsumexp(1) - (1 - smoothing) * own - smoothing * logits.mean(1)


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
    dispute the scale. Labels are 0 to `num_classes` - 1, or at most so many names, which are
    numbered as they first come and saved with the loss.

    Needs what the inner loss needs, and labels with tuples too. The cross-entropy is the mean over
    all samples of the batch: tuples, miners and references are the inner loss's alone. The miner,
    and every other setting of the inner loss, is this one's too. There are no `elements`, as the
    cross-entropy is of no tuple: to trim, put `TrimmedLoss` inside.

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
    >>> loss.margin
    0.2
    """

    own = (*Wrapper.own, "weight", "label_smoothing", "neck", "classifier", "names")
    words: ClassVar = {"neck": NECKS}
    numbers: ClassVar = {"weight": (0.0, math.inf), "label_smoothing": (0.0, 1.0)}
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
        rows = torch.randn(shape, generator=generator) / math.sqrt(dim)
        self.classifier = nn.Parameter(rows)
        self.names = NamedClasses(shape[0])

    def numbered(self, labels: ArrayLike | None) -> ArrayLike | None:
        """Labels as rows of the classifier; those of the inner loss's parameters are the same."""
        return self.names.numbers(self.inner.numbered(labels))

    def value(self, batch: Batch, tuples: Triplets | Pairs | None) -> Tensor:
        """The loss of a checked batch."""
        identity = self._cross_entropy(batch)
        return self.inner.value(batch, tuples) + self.weight * identity

    def listed(self, batch: Batch, tuples: Triplets | Pairs | None) -> Elements:
        """Refused: the cross-entropy is of no tuple."""
        allowed = "a loss of tuples alone: ask the inner loss, or IdentityLoss(TrimmedLoss(...))"
        raise InputError("loss", "IdentityLoss, to list the tuples of", allowed)

    def _cross_entropy(self, batch: Batch) -> Tensor:
        classes, dim = self.classifier.shape
        check_columns(batch.frame.dim, dim, classes, "the classifier has")
        own = parameter_rows(batch.labels, batch.label_range, classes, "labels")
        rows = batch.rows[: batch.count]
        if self.neck == "batch-norm":  # near a collapse float32 has no digits left for it
            rows = standardised(graph_rows(batch, sphere=False)[: batch.count]).to(rows.dtype)
        if rows.is_inference():  # autograd keeps no such tensor for the classifier's gradient
            rows = rows.clone()
        logits = rows @ self.classifier.to(rows.device, rows.dtype).T
        return smoothed_cross_entropy(logits, own, self.label_smoothing).mean()
