"""Multi-similarity mining and loss of a batch in one go: three N × N products, no N × N matrix."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from uncollapse.losses._all_triplets import Charge
from uncollapse.losses._blocks import BLOCK, CLOSE, pull_apart
from uncollapse.losses._classwise import SortedClasses
from uncollapse.losses._frame import Frame

__all__ = ["Rules", "multi_similarity"]

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


def multi_similarity(
    frame: Frame, classes: SortedClasses, alpha: float, beta: float, base: float, rules: Rules
) -> Charge:
    """Mean over the rows of Wang et al. 2019 (14), and its gradient with respect to y.

    `frame` is of normalised embeddings, whose cosines are s = 1 - d²/2.
    """
    rows, z = frame.rows[classes.order], frame.z[classes.order]
    n = len(z)
    unit2 = frame.unit**2
    positive = classes.distances(rows, z.dtype)
    real = positive > -torch.inf
    near = torch.where(real, 1.0 - 0.5 * unit2 * positive.square(), torch.inf)
    least = near.amin(1, keepdim=True) - rules.epsilon
    # β(s_ij - λ) = level_i + (β unit² z_i·z_j + curve_j), curve = -β unit² |z|²/2.
    norm = torch.linalg.vecdot(z, z)
    curve = (-0.5 * beta * unit2) * norm
    level = (curve + beta * (1.0 - base))[:, None]
    pull, charge = torch.zeros_like(positive), torch.zeros(n, 1, dtype=z.dtype, device=z.device)
    gradient, direct = torch.zeros_like(z), torch.zeros_like(rows)
    weight_sum = torch.zeros(n, dtype=z.dtype, device=z.device)
    buffers = torch.empty(2, min(BLOCK, n), n, dtype=z.dtype, device=z.device)
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        here = slice(start, stop)
        weight, mask = buffers[0, : stop - start], buffers[1, : stop - start]
        torch.addmm(curve, z[here], z.T, alpha=beta * unit2, out=weight)
        weight.scatter_(1, classes.columns(start, stop), _NONE)
        highest = _row_max(weight) + level[here]
        close = _close(weight, highest, level[here], norm, start, beta, base, unit2)
        some = highest > _NONE / 2
        chosen = _positives(rules, positive[here], near[here], real[here], highest / beta + base)
        if rules.negatives == "multi_similarity":  # s_an > min s_ap - ε
            bound = beta * (least[here] - base)
            some = some & (highest > bound)
        if rules.both:
            chosen &= some
            some = some & chosen.any(1, keepdim=True)
        shift = torch.where(some, highest, 0.0).clamp_(min=0.0)
        if rules.negatives == "multi_similarity":
            torch.gt(weight, bound - level[here], out=mask)
        weight.add_(torch.where(some, level[here] - shift, _NONE))
        weight.clamp_(min=-80.0).exp_()  # exp is slow where it underflows
        if rules.negatives == "multi_similarity":
            weight.mul_(mask)
        total = weight.sum(1, keepdim=True)
        whole = total + torch.exp(-shift)  # the 1 of log(1 + Σ), in the same scale
        loss, pull[here] = _pulled(near[here], chosen, alpha, base)
        charge[here] = loss + torch.where(some, (torch.log(whole) + shift) / beta, 0.0)
        weight.mul_(torch.where(some, 1.0 / whole, 0.0))
        if close is not None:
            pull_apart(direct, rows, close[0] + start, close[1], -weight[close].to(rows.dtype))
            weight[close] = 0.0
            total = weight.sum(1, keepdim=True) * torch.where(some, whole, 1.0)
        weight_sum[here] += torch.where(some, total / whole, 0.0)[:, 0]
        weight_sum += weight.sum(0)
        gradient[here].addmm_(weight, z)
        gradient.addmm_(weight.T, z[here])
    # y = unit · rows and ds/dy_i = y_j - y_i, so the products are of unit · rows.
    result = direct.add_(gradient).addcmul_(weight_sum[:, None], z.to(rows.dtype), value=-1.0)
    distance = torch.where(real, positive, 0.0)
    result += classes.gradient(rows, pull * distance, distance)
    ordered = torch.empty_like(result)
    ordered[classes.order] = result.mul_(frame.unit / n)
    return Charge(float(charge.sum(dtype=torch.float64)) / n, ordered)


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
    weight: Tensor,
    highest: Tensor,
    level: Tensor,
    norm: Tensor,
    start: int,
    beta: float,
    base: float,
    unit2: float,
) -> tuple[Tensor, Tensor] | None:
    """Negatives too close beside the spread of the batch for a product to tell the difference.

    |z_i - z_j|² <= share (|z_i|² + |z_j|²), with |z_i - z_j|² from β(s_ij - λ).
    """
    share = CLOSE[weight.dtype]
    own = norm[start : start + len(weight), None]
    top = beta * (1.0 - base)  # exponent at distance 0
    scale = 0.5 * beta * unit2
    if bool((top - highest > scale * share * (own + norm.max())).all()):
        return None
    limit = top - level - scale * share * (own + norm)
    rows, columns = (weight >= limit).nonzero(as_tuple=True)
    return (rows, columns) if len(rows) else None


def _row_max(x: Tensor) -> Tensor:
    if x.device.type == "cpu":
        return torch.from_numpy(x.numpy().max(axis=1, keepdims=True))
    return x.amax(1, keepdim=True)
