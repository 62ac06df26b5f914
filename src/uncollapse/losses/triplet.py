"""Triplet loss: HNM (4), EPS §3 (its D_{p,n} is a misprint of D_{a,n}), Schroff et al. 2015."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from uncollapse._base.check import InputError, check_choice, check_number
from uncollapse.distances.batch import Batch
from uncollapse.distances.frame import on_host
from uncollapse.distances.pairwise import pairwise_distances
from uncollapse.losses._all_triplets import all_triplets, mean_distance
from uncollapse.losses._classwise import ByClass
from uncollapse.losses._mined import mined_triplets
from uncollapse.losses.base import Elements, Loss, attach, graph_rows, pair_distances
from uncollapse.mining.miner import Miner
from uncollapse.mining.tuples import Pairs, Triplets

__all__ = ["TripletLoss", "triplet_loss"]

_EVERY = Miner("all", "all")  # says, once, why a batch has no triplet


def triplet_loss(near: Tensor, far: Tensor, margin: float, *, soft: bool = False) -> Tensor:
    """[d(a, p) - d(a, n) + margin]₊ of triplets at these distances, or its softplus: HNM (4).

    >>> triplet_loss(torch.tensor([1.0, 0.3]), torch.tensor([0.5, 0.9]), margin=0.2)
    tensor([0.7000, 0.0000])
    """
    excess = near - far + margin
    return functional.softplus(excess) if soft else excess.clamp(min=0.0)


class TripletLoss(Loss):
    """[d(a, p) - d(a, n) + margin]₊ over triplets of a batch.

    `miner=None` takes **all** triplets, exactly, without listing them: at most three N × N
    products and O(N²·min(K, log K)) comparisons, memory O(N²) up to N = 2048 and O(N·K) beyond.
    With a miner, or with tuples, the triplets they name, by differences. The miner sees the
    distances the loss sees: normalised if `normalize`, over their mean if `scale_free`.
    `Miner("all", "all")`, also with `keep="violating"` or `"semihard"` at the loss's own margin, is
    not listed either.

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
        distance: `"euclidean"`; `"squared"`: d² in place of d; `"cosine"`: 1 - cos, of normalised
            embeddings. The last two list the triplets. A miner chooses by the Euclidean distance,
            which orders pairs alike; its own margin is Euclidean too.
        swap: take d(p, n) in place of d(a, n) where that is smaller (Balntas et al. 2016).

    >>> z = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [1.0, 2.0]], requires_grad=True)
    >>> loss = TripletLoss(margin=1.5, miner=Miner("easy", "hard"))(z, [0, 0, 1, 1])
    >>> loss.backward()
    >>> loss.item(), z.grad[0].tolist()
    (0.5, [-0.5, 0.5])
    """

    reductions = ("mean", "nonzero", "max")

    def __init__(
        self,
        *,
        margin: float = 0.2,
        miner: nn.Module | None = None,
        soft: bool = False,
        scale_free: bool = False,
        normalize: bool = False,
        reduction: str = "mean",
        distance: str = "euclidean",
        swap: bool = False,
    ) -> None:
        check_choice("distance", distance, ("euclidean", "squared", "cosine"))
        if distance != "euclidean" and scale_free:
            raise InputError("distance", repr(distance), "'euclidean' where scale_free is set")
        normalize = normalize or distance == "cosine"
        super().__init__(miner=miner, normalize=normalize, reduction=reduction)
        self.margin = check_number("margin", margin, 0.0)
        self.soft, self.scale_free, self.distance, self.swap = soft, scale_free, distance, swap

    def listed(self, batch: Batch, tuples: Triplets | Pairs | None) -> Elements:
        """One entry per triplet, listed; `pull` is d(a, p)."""
        rows = graph_rows(batch, self.normalize)
        if self.scale_free:
            rows = _over_mean(rows)
        if tuples is None and self.miner is None and self.reduction == "max":
            # The hardest of all triplets is the hardest of those with each anchor's hardest pairs.
            tuples = Miner("hard", "hard").mine(batch)
        anchor, positive, negative = self.triplets(self._seen(batch), tuples)
        ends = [positive, negative, negative] if self.swap else [positive, negative]
        starts = [anchor, anchor, positive][: len(ends)]
        far = self._measured(rows, torch.cat(starts), torch.cat(ends)).view(len(ends), -1)
        near, far = far[0], far[1:].amin(0)
        loss = triplet_loss(near, far, self.margin, soft=self.soft)
        return Elements(loss.to(batch.rows.dtype), near.detach(), anchor)

    def reduce(self, elements: Elements) -> Tensor:
        """As `reduction` says."""
        if self.reduction == "max":
            return elements.loss.max() if len(elements.loss) else elements.loss.sum()
        return super().reduce(elements)

    # The fast way: value and gradient together, off the graph.

    def value(self, batch: Batch, tuples: Triplets | Pairs | None) -> Tensor:
        """The loss of a checked batch, without listing triplets where that can be."""
        labelled = batch.labels is not None and not batch.offset
        if self.swap or self.distance != "euclidean" or (self.scale_free and not labelled):
            return super().value(batch, tuples)
        whole = self._whole() if tuples is None and labelled else None
        if whole is not None and batch.classes.triplets == 0:
            tuples = (self.miner if isinstance(self.miner, Miner) else _EVERY).mine(batch)
            whole = None
        with torch.no_grad():
            classes = ByClass.of(batch) if whole is not None or self.scale_free else None
            scale = None
            if self.scale_free and classes is not None and not batch.frame.collapsed:
                scale = mean_distance(classes)
                mean = float(scale[0]) if on_host(scale[0]) else scale[0]
                batch = replace(batch, frame=batch.frame.seen_as(1 / mean))
            if whole is not None and classes is not None:
                value, gradient = all_triplets(
                    classes,
                    batch.frame.unit,
                    batch.classes.triplets,
                    self.margin,
                    soft=self.soft,
                    **whole,
                )
            else:
                chosen = self._chosen(batch, tuples)
                tuples = Triplets(chosen.anchor, *(row - batch.offset for row in chosen[1:]))
                value, gradient = mined_triplets(
                    batch.frame, chosen, self.margin, soft=self.soft, reduction=self.reduction
                )
            if scale is not None:
                gradient = _through_mean(batch, gradient, *scale)
        return attach(batch, value, gradient, lambda again: Loss.value(self, again, tuples))

    def _chosen(self, batch: Batch, tuples: Triplets | Pairs | None) -> Triplets:
        if tuples is None and self.miner is None:  # only the hardest of all is left to be asked for
            tuples = Miner("hard", "hard").mine(batch)
        return self.triplets(batch, tuples)

    def _seen(self, batch: Batch) -> Batch:
        """The batch as its miner sees it."""
        if not self.scale_free or batch.frame.collapsed:
            return batch
        wide = batch.frame.wide
        mean = pairwise_distances(wide).sum() / (len(wide) * (len(wide) - 1))
        return replace(batch, frame=batch.frame.seen_as(1 / mean))

    def _whole(self) -> dict[str, bool] | None:
        """How to charge all triplets without listing them; None if they must be named."""
        keep = "all"
        if self.reduction == "max":
            return None
        if self.miner is not None:
            if not isinstance(self.miner, Miner) or self.miner.pool is not None:
                return None
            if (self.miner.positives, self.miner.negatives) != ("all", "all"):
                return None
            keep = self.miner.keep
        if keep == "all":
            return {"nonzero": self.reduction == "nonzero"}
        if self.soft or keep == "hard" or getattr(self.miner, "margin", None) != self.margin:
            return None
        # Kept are triplets with a positive loss, so both means are the same.
        return {"nonzero": True, "window": keep == "semihard"}

    def _measured(self, rows: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if self.distance == "euclidean":
            return pair_distances(rows, i, j)
        square = pair_distances(rows, i, j, squared=True)
        return square / 2 if self.distance == "cosine" else square


def _over_mean(rows: Tensor) -> Tensor:
    """Rows over their mean distance, on the graph; unchanged if all are equal."""
    pairs = max(len(rows) * (len(rows) - 1), 1)
    mean = pairwise_distances(rows).sum() / pairs
    return (rows - rows[0].detach()) / torch.where(mean == 0, torch.ones_like(mean), mean)


def _through_mean(batch: Batch, gradient: Tensor, mean: Tensor, slope: Tensor) -> Tensor:
    """Gradient by the rows of a loss of r / μ(r): dL/dr = (G - <G, r>/μ ∇μ) / μ, rows = unit · r.

    By Euler's identity its drift <Z_c, ∇L> is 0: there is no pull towards, or away from, a point.
    """
    radial = (gradient * batch.frame.wide).sum() / mean
    limit = torch.finfo(batch.rows.dtype).max  # 1 / a tiny spread may not fit: stay finite
    whole = (gradient - radial * slope) / mean * batch.frame.zoom
    return whole.clamp_(-limit, limit)
