"""Multi-similarity mining and loss of a batch in one go: at most three N × N products."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from uncollapse.losses._all_triplets import Charge
from uncollapse.losses._blocks import CLOSE, pull_apart
from uncollapse.losses._classwise import SortedClasses
from uncollapse.losses._engine import compiled
from uncollapse.losses._forces import BLOCK, Forces
from uncollapse.losses._frame import Frame

__all__ = ["Rules", "Weights", "multi_similarity"]

_NONE = -1e30  # exponent of what is not a negative


class Rules(NamedTuple):
    """Which pairs are charged: `"all"`, `"multi_similarity"`, and `"easy"` for positives.

    With `both`, an anchor left without a pair of either kind is not charged at all, as when its
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
    frame: Frame, classes: SortedClasses, weights: Weights, rules: Rules, engine: str = "auto"
) -> Charge:
    """Mean over the rows of Wang et al. 2019 (14), and its gradient with respect to y.

    `frame` is of normalised embeddings, whose cosines are s = 1 - d²/2. `engine` as in
    `all_triplets`.
    """
    rows, z = frame.rows[classes.order], frame.z[classes.order]
    positive = classes.distances(rows, z.dtype, engine)
    pull = torch.zeros_like(positive)
    kernels = compiled(rows, engine)
    batch = _Batch(z, rows, classes, positive, pull, frame.unit, weights, rules)
    total, push = _charge(batch) if kernels is None else _charge_compiled(batch, kernels)
    # y = unit · rows and ds/dy_i = y_j - y_i, so both products are of unit · rows.
    distance = torch.where(classes.real, positive, 0.0)
    gradient = classes.gradient(rows, pull * distance, distance, engine).sub_(push)
    n = len(z)
    result = torch.empty_like(gradient)
    result[classes.order] = gradient.mul_(frame.unit / n)
    return Charge(total / n, result)


class _Batch(NamedTuple):
    """Rows in class order; `pull` is written: minus the derivatives by the positives' cosines."""

    z: Tensor
    rows: Tensor
    classes: SortedClasses
    positive: Tensor
    pull: Tensor
    unit: float
    weights: Weights
    rules: Rules

    def exponents(self) -> tuple[Tensor, Tensor, Tensor]:
        """|z|², curve and level: β(s_ij - λ) = level_i + (curve_j + β unit² z_i·z_j)."""
        norm = torch.linalg.vecdot(self.z, self.z)
        curve = norm * (-0.5 * self.weights.beta * self.unit**2)
        return norm, curve, curve + self.weights.beta * (1.0 - self.weights.base)


def _charge_compiled(batch: _Batch, kernels: Any) -> tuple[float, Tensor]:
    """Sum of the losses, and the gradient of Σ ∂L/∂s |x_i - x_j|² / 2 over the negatives."""
    z, rules, n = batch.z, batch.rules, len(batch.z)
    norm, curve, level = batch.exponents()
    forces, direct = Forces(z), torch.zeros_like(batch.rows)
    charge, shift = torch.zeros(2, n, dtype=torch.float64)
    close = torch.zeros(n, dtype=torch.bool)
    share = CLOSE[z.dtype]
    chosen = {"all": 0, "easy": 1, "multi_similarity": 2}[rules.positives]
    before = (
        *batch.classes.bounds,
        *(x.numpy() for x in (norm, level, batch.positive)),
        batch.unit,
        (*batch.weights, rules.epsilon, share),
        (chosen, rules.negatives == "multi_similarity", rules.both),
        *(x.numpy() for x in (batch.pull, charge, shift, close)),
    )
    beta = batch.weights.beta
    after = (beta, share, *(x.numpy() for x in (shift, close, charge, direct)))
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        weight = forces.block(start, stop)
        torch.addmm(curve, z[start:stop], z.T, alpha=beta * batch.unit**2, out=weight)
        kernels.similarity_before(weight.numpy(), start, *before)
        weight.exp_()
        kernels.similarity_after(weight.numpy(), start, norm.numpy(), batch.rows.numpy(), *after)
        forces.add(start, stop)
    return float(charge.sum()), direct.add_(forces.gradient())


def _charge(batch: _Batch) -> tuple[float, Tensor]:
    """The same in torch, on any device."""
    z, rows, rules, (alpha, beta, base) = batch.z, batch.rows, batch.rules, batch.weights
    n = len(z)
    norm, curve, level = batch.exponents()
    level = level[:, None]
    real = batch.classes.real
    near = torch.where(real, 1.0 - 0.5 * (batch.unit * batch.positive).square(), torch.inf)
    bound = beta * (near.amin(1, keepdim=True) - rules.epsilon - base)  # s_an > min s_ap - ε
    hard = rules.negatives == "multi_similarity"
    forces, direct = Forces(z), torch.zeros_like(rows)
    mask = torch.empty(min(BLOCK, n), n, dtype=z.dtype, device=z.device)
    charge = torch.zeros(n, 1, dtype=z.dtype, device=z.device)
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        here = slice(start, stop)
        weight = forces.block(start, stop)
        torch.addmm(curve, z[here], z.T, alpha=beta * batch.unit**2, out=weight)
        weight.scatter_(1, batch.classes.columns(start, stop), _NONE)
        highest = _row_max(weight) + level[here]
        close = _close(weight, highest, level[here], norm, start, batch)
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
            pull_apart(direct, rows, close[0] + start, close[1], weight[close].to(rows.dtype))
            weight[close] = 0.0
        forces.add(start, stop)
    return float(charge.sum(dtype=torch.float64)), direct.add_(forces.gradient())


def _positives(
    rules: Rules, distance: Tensor, near: Tensor, real: Tensor, highest: Tensor
) -> Tensor:
    """Which entries of the table of positives are charged; `highest` is the largest s_an."""
    if rules.positives == "easy":  # EPS §4.3; distances, as cosines near 1 cannot be told apart
        nearest = torch.where(real, distance, torch.inf).argmin(1, keepdim=True)
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


def _close(
    weight: Tensor, highest: Tensor, level: Tensor, norm: Tensor, start: int, batch: _Batch
) -> tuple[Tensor, Tensor] | None:
    """Negatives too close beside the spread of the batch for a product to tell the difference.

    |z_i - z_j|² <= share (|z_i|² + |z_j|²), with |z_i - z_j|² from β(s_ij - λ).
    """
    _, beta, base = batch.weights
    own = norm[start : start + len(weight), None]
    touching = beta * (1.0 - base)  # exponent at distance 0
    scale = 0.5 * beta * batch.unit**2 * CLOSE[weight.dtype]
    if bool((touching - highest > scale * (own + norm.max())).all()):
        return None
    rows, columns = (weight >= touching - level - scale * (own + norm)).nonzero(as_tuple=True)
    return (rows, columns) if len(rows) else None


def _row_max(x: Tensor) -> Tensor:
    if x.device.type == "cpu":
        return torch.from_numpy(x.numpy().max(axis=1, keepdims=True))
    return x.amax(1, keepdim=True)
