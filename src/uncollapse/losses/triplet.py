"""Triplet loss: HNM (4), EPS §3 (its D_{p,n} is a misprint of D_{a,n}), Schroff et al. 2015."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from uncollapse._base.arrays import ArrayLike, points
from uncollapse._base.check import check_choice, check_number
from uncollapse._base.classes import ClassLayout
from uncollapse.distances import pairwise_distances
from uncollapse.losses._all_triplets import Charge, all_triplets
from uncollapse.losses._classwise import SortedClasses
from uncollapse.losses._elements import (
    Elements,
    IndicesTuple,
    MinerLike,
    TupleLoss,
    mean_or_zero,
    nonzero_mean,
)
from uncollapse.losses._frame import Frame, attach, full_precision, unit_rows
from uncollapse.losses._hardest import hardest_pairs
from uncollapse.losses._mined import mined_triplets
from uncollapse.losses._pairs import pair_distances
from uncollapse.losses._paths import is_hardest, whole_batch
from uncollapse.losses._scale_free import scale_free as over_mean_distance
from uncollapse.mining import Miner, Triplets, as_triplets

__all__ = ["TripletLoss", "triplet_loss"]

_REDUCTIONS = ("mean", "nonzero", "max")
_EVERY = Miner("all", "all")  # says, once, why a batch has no triplet


def triplet_loss(
    embeddings: Tensor,
    labels: ArrayLike,
    indices_tuple: IndicesTuple | None = None,
    *,
    margin: float = 0.2,
    miner: MinerLike | None = None,
    soft: bool = False,
    scale_free: bool = False,
    normalize: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Triplet loss of a batch; see `TripletLoss` for the meaning of each argument.

    >>> z = torch.tensor([[0.0], [1.0], [0.5]])
    >>> triplet_loss(z, [0, 0, 1], margin=0.2)  # both: 1 - 0.5 + 0.2
    tensor(0.7000)
    """
    check_number("margin", margin, 0.0)
    check_choice("reduction", reduction, _REDUCTIONS)
    x = points(embeddings, "embeddings")
    layout = ClassLayout.of(labels, len(x))
    with torch.no_grad(), full_precision(x):
        frame = Frame.of(x, normalize)
        whole = None if indices_tuple is not None else whole_batch(miner, margin, soft, reduction)
        classes = None
        if whole is not None or scale_free:
            classes = SortedClasses.of(layout, x.device)

        def charge(seen: Frame) -> Charge:
            if whole is not None and classes is not None:
                if classes.triplets == 0:
                    (miner if isinstance(miner, Miner) else _EVERY)(x, labels)
                return all_triplets(
                    seen, classes, margin, soft=soft, window=whole.window, nonzero=whole.nonzero
                )
            chosen = None
            if indices_tuple is None and is_hardest(miner):
                chosen = hardest_pairs(seen, layout, miner.positives)
            if chosen is None or len(chosen.anchor) == 0:
                chosen = _triplets(seen.y, labels, indices_tuple, miner, reduction)
            return mined_triplets(seen, chosen, margin, soft=soft, reduction=reduction)

        if scale_free and classes is not None:
            value, gradient = over_mean_distance(frame, classes, charge)
        else:
            value, gradient = charge(frame)
        gradient = frame.pull_back(gradient)
        if scale_free:  # 1 / a tiny spread may not fit: stay finite
            limit = torch.finfo(x.dtype).max
            gradient = gradient.clamp(-limit, limit)
    return attach(x, value, gradient)


class TripletLoss(TupleLoss):
    """[d(a, p) - d(a, n) + margin]₊ over triplets of a batch.

    `miner=None` charges **all** triplets, exactly, without listing them: at most three N × N
    products and O(N²·min(K, log K)) comparisons, memory O(N²) up to N = 2048 and O(N·K) beyond.
    With a miner, or an `indices_tuple`, the triplets it names, by direct differences. The miner
    sees the distances the loss sees:
    normalised if `normalize`, over their mean if `scale_free`. `Miner("all", "all")`, also with
    `keep="violating"` or `"semihard"` at the loss's own margin, is not listed either.

    Needs a class with two samples, and a second class. Not normalised unless asked: HNM does not,
    EPS and FaceNet do.

    Siblings: `MarginLoss` compares both pairs to a learned boundary instead of to each other;
    `ContrastiveLoss` to fixed ones; `MultiSimilarityLoss` and `SupConLoss` weigh all negatives.

    Collapse: when all embeddings coincide the loss is `margin` (0.6931 for `soft` with margin 0)
    and the gradient 0. Hard positives with hard negatives drive it there: shrinking lowers the loss
    whenever d_ap > d_an. `Miner("easy", ...)`, semi-hard negatives, or `scale_free=True` do not.

    Args:
        margin: at least 0; HNM's main setting is 0.
        miner: chooses the triplets.
        soft: softplus in place of the hinge: log(1 + exp(d_ap - d_an + margin)). Over all triplets
            this takes O(N²K) exponentials.
        scale_free: divide all distances by the batch's mean pairwise distance, inside the gradient:
            scaling the embedding then changes nothing, and its radial drift <Z_c, ∇L> is 0. The
            loss is finite at any spread; when all embeddings coincide the gradient is 0. Costs
            three more N × N products.
        normalize: divide embeddings by their norms first (a zero embedding stays 0).
        reduction: `"mean"` over the triplets; `"nonzero"`: over those with a positive loss (PML's
            default); `"max"`: the hardest alone, which is HNM's L_α (Theorem 3.3) when unmined.

    >>> from uncollapse.mining import Miner
    >>> z = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [1.0, 2.0]], requires_grad=True)
    >>> loss = TripletLoss(margin=1.5, miner=Miner("easy", "hard"))(z, [0, 0, 1, 1])
    >>> loss.backward()
    >>> loss.item(), z.grad[0].tolist()
    (0.5, [-0.5, 0.5])
    """

    def __init__(
        self,
        margin: float = 0.2,
        miner: MinerLike | None = None,
        soft: bool = False,
        scale_free: bool = False,
        normalize: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        check_choice("reduction", reduction, _REDUCTIONS)
        self.margin, self.miner = check_number("margin", margin, 0.0), miner
        self.soft, self.scale_free, self.normalize = soft, scale_free, normalize
        self.reduction = reduction

    def forward(
        self, embeddings: Tensor, labels: ArrayLike, indices_tuple: IndicesTuple | None = None
    ) -> Tensor:
        """Loss of a batch; `indices_tuple` (ours or PML's) takes the place of the miner."""
        return triplet_loss(
            embeddings,
            labels,
            indices_tuple,
            margin=self.margin,
            miner=self.miner,
            soft=self.soft,
            scale_free=self.scale_free,
            normalize=self.normalize,
            reduction=self.reduction,
        )

    def elements(
        self, embeddings: Tensor, labels: ArrayLike, indices_tuple: IndicesTuple | None = None
    ) -> Elements:
        """One entry a triplet, listed; `pull` is d(a, p)."""
        x = points(embeddings, "embeddings")
        y = unit_rows(x, self.normalize)
        if self.scale_free:
            y = _over_mean(y)
        anchor, positive, negative = _triplets(y, labels, indices_tuple, self.miner, "mean")
        distance = pair_distances(y, anchor.repeat(2), torch.cat([positive, negative]))
        near, far = distance[: len(anchor)], distance[len(anchor) :]
        excess = near - far + self.margin
        loss = functional.softplus(excess) if self.soft else excess.clamp(min=0.0)
        return Elements(loss.to(x.dtype), near.detach(), anchor)

    def reduce(self, elements: Elements) -> Tensor:
        """As `reduction` says."""
        if self.reduction == "max":
            return elements.loss.max() if len(elements.loss) else elements.loss.sum()
        return (nonzero_mean if self.reduction == "nonzero" else mean_or_zero)(elements.loss)


def _triplets(
    y: Tensor,
    labels: ArrayLike,
    indices_tuple: IndicesTuple | None,
    miner: MinerLike | None,
    reduction: str,
) -> Triplets:
    if indices_tuple is None and (miner is not None or reduction == "max"):
        # The hardest of all triplets is the hardest of those with each anchor's hardest pairs.
        indices_tuple = (miner or Miner("hard", "hard"))(y.detach(), labels)
    triplets = as_triplets(indices_tuple, labels)
    if indices_tuple is None and len(triplets.anchor) == 0:
        _EVERY(y.detach(), labels)
    return Triplets(*(index.to(y.device, torch.int64) for index in triplets))


def _over_mean(y: Tensor) -> Tensor:
    """Rows over their mean distance, on the graph; unchanged if all are equal."""
    pairs = max(len(y) * (len(y) - 1), 1)
    mean = pairwise_distances(y).sum() / pairs
    return y if float(mean.detach()) == 0.0 else (y - y[0].detach()) / mean
