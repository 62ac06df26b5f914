"""Multi-similarity mining and loss of a batch in one go: three N × N products, no N × N matrix."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from uncollapse.losses._all_triplets import Charge
from uncollapse.losses._blocks import cross_class
from uncollapse.losses._classwise import SortedClasses
from uncollapse.losses._frame import Frame

__all__ = ["Rules", "multi_similarity"]


class Rules(NamedTuple):
    """Which pairs are charged: `"all"`, `"multi_similarity"`, and `"easy"` for positives.

    With `both`, an anchor left without a pair of either kind is not charged at all, as when its
    pairs come from triplets.
    """

    positives: str = "all"
    negatives: str = "all"
    epsilon: float = 0.1
    both: bool = False


def multi_similarity(
    frame: Frame, classes: SortedClasses, alpha: float, beta: float, base: float, rules: Rules
) -> Charge:
    """Mean over the rows of Wang et al. 2019 (14), and its gradient with respect to y.

    `frame` is of normalised embeddings; a cosine is 1 - d²/2.
    """
    rows, z = frame.rows[classes.order], frame.z[classes.order]
    positive = classes.distances(rows, z.dtype)
    count = _SimilarityCount(positive, frame.unit, alpha, beta, base, rules)
    gradient = cross_class(z, rows, classes, count)
    gradient += classes.gradient(rows, count.pull, positive)
    n = len(rows)
    result = torch.empty_like(gradient)
    result[classes.order] = gradient.div_(n)
    return Charge(count.total / n, result)


class _SimilarityCount:
    """`cross_class`'s weigh: derivatives by distance of the loss of a block of anchors."""

    def __init__(
        self, positive: Tensor, unit: float, alpha: float, beta: float, base: float, rules: Rules
    ) -> None:
        self.positive, self.unit, self.rules = positive, unit, rules
        self.alpha, self.beta, self.base = alpha, beta, base
        self.real = positive > -torch.inf
        cosine = 1.0 - 0.5 * (unit * positive).square()
        self.cosine = torch.where(self.real, cosine, torch.inf)
        self.pull = torch.zeros_like(positive)
        self.total = 0.0

    def __call__(self, start: int, stop: int, distance: Tensor) -> Tensor:
        near, real = self.cosine[start:stop], self.real[start:stop]
        # Exponents β(s - λ) of the negatives, from the distances in one pass.
        offset = distance.new_full((1, 1), self.beta * (1.0 - self.base))
        curve = -0.5 * self.beta * self.unit**2
        exponent = torch.addcmul(offset, distance, distance, value=curve)
        highest = _row_max(exponent)
        shift = highest.clamp(min=0.0)
        weight = exponent.sub_(shift).clamp_(min=-80.0).exp_()  # exp is slow where it underflows
        some = highest > -1e20
        if self.rules.negatives == "multi_similarity":  # s_an > min s_ap - ε
            least = near.amin(1, keepdim=True) - self.rules.epsilon
            limit = (2.0 * (1.0 - least)).clamp_(min=0.0).sqrt_().div_(self.unit)
            kept = distance < limit
            some = some & (self.beta * (least - self.base) < highest)
            weight.mul_(kept)
        chosen = self._positives(near, real, highest)
        if self.rules.both:
            chosen &= some
            some = some & chosen.any(1, keepdim=True)
        weight.mul_(some)
        floor = torch.exp(-shift)  # the 1 of log(1 + Σ), in the same scale
        whole = weight.sum(1, keepdim=True).add_(floor)
        lift = torch.where(chosen, -self.alpha * (near - self.base), -torch.inf)
        top = lift.amax(1, keepdim=True).clamp_(min=0.0)
        part = torch.exp(lift - top)
        sum_ = part.sum(1, keepdim=True) + torch.exp(-top)
        loss = (torch.log(sum_) + top) / self.alpha + (torch.log(whole) + shift) / self.beta
        self.total += float(loss.sum(dtype=torch.float64))
        # dL/dd = -(unit · d) dL/ds, for y as unit · rows.
        own = torch.where(chosen, self.positive[start:stop], 0.0)
        self.pull[start:stop] = part / sum_ * own * self.unit
        return weight.div_(whole).mul_(distance).mul_(-self.unit)

    def _positives(self, near: Tensor, real: Tensor, highest: Tensor) -> Tensor:
        if self.rules.positives == "easy":  # EPS §4.3
            nearest = torch.where(real, near, -torch.inf).argmax(1, keepdim=True)
            return torch.zeros_like(real).scatter_(1, nearest, True) & real
        if self.rules.positives == "multi_similarity":  # s_ap < max s_an + ε
            return real & (near < highest / self.beta + self.base + self.rules.epsilon)
        return real.clone()


def _row_max(x: Tensor) -> Tensor:
    if x.device.type == "cpu":
        return torch.from_numpy(x.numpy().max(axis=1, keepdims=True))
    return x.amax(1, keepdim=True)
