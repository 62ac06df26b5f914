"""Triplet losses off the graph: value and gradient together, all triplets without a list of them.

For an anchor with positives at d_k and negatives at d_j, a hinge needs only the number of negatives
nearer than d_k + margin, and for each negative the number of positives it exceeds by less than
that. This takes O(N²·K) time beside the N × N products, and O(N·K) memory.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from uncollapse.distances.frame import Frame, known_distances, on_host
from uncollapse.distances.tiles import CLOSE
from uncollapse.losses.base import ALL, Batch, Named, TupleLoss, attach
from uncollapse.losses.classwise import FAR, ByClass, cross_class, dot, pair_forces
from uncollapse.losses.on_graph import HARDEST
from uncollapse.mining.miner import Miner
from uncollapse.mining.tuples import Triplets

if TYPE_CHECKING:
    from uncollapse.losses.triplet import TripletLoss

_TIE = {torch.float32: 2.5e-6, torch.float64: 1e-12}  # relative error of a distance
_SMALL_BATCH = 128  # rows; from here on the compiled kernel is used
_LOOKED_AT = 512  # distances that tell whether rows are coarse


def triplet_value(loss: TripletLoss, batch: Batch, tuples: Named) -> Tensor | None:
    """The loss of a checked batch; None where its triplets must be listed on the graph."""
    labelled = batch.labels is not None and not batch.offset
    listed = loss.swap or loss.distance != "euclidean" or loss.scale_free == HARDEST
    if listed or (loss.scale_free and not labelled):
        return None
    rule = _rule(loss) if tuples is None and labelled else None
    if rule is not None and batch.classes.triplets == 0:
        rule, tuples = None, (loss.miner if isinstance(loss.miner, Miner) else ALL).mine(batch)
    with torch.no_grad():
        classes = ByClass.of(batch) if rule is not None or loss.scale_free else None
        mean = None
        if loss.scale_free and classes is not None and not batch.frame.collapsed:
            mean = mean_distance(classes)
            divisor = float(mean[0]) if on_host(mean[0]) else mean[0]
            batch = replace(batch, frame=batch.frame.seen_as(1 / divisor))
        if rule is not None and classes is not None:
            unit, triplets = batch.frame.unit, batch.classes.triplets
            value, gradient = all_triplets(
                classes, unit, triplets, loss.margin, soft=loss.soft, **rule
            )
        else:
            chosen = loss.triplets(batch, tuples)
            tuples = Triplets(chosen.anchor, *(row - batch.offset for row in chosen[1:]))
            value, gradient = mined_triplets(
                batch.frame, chosen, loss.margin, soft=loss.soft, reduction=_counted(loss)
            )
        if mean is not None:
            gradient = through_mean(batch, gradient, *mean)
    return attach(batch, value, gradient, lambda again: TupleLoss.value(loss, again, tuples))


def _counted(loss: TripletLoss) -> str:
    """The reduction; a softplus is above 0 for every triplet, whatever float32 makes of it."""
    return "mean" if loss.soft and loss.reduction == "nonzero" else loss.reduction


def _rule(loss: TripletLoss) -> dict[str, bool] | None:
    """How to sum over all triplets without listing them; None if they must be listed."""
    miner = loss.miner
    if loss.reduction == "max":
        return None
    if miner is None:
        return {"nonzero": _counted(loss) == "nonzero"}
    if not isinstance(miner, Miner) or not miner.sees_all:
        return None
    if (miner.positives, miner.negatives) != ("all", "all"):
        return None
    if miner.keep == "all":
        return {"nonzero": _counted(loss) == "nonzero"}
    if loss.soft or miner.keep == "hard" or miner.margin != loss.margin:
        return None
    # Kept are triplets with a positive loss, so both means are the same.
    return {"nonzero": True, "window": miner.keep == "semihard"}


def all_triplets(
    classes: ByClass,
    unit: float | Tensor,
    triplets: int,
    margin: float,
    *,
    soft: bool = False,
    window: bool = False,
    nonzero: bool = False,
) -> tuple[Tensor, Tensor]:
    """Mean over all triplets of [d_ap - d_an + margin]₊, or of its softplus when `soft`.

    Distances are `unit` times those of the frame; the gradient returned is by `unit` times its
    rows. `window` keeps only the semi-hard triplets, d_ap < d_an < d_ap + margin. `nonzero` divides
    by the number of triplets with a positive loss instead of by `triplets`, that of all.
    """
    rows = classes.wide
    if classes.frame.collapsed:  # all distances are 0
        flat = 0.0 if window else margin + math.log1p(math.exp(-margin)) if soft else margin
        return rows.new_full((), flat), torch.zeros_like(rows)
    if len(rows) < _SMALL_BATCH:  # float64 costs nothing there, and sees every tie
        classes = replace(classes, frame=classes.frame.fine)
    positive = classes.distances(classes.frame.norms.dtype)
    count = _Soft(positive, unit, margin) if soft else _Hinge(positive, unit, margin, window)
    if isinstance(count, _Hinge) and classes.compiled is not None:
        gradient = _compiled_hinge(classes, count)
    else:
        gradient = cross_class(classes, count)
    number = rows.new_full((), triplets)
    if isinstance(count, _Hinge) and (nonzero or window):  # a softplus is never 0
        number = count.active.clamp(min=1.0)
    gradient += classes.gradient(count.pull, positive)
    return count.total / number, classes.in_given_order(gradient.div_(number))


class _Hinge:
    """Triplets with d_ap - d_an + margin > 0: `pull[a, k]` negatives, and a weight per negative.

    `positive` is the `[N, K]` table of distances to the positives, -inf where there is none. With
    `window`, only the triplets with d_ap < d_an count (semi-hard). Used as `cross_class`'s weigh.
    """

    def __init__(self, positive: Tensor, unit: float | Tensor, margin: float, window: bool) -> None:
        self.positive, self.unit, self.margin = positive, unit, margin
        # Rounding must not decide a tie. At d_ap - d_an + margin = 0 the hinge has a kink, and a
        # triplet there is not active; at d_an = d_ap the semi-hard loss jumps by the margin. Rows
        # on a grid have many ties; others have none to speak of, and what is near the kink there
        # is left where the distances put it.
        self.low = positive * (1 + _TIE[positive.dtype]) if window else None
        # Beyond FAR / 10 every triplet is active and the sum would swallow the distances.
        reach = margin / unit
        far = FAR / 10
        self.reach = reach.clamp(max=far) if isinstance(reach, Tensor) else min(reach, far)
        self.limit = (positive + self.reach) * (1 - _kink(positive))
        self.pull = torch.zeros_like(positive)
        self.push = torch.zeros((), dtype=torch.float64, device=positive.device)

    def __call__(self, start: int, stop: int, distance: Tensor) -> Tensor:
        """Minus the number of active triplets that each negative of these anchors is in."""
        low = None if self.low is None else self.low[start:stop]
        weight, self.pull[start:stop] = _within(distance, self.limit[start:stop], low)
        self.push += dot(weight, distance)  # Σ d_an over active triplets
        return weight.neg_()

    @property
    def active(self) -> Tensor:
        """Number of triplets with a positive loss."""
        return self.pull.sum(dtype=torch.float64)

    @property
    def total(self) -> Tensor:
        """Sum of the losses of all triplets."""
        pulled = torch.where(self.pull > 0, self.pull * self.positive, 0.0)
        gap = pulled.sum(dtype=torch.float64) - self.push
        return self.unit * gap + self.margin * self.active


def _kink(positive: Tensor) -> float | Tensor:
    """Relative distance from the kink that counts as a tie: 0 in float32, except on a grid.

    There most distances repeat. Computed without a device synchronisation.
    """
    if positive.dtype == torch.float64:
        return _TIE[torch.float64]
    every = positive.flatten()
    every = every[:: max(1, len(every) // _LOOKED_AT)]
    # Both directions of a pair may be among them, so half of the distances repeat on any rows.
    ordered = every.clamp(min=0.0).sort().values  # 0: no positive, or an equal one
    before, after = ordered[:-1], ordered[1:]
    different = 1 + ((before > 0) & (after > before * (1 + 1e-6))).sum()
    return _TIE[torch.float32] * (3 * different < (ordered > 0).sum())


class _Soft:
    """Softplus of every triplet: each counts with the sigmoid of d_ap - d_an + margin."""

    def __init__(self, positive: Tensor, unit: float | Tensor, margin: float) -> None:
        self.positive, self.unit, self.margin = positive, unit, margin
        self.pull = torch.zeros_like(positive)
        self.total = torch.zeros((), dtype=torch.float64, device=positive.device)

    def __call__(self, start: int, stop: int, distance: Tensor) -> Tensor:
        """Minus the sum of the sigmoids each negative of these anchors takes part in."""
        weight = torch.zeros_like(distance)
        not_negative = distance >= FAR / 2
        for k in range(self.positive.shape[1]):
            own = self.positive[start:stop, k : k + 1]
            excess = (own - distance).mul_(self.unit).add_(self.margin)
            excess.masked_fill_(not_negative, -torch.inf)
            loss = functional.softplus(excess)
            self.total += loss.sum(dtype=torch.float64)
            share = excess.sigmoid_()
            weight += share
            self.pull[start:stop, k] = share.sum(1)
        return weight.neg_()


def _within(distance: Tensor, limit: Tensor, low: Tensor | None) -> tuple[Tensor, Tensor]:
    """Positives k with low_k < d < limit_k for each negative; negatives for each positive."""
    weight, pull = torch.zeros_like(distance), torch.empty_like(limit)
    within = torch.empty_like(distance)
    above = None if low is None else torch.empty_like(distance)
    for k in range(limit.shape[1]):
        torch.lt(distance, limit[:, k : k + 1], out=within)
        if low is not None and above is not None:
            within.mul_(torch.gt(distance, low[:, k : k + 1], out=above))
        weight.add_(within)
        pull[:, k] = within.sum(1)
    return weight, pull


def _compiled_hinge(classes: ByClass, count: _Hinge) -> Tensor:
    """`cross_class(classes, count)` with the compiled kernel between the products."""
    frame = classes.frame
    number = frame.norms.numpy().dtype.type
    low = count.limit if count.low is None else count.low
    limits = [*classes.bounds, count.limit.numpy(), low.numpy()]
    settings = (count.low is not None, number(CLOSE[frame.norms.dtype]), number(FAR))

    def fill(start: int, slope: Tensor, direct: Tensor) -> None:
        out = [x.numpy() for x in (frame.wide, count.pull, direct)]
        given = (slope.numpy(), frame.norms.numpy(), start)
        count.push += classes.compiled.hinge_rows(*given, *limits, *settings, *out)

    return pair_forces(classes, fill)


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
    losses = functional.softplus(excess) if soft else excess.relu()
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


def mean_distance(classes: ByClass) -> tuple[Tensor, Tensor]:
    """Mean distance between two of the frame's rows, and its gradient by them."""
    rows = classes.wide
    n = len(rows)
    total = rows.new_zeros(())

    def weigh(start: int, stop: int, distance: Tensor) -> Tensor:
        weight = (distance < FAR / 2).to(distance.dtype)
        total.add_(dot(weight, distance))
        return weight

    gradient = cross_class(classes, weigh)
    inside = classes.distances(rows.dtype)
    gradient += classes.gradient(torch.ones_like(inside), inside)
    total += torch.where(classes.real, inside, 0.0).sum()
    pairs = n * (n - 1)
    return total / pairs, classes.in_given_order(gradient.div_(pairs))


def through_mean(batch: Batch, gradient: Tensor, mean: Tensor, slope: Tensor) -> Tensor:
    """Gradient by the rows of a loss of r / μ(r): dL/dr = (G - <G, r>/μ ∇μ) / μ, rows = unit · r.

    By Euler's identity its drift <Z_c, ∇L> is 0: there is no pull towards, or away from, a point.
    """
    radial = (gradient * batch.frame.wide).sum() / mean
    limit = torch.finfo(batch.rows.dtype).max  # 1 / a tiny spread may not fit: stay finite
    whole = (gradient - radial * slope) / mean * batch.frame.zoom
    return whole.clamp_(-limit, limit)
