"""Multi-similarity mining and loss of a batch in one go: at most three N × N products."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from uncollapse.distances.frame import short_squares
from uncollapse.distances.tiles import (
    BLOCK,
    CLOSE,
    Forces,
    close_exponents,
    take_apart,
)
from uncollapse.losses.classwise import ByClass

__all__ = ["Rules", "Weights", "multi_similarity"]


_NONE = -1e30  # exponent of what is not a negative


class Rules(NamedTuple):
    """Which pairs count: `"all"`, `"multi_similarity"`, and `"easy"` for positives.

    With `both`, an anchor left without a pair of either kind does not count at all, as when its
    pairs come from triplets.
    """

    positives: str = "all"
    negatives: str = "all"
    epsilon: float = 0.1
    both: bool = False


class Weights(NamedTuple):
    """The loss's own numbers."""

    alpha: float = 2.0
    beta: float = 50.0
    base: float = 1.0


def multi_similarity(
    classes: ByClass, unit: float, weights: Weights, rules: Rules
) -> tuple[Tensor, Tensor]:
    """Mean over the rows of Wang et al. 2019 (14), and its gradient by the rows on the sphere.

    The frame is that of normalised embeddings, whose cosines are s = 1 - d²/2; `unit` is the length
    of 1 in its coordinates.
    """
    positive = classes.distances(classes.frame.norms.dtype)
    batch = _Batch(classes, positive, torch.zeros_like(positive), unit, weights, rules)
    total, push = (_charge if classes.compiled is None else _charge_compiled)(batch)
    # Rows are unit · x and ds/dy_i = y_j - y_i, so both products are of unit · x.
    distance = torch.where(classes.real, positive, 0.0)
    gradient = classes.gradient(batch.pull * distance, distance).sub_(push)
    n = len(positive)
    return total / n, classes.in_given_order(gradient.mul_(unit / n))


class _Batch(NamedTuple):
    """`pull` is written: minus the derivatives by the positives' cosines."""

    classes: ByClass
    positive: Tensor
    pull: Tensor
    unit: float
    weights: Weights
    rules: Rules

    @property
    def slope(self) -> float:
        """β(s_ij - λ) = level_i + slope · (short square of i and j)."""
        return -0.5 * self.weights.beta * self.unit**2

    @property
    def level(self) -> Tensor:
        """What each row's short squares lack, as an exponent."""
        norms = self.classes.frame.norms
        return norms * self.slope + self.weights.beta * (1.0 - self.weights.base)


def _charge_compiled(batch: _Batch) -> tuple[Tensor, Tensor]:
    """Sum of the losses, and the gradient of Σ ∂L/∂s |x_i - x_j|² / 2 over the negatives."""
    classes, rules, frame = batch.classes, batch.rules, batch.classes.frame
    compiled, n, norm = classes.compiled, len(frame), frame.norms
    forces, direct = Forces(frame.block(slice(None))), torch.zeros_like(classes.wide)
    charge, shift = torch.zeros(2, n, dtype=torch.float64)
    close = torch.zeros(n, dtype=torch.bool)
    share = CLOSE[norm.dtype]
    chosen = {"all": 0, "easy": 1, "multi_similarity": 2}[rules.positives]
    before = (
        *classes.bounds,
        *(x.numpy() for x in (norm, batch.level, batch.positive)),
        batch.unit,
        (*batch.weights, rules.epsilon, share),
        (chosen, rules.negatives == "multi_similarity", rules.both),
        *(x.numpy() for x in (batch.pull, charge, shift, close)),
    )
    beta = batch.weights.beta
    after = (beta, share, *(x.numpy() for x in (shift, close, charge, direct)))
    for start in range(0, n, BLOCK):
        here = slice(start, min(n, start + BLOCK))
        weight = forces.block(here.start, here.stop)
        short_squares(frame, here, out=weight, scale=batch.slope)
        compiled.similarity_before(weight.numpy(), start, *before)
        weight.exp_()
        compiled.similarity_after(weight.numpy(), start, norm.numpy(), classes.wide.numpy(), *after)
        forces.add(here.start, here.stop)
    return charge.sum(), direct.add_(forces.gradient())


def _charge(batch: _Batch) -> tuple[Tensor, Tensor]:
    """The same in torch, on any device."""
    classes, rules, (alpha, beta, base) = batch.classes, batch.rules, batch.weights
    frame, rows, norm = classes.frame, classes.wide, classes.frame.norms
    n, level, real = len(norm), batch.level[:, None], classes.real
    near = torch.where(real, 1.0 - 0.5 * (batch.unit * batch.positive).square(), torch.inf)
    bound = beta * (near.amin(1, keepdim=True) - rules.epsilon - base)  # s_an > min s_ap - ε
    hard = rules.negatives == "multi_similarity"
    forces, direct = Forces(frame.block(slice(None))), torch.zeros_like(rows)
    mask = norm.new_empty(min(BLOCK, n), n)
    charge = norm.new_zeros(n, 1)
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        here = slice(start, stop)
        weight = forces.block(start, stop)
        short_squares(frame, here, out=weight, scale=batch.slope)
        weight.scatter_(1, classes.columns(start, stop), _NONE)
        highest = weight.amax(1, keepdim=True)
        close = close_exponents(weight, highest, norm[here, None], norm, batch.slope)
        highest = highest + level[here]
        some = highest > _NONE / 2
        if hard:
            some = some & (highest > bound[here])
        chosen = _positives(
            rules, batch.positive[here], near[here], real[here], highest / beta + base
        )
        if rules.both:
            chosen &= some
            some = some & chosen.any(1, keepdim=True)
        shift = torch.where(some, highest, 0.0).clamp_(min=0.0)
        inside = mask[: stop - start]
        if hard:
            torch.gt(weight, bound[here] - level[here], out=inside)
        weight.add_(torch.where(some, level[here] - shift, _NONE))
        weight.clamp_(min=-80.0).exp_()  # exp is slow where it underflows
        if hard:
            weight.mul_(inside)
        whole = weight.sum(1, keepdim=True) + torch.exp(-shift)  # the 1 of log(1 + Σ), scaled
        loss, batch.pull[here] = _pulled(near[here], chosen, alpha, base)
        charge[here] = loss + torch.where(some, (torch.log(whole) + shift) / beta, 0.0)
        weight.mul_(torch.where(some, 1.0 / whole, 0.0))
        if close is not None:
            take_apart(direct, rows, start, weight, close)
        forces.add(start, stop)
    return charge.sum(dtype=torch.float64), direct.add_(forces.gradient())


def _positives(
    rules: Rules, distance: Tensor, near: Tensor, real: Tensor, highest: Tensor
) -> Tensor:
    """Which entries of the table of positives are charged; `highest` is the largest s_an."""
    if rules.positives == "easy":  # EPS §4.3; distances, as cosines near 1 cannot be told apart
        # Equal rows of a large class are at distances that differ in the last digit: the first.
        distance = torch.where(real, distance, torch.inf)
        least = distance.amin(1, keepdim=True) * (1 + 1e-9)
        nearest = (distance <= least).to(torch.uint8).argmax(1, keepdim=True)
        return torch.zeros_like(real).scatter_(1, nearest, True).logical_and_(real)
    if rules.positives == "multi_similarity":  # s_ap < max s_an + ε
        return real & (near < highest + rules.epsilon)
    return real.clone()


def _pulled(near: Tensor, chosen: Tensor, alpha: float, base: float) -> tuple[Tensor, Tensor]:
    """log(1 + Σ exp(-α(s - λ)))/α over the positives of each row, and minus its derivatives."""
    exponent = torch.where(chosen, -alpha * (near - base), -torch.inf)
    shift = exponent.amax(1, keepdim=True).clamp_(min=0.0)
    part = torch.exp(exponent - shift)
    whole = part.sum(1, keepdim=True) + torch.exp(-shift)
    return (torch.log(whole) + shift) / alpha, part / whole
