"""How often each pair of a batch is charged when every triplet is: by counting, not by listing."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from uncollapse.losses._blocks import FAR

__all__ = ["HingeCount", "SoftCount"]

_TIE = {torch.float32: 2e-6, torch.float64: 1e-12}  # relative error of a distance
_PASSES = 32  # positives up to this many by one comparison each, more by bisection


class HingeCount:
    """Triplets with d_ap - d_an + margin > 0: `pull[a, k]` negatives, and a weight a negative.

    `positive` is the `[N, K]` table of distances to the positives, -inf where there is none. With
    `window`, only the triplets with d_ap < d_an count (semi-hard). Used as `cross_class`'s weigh.
    """

    def __init__(self, positive: Tensor, unit: float, margin: float, window: bool) -> None:
        self.positive, self.unit, self.margin = positive, unit, margin
        # The semi-hard loss jumps by the margin at d_an = d_ap: rounding must not decide a tie.
        self.low = positive * (1 + _TIE[positive.dtype]) if window else None
        # Beyond FAR / 10 every triplet is active and the sum would swallow the distances.
        self.limit = positive + min(margin / unit, FAR / 10)
        self.pull = torch.zeros_like(positive)
        self.push = 0.0  # Σ of the charged distances to negatives

    def __call__(self, start: int, stop: int, distance: Tensor) -> Tensor:
        """Minus the number of positives each negative of these anchors is charged with."""
        rule = _by_passes if self.positive.shape[1] <= _PASSES else _by_bisection
        low = None if self.low is None else self.low[start:stop]
        weight, self.pull[start:stop] = rule(distance, self.limit[start:stop], low)
        self.push += float(torch.linalg.vecdot(weight, distance).sum(dtype=torch.float64))
        return weight.neg_()

    @property
    def active(self) -> int:
        """Number of triplets with a positive loss."""
        return int(self.pull.sum(dtype=torch.float64))

    @property
    def total(self) -> float:
        """Sum of the losses of all triplets."""
        pulled = torch.where(self.pull > 0, self.pull * self.positive, 0.0)
        gap = float(pulled.sum(dtype=torch.float64)) - self.push
        return self.unit * gap + self.margin * self.active


class SoftCount:
    """Softplus of every triplet: each counts with the sigmoid of d_ap - d_an + margin."""

    def __init__(self, positive: Tensor, unit: float, margin: float) -> None:
        self.positive, self.unit, self.margin = positive, unit, margin
        self.pull = torch.zeros_like(positive)
        self.total = 0.0

    def __call__(self, start: int, stop: int, distance: Tensor) -> Tensor:
        """Minus the sum of the sigmoids each negative of these anchors takes part in."""
        weight = torch.zeros_like(distance)
        not_negative = distance >= FAR / 2
        for k in range(self.positive.shape[1]):
            own = self.positive[start:stop, k : k + 1]
            excess = (own - distance).mul_(self.unit).add_(self.margin)
            excess.masked_fill_(not_negative, -torch.inf)
            self.total += float(functional.softplus(excess).sum(dtype=torch.float64))
            share = excess.sigmoid_()
            weight += share
            self.pull[start:stop, k] = share.sum(1)
        return weight.neg_()


def _by_passes(distance: Tensor, limit: Tensor, low: Tensor | None) -> tuple[Tensor, Tensor]:
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


def _by_bisection(distance: Tensor, limit: Tensor, low: Tensor | None) -> tuple[Tensor, Tensor]:
    """The same in O(log K) a negative: its place among the sorted limits says both counts."""
    limit, order = limit.sort(dim=1)
    width = limit.shape[1]
    place = torch.searchsorted(limit, distance.contiguous(), right=True)  # limits <= d
    pull = _below(place, width)
    if low is None:
        weight = width - place
    else:
        # The limits are the positives moved by a constant, so one order sorts both.
        passed = torch.searchsorted(low.gather(1, order), distance.contiguous())  # positives < d
        weight = passed - place
        pull -= _below(passed, width)
    counts = torch.empty_like(limit).scatter_(1, order, pull.clamp_(min=0).to(limit.dtype))
    return weight.clamp_(min=0).to(distance.dtype), counts


def _below(place: Tensor, width: int) -> Tensor:
    """For each k < width, how many entries of a row are at a place <= k."""
    histogram = torch.zeros(len(place), width + 1, dtype=torch.int64, device=place.device)
    histogram.scatter_add_(1, place, torch.ones_like(place))
    return histogram.cumsum(1)[:, :width]
