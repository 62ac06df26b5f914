"""Triplet loss: HNM (4), EPS §3 (its D_{p,n} is a misprint of D_{a,n}), Schroff et al. 2015."""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from uncollapse._base.check import InputError, Setting, check_bool, check_choice
from uncollapse.losses.base import (
    Batch,
    Choice,
    DistanceChoice,
    Elements,
    LossInfo,
    Named,
    Number,
    TupleLoss,
)
from uncollapse.losses.fast_triplets import triplet_value
from uncollapse.losses.on_graph import HARDEST, graph_rows, mean_or_zero, pair_distances, scale
from uncollapse.mining.miner import Miner

_HARDEST = Miner("hard", "hard")


def triplet_loss(near: Tensor, far: Tensor, margin: float, *, soft: bool = False) -> Tensor:
    """[d(a, p) - d(a, n) + margin]₊ of triplets at these distances, or its softplus: HNM (4).

    >>> triplet_loss(torch.tensor([1.0, 0.3]), torch.tensor([0.5, 0.9]), margin=0.2)
    tensor([0.7000, 0.0000])
    """
    excess = near - far + margin
    return functional.softplus(excess) if soft else excess.relu()  # at 0 its derivative is 0


class TripletLoss(TupleLoss):
    """[d(a, p) - d(a, n) + margin]₊ over triplets of a batch.

    `miner=None` takes **all** triplets, exactly, without listing them: at most three N × N
    products and O(N²·K) comparisons, memory O(N²) up to N = 2048 and O(N·K) beyond.
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

    info = LossInfo(
        "triplet",
        {
            "triplet, margin 0.2": {"margin": 0.2},
            "triplet, margin 0": {"margin": 0.0},
            "triplet, soft": {"margin": 0.0, "soft": True},
            "triplet, scale-free": {"margin": 0.2, "scale_free": True},
            "triplet, normalised": {"margin": 0.2, "normalize": True},
        },
        pml="TripletMarginLoss",
    )
    resting = "ln(1 + exp(margin)) if soft else margin"
    reduction = Choice("mean", "nonzero", "max")
    distance = DistanceChoice()
    margin = Number(0.0)
    soft = Setting(check_bool)
    swap = Setting(check_bool)

    def __init__(
        self,
        *,
        margin: float = 0.2,
        miner: nn.Module | None = None,
        soft: bool = False,
        scale_free: bool | Literal["mean", "hardest-negative"] = False,
        normalize: bool = False,
        reduction: str = "mean",
        distance: str = "euclidean",
        swap: bool = False,
    ) -> None:
        super().__init__(miner=miner, normalize=normalize, reduction=reduction)
        self.margin, self.distance, self.scale_free = margin, distance, scale_free
        self.soft, self.swap = soft, swap

    @property
    def scale_free(self) -> bool | str:
        """False, True (by the mean distance) or `"hardest-negative"`."""
        return self._scale_free

    @scale_free.setter
    def scale_free(self, value: bool | str) -> None:
        if isinstance(value, str):
            value = check_choice("scale_free", value, ("mean", HARDEST)) == "mean" or value
        else:
            value = check_bool("scale_free", value)
        if value and self.distance != "euclidean":
            raise InputError("distance", repr(self.distance), "'euclidean' where scale_free is set")
        self._scale_free = value

    @property
    def labels_needed(self) -> bool:  # type: ignore[override]
        """To know the hardest negatives."""
        return self.scale_free == HARDEST

    def listed(self, batch: Batch, tuples: Named) -> Elements:
        """One entry per triplet, listed; `pull` is d(a, p)."""
        rows = graph_rows(batch, self.normalize)
        divisor = torch.ones_like(rows[0, 0])
        if self.scale_free:  # the miner sees what the loss sees
            divisor = scale(batch, rows, self.scale_free)
            frame = batch.frame.seen_as(batch.frame.unit / divisor.detach())
            batch = replace(batch, frame=frame)
        anchor, positive, negative = self.triplets(batch, tuples)
        ends = [positive, negative, negative] if self.swap else [positive, negative]
        starts = [anchor, anchor, positive][: len(ends)]
        distance = pair_distances(
            rows,
            torch.cat(starts),
            torch.cat(ends),
            reach=batch.reach,
            kind=self.distance,
            offset=0 if self.swap else batch.offset,
        )
        near, *others = (distance / divisor).view(len(ends), -1)
        far = torch.stack(others).amin(0)
        loss = triplet_loss(near, far, self.margin, soft=self.soft)
        return Elements(loss.to(batch.rows.dtype), near.detach(), anchor)

    def reduce(self, elements: Elements) -> Tensor:
        """As `reduction` says."""
        if self.reduction == "max":
            return elements.loss.max() if len(elements.loss) else elements.loss.sum()
        if self.soft:
            return mean_or_zero(elements.loss, elements.real)
        return super().reduce(elements)

    def mined(self, batch: Batch) -> Named:
        """What the miner names. Without one the hardest of all triplets is a batch-hard one."""
        if self.miner is None and self.reduction == "max":
            return _HARDEST.mine(batch)
        return super().mined(batch)

    def value(self, batch: Batch, tuples: Named) -> Tensor:
        """The loss of a checked batch, without listing triplets where possible."""
        fast = triplet_value(self, batch, tuples)
        return super().value(batch, tuples) if fast is None else fast
