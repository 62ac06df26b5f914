"""Triplet loss: HNM (4), EPS §3 (its D_{p,n} is a misprint of D_{a,n}), Schroff et al. 2015."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from uncollapse._base.check import InputError, check_choice
from uncollapse.distances.batch import Batch
from uncollapse.distances.frame import Frame, on_host
from uncollapse.distances.tiles import known_distances
from uncollapse.losses.all_triplets import (
    FORMS,
    HARDEST,
    all_triplets,
    hardest_negative_mean,
    mean_distance,
    over_mean,
    seen_by_miner,
    through_mean,
)
from uncollapse.losses.base import Elements, Loss, attach, graph_rows, mean_or_zero, pair_distances
from uncollapse.losses.classwise import ByClass
from uncollapse.mining.miner import Miner
from uncollapse.mining.tuples import Pairs, Triplets

__all__ = ["TripletLoss", "triplet_loss"]

_EVERY = Miner("all", "all")  # says, once, why a batch has no triplet
_HARDEST = Miner("hard", "hard")


def triplet_loss(near: Tensor, far: Tensor, margin: float, *, soft: bool = False) -> Tensor:
    """[d(a, p) - d(a, n) + margin]₊ of triplets at these distances, or its softplus: HNM (4).

    >>> triplet_loss(torch.tensor([1.0, 0.3]), torch.tensor([0.5, 0.9]), margin=0.2)
    tensor([0.7000, 0.0000])
    """
    excess = near - far + margin
    return functional.softplus(excess) if soft else excess.relu()  # at 0 its derivative is 0


class TripletLoss(Loss):
    """[d(a, p) - d(a, n) + margin]₊ over triplets of a batch.

    `miner=None` takes **all** triplets, exactly, without listing them: at most three N × N
    products and O(N²·min(K, log K)) comparisons, memory O(N²) up to N = 2048 and O(N·K) beyond.
    With a miner, or with tuples, the triplets they name, by differences. The miner sees the
    distances the loss sees: normalised if `normalize`, over one of them if `scale_free`.
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
        scale_free: divide all distances by the batch's mean pairwise distance (with references by
            that to the references), inside the gradient: scaling the embedding then changes
            nothing, and its radial drift <Z_c, ∇L> is 0. The loss is finite at any spread; when all
            embeddings coincide the gradient is 0. Costs three more N × N products. True or
            `"mean"`; or `"hardest-negative"`: by the mean distance of the anchors to their hardest
            negatives, inside the gradient too, as Quaterion does. That is scale-free as well, but
            where classes touch the divisor is small beside the spread, and the loss and its
            gradient grow without bound. Needs labels, also with tuples.
        normalize: divide embeddings by their norms first (a zero embedding stays 0).
        reduction: `"mean"` over the triplets; `"nonzero"`: over those with a positive loss (PML's
            default), which for `soft` are all: a softplus that rounds to 0 is counted;
            `"max"`: the hardest alone, which is HNM's L_α (Theorem 3.3) when unmined.
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
    words: ClassVar = {"distance": ("euclidean", "squared", "cosine")}
    numbers: ClassVar = {"margin": (0.0, math.inf)}

    def __init__(
        self,
        *,
        margin: float = 0.2,
        miner: nn.Module | None = None,
        soft: bool = False,
        scale_free: bool | str = False,
        normalize: bool = False,
        reduction: str = "mean",
        distance: str = "euclidean",
        swap: bool = False,
    ) -> None:
        super().__init__(miner=miner, normalize=normalize, reduction=reduction)
        self.margin, self.distance, self.scale_free = margin, distance, scale_free
        self.soft, self.swap = soft, swap

    @property
    def labels_needed(self) -> bool:  # type: ignore[override]
        """To know the hardest negatives."""
        return bool(self.scale_free == HARDEST)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "scale_free" and isinstance(value, str):
            check_choice(name, value, FORMS)
            value = value if value == HARDEST else True
        super().__setattr__(name, value)
        both = vars(self)
        if both.get("scale_free") and both.get("distance", "euclidean") != "euclidean":
            self.scale_free = False
            raise InputError("distance", repr(self.distance), "'euclidean' where scale_free is set")

    def listed(self, batch: Batch, tuples: Triplets | Pairs | None) -> Elements:
        """One entry per triplet, listed; `pull` is d(a, p)."""
        rows, reach = graph_rows(batch, self.normalize), batch.reach
        over: Tensor | None = None
        if self.scale_free == HARDEST:
            over = hardest_negative_mean(batch, rows)
            seen = batch.frame.seen_as(batch.frame.unit / over.detach())
            batch = replace(batch, frame=seen)
        elif self.scale_free:
            # Over their mean distance rows reach about as far as 1, unless all coincide.
            rows, reach = over_mean(batch, rows), float(not batch.frame.collapsed)
            batch = seen_by_miner(batch)
        anchor, positive, negative = self.triplets(batch, tuples)
        ends = [positive, negative, negative] if self.swap else [positive, negative]
        starts = [anchor, anchor, positive][: len(ends)]
        offset = 0 if self.swap else batch.offset
        distance = self._measured(rows, torch.cat(starts), torch.cat(ends), reach, offset)
        distance = distance if over is None else distance / over
        near, *others = distance.view(len(ends), -1)
        far = torch.stack(others).amin(0)
        loss = triplet_loss(near, far, self.margin, soft=self.soft)
        return Elements(loss.to(batch.rows.dtype), near.detach(), anchor)

    def reduce(self, elements: Elements) -> Tensor:
        """As `reduction` says."""
        if self.reduction == "max":
            return elements.loss.max() if len(elements.loss) else elements.loss.sum()
        return mean_or_zero(elements.loss) if self.soft else super().reduce(elements)

    def mined(self, batch: Batch) -> Triplets | Pairs | None:
        """What the miner names. Without one the hardest of all triplets is a batch-hard one."""
        if self.miner is None and self.reduction == "max":
            return _HARDEST.mine(batch)
        return super().mined(batch)

    def _measured(self, rows: Tensor, i: Tensor, j: Tensor, reach: float, offset: int) -> Tensor:
        if self.distance == "euclidean":
            return pair_distances(rows, i, j, reach=reach, offset=offset)
        square = pair_distances(rows, i, j, reach=reach, squared=True, offset=offset)
        return square / 2 if self.distance == "cosine" else square

    # The fast way: value and gradient together, off the graph.

    def value(self, batch: Batch, tuples: Triplets | Pairs | None) -> Tensor:
        """The loss of a checked batch, without listing triplets where that can be."""
        labelled = batch.labels is not None and not batch.offset
        listed = self.swap or self.distance != "euclidean" or self.scale_free == HARDEST
        if listed or (self.scale_free and not labelled):
            return super().value(batch, tuples)
        whole = self._whole() if tuples is None and labelled else None
        if whole is not None and batch.classes.triplets == 0:
            whole, tuples = None, self._why_nothing(batch)
        with torch.no_grad():
            classes = ByClass.of(batch) if whole is not None or self.scale_free else None
            scale = None
            if self.scale_free and classes is not None and not batch.frame.collapsed:
                scale = mean_distance(classes)
                mean = float(scale[0]) if on_host(scale[0]) else scale[0]
                batch = replace(batch, frame=batch.frame.seen_as(1 / mean))
            if whole is not None and classes is not None:
                rest = (batch.frame.unit, batch.classes.triplets, self.margin)
                value, gradient = all_triplets(classes, *rest, soft=self.soft, **whole)
            else:
                chosen = self.triplets(batch, tuples)
                tuples = Triplets(chosen.anchor, *(row - batch.offset for row in chosen[1:]))
                value, gradient = mined_triplets(
                    batch.frame, chosen, self.margin, soft=self.soft, reduction=self._counted
                )
            if scale is not None:
                gradient = through_mean(batch, gradient, *scale)
        return attach(batch, value, gradient, lambda again: Loss.value(self, again, tuples))

    @property
    def _counted(self) -> str:
        """The reduction; a softplus is above 0 for every triplet, whatever float32 makes of it."""
        return "mean" if self.soft and self.reduction == "nonzero" else self.reduction

    def _why_nothing(self, batch: Batch) -> Triplets:
        return (self.miner if isinstance(self.miner, Miner) else _EVERY).mine(batch)

    def _whole(self) -> dict[str, bool] | None:
        """How to charge all triplets without listing them; None if they must be named."""
        keep = "all"
        if self.reduction == "max":
            return None
        if self.miner is not None:
            if not isinstance(self.miner, Miner) or not self.miner.sees_all:
                return None
            if (self.miner.positives, self.miner.negatives) != ("all", "all"):
                return None
            keep = self.miner.keep
        if keep == "all":
            return {"nonzero": self._counted == "nonzero"}
        if self.soft or keep == "hard" or getattr(self.miner, "margin", None) != self.margin:
            return None
        # Kept are triplets with a positive loss, so both means are the same.
        return {"nonzero": True, "window": keep == "semihard"}


def mined_triplets(
    frame: Frame, triplets: Triplets, margin: float, *, soft: bool, reduction: str
) -> tuple[Tensor, Tensor]:
    """Loss of the triplets given and its gradient by `frame.unit` times the frame's rows.

    O(T·d), or O(N²) where T is larger than that.
    """
    rows = frame.wide
    gradient = torch.zeros_like(rows)
    if len(triplets.anchor) == 0:
        return rows.new_zeros(()), gradient
    if 2 * len(triplets.anchor) > len(rows) ** 2:
        return _many(frame, triplets, margin, soft, reduction)
    if frame.kernels is not None:
        value = frame.kernels.triplet_charge(
            rows.numpy(),
            *(index.numpy() for index in triplets),
            frame.unit,
            margin,
            soft,
            reduction == "nonzero",
            reduction == "max",
            gradient.numpy(),
        )
        return rows.new_tensor(value), gradient
    anchor, positive, negative = triplets
    middle = rows[anchor]
    pull, push = middle - rows[positive], middle - rows[negative]
    near, far = (torch.linalg.vector_norm(gap, dim=1) for gap in (pull, push))
    value, weight = _reduced((near - far) * frame.unit + margin, soft, reduction)
    pull *= _over(weight, near)[:, None]
    push *= _over(weight, far)[:, None]
    gradient.index_add_(0, positive, pull, alpha=-1).index_add_(0, negative, push)
    return value, gradient.index_add_(0, anchor, pull.sub_(push))


def _many(
    frame: Frame, triplets: Triplets, margin: float, soft: bool, reduction: str
) -> tuple[Tensor, Tensor]:
    """The same by way of all N² distances, for more triplets than there are pairs."""
    anchor, positive, negative = triplets
    distance = known_distances(frame.wide, reach=0.75)
    near, far = distance[anchor, positive], distance[anchor, negative]
    value, weight = _reduced((near - far) * frame.unit + margin, soft, reduction)
    slope = torch.zeros_like(distance)
    slope.index_put_((anchor, positive), _over(weight, near), accumulate=True)
    slope.index_put_((anchor, negative), -_over(weight, far), accumulate=True)
    slope += slope.T.clone()
    return value, slope.sum(1, keepdim=True) * frame.wide - slope @ frame.wide


def _reduced(excess: Tensor, soft: bool, reduction: str) -> tuple[Tensor, Tensor]:
    """Reduced loss of d_ap - d_an + margin of each triplet, and its derivative."""
    losses = triplet_loss(excess, excess.new_zeros(()), 0.0, soft=soft)
    slope = excess.sigmoid() if soft else (excess > 0).to(excess.dtype)
    if reduction == "max":
        worst = losses.argmax(dim=0, keepdim=True)
        only = torch.zeros_like(slope).index_copy_(0, worst, slope[worst])
        return losses[worst][0], only
    if reduction == "nonzero":
        tuples = (losses > 0).sum().clamp(min=1)
        return losses.sum() / tuples, slope / tuples
    return losses.mean(), slope / len(losses)


def _over(weight: Tensor, distance: Tensor) -> Tensor:
    """weight / distance, 0 at distance 0: the subgradient taken there."""
    return torch.where(distance > 0, weight / distance, torch.zeros_like(weight))
