"""Softmax losses of a batch's cosines in one go: at most three N × N products, in blocks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from uncollapse.distances.batch import Batch
from uncollapse.distances.tiles import (
    BLOCK,
    Forces,
    close_exponents,
    row_max,
    short_squares,
    take_apart,
)
from uncollapse.losses._classwise import ByClass

__all__ = ["NONE", "Charge", "in_one_go", "pair_softmax"]

NONE = -1e30  # logit of what is not there
_SMALLEST = -80.0  # an exponent below it adds nothing, and takes ten times as long
_COLD = 0.01  # below this temperature logits need more digits than float32 products have

# From `[b, K]` logits of the positives, `NONE` where there is none, and `[b, 1]` log Σ exp of those
# of the negatives: the rows' losses, and their derivatives by both, 0 by what is not there.
Charge = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


def in_one_go(batch: Batch, temperature: float) -> bool:
    """Whether `pair_softmax` can take all pairs of this batch."""
    return not (batch.offset or batch.frame.collapsed or temperature < _COLD)


def pair_softmax(batch: Batch, temperature: float, charge: Charge) -> tuple[Tensor, Tensor]:
    """Sum of the rows' losses over all pairs, and its gradient by the normalised rows.

    Logits are (s - 1) / T of the cosines s, so that they keep their digits where s is close to 1.
    """
    classes, unit = ByClass.of(batch), 1 / batch.frame.zoom
    frame, rows, norm = classes.frame, classes.wide, classes.frame.norms
    n, real = len(norm), classes.real
    slope = -0.5 * unit**2 / temperature  # (s_ij - 1) / T = slope |z_i - z_j|²
    level = slope * norm[:, None]
    distance = torch.where(real, classes.distances(norm.dtype), 0.0)
    near = torch.where(real, slope * distance.square(), NONE)
    pull, losses = torch.zeros_like(near), norm.new_zeros(n, 1)
    forces, direct = Forces(frame.block(slice(None))), torch.zeros_like(rows)
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        here = slice(start, stop)
        weight = forces.block(start, stop)
        short_squares(frame, here, out=weight, scale=slope)
        weight.scatter_(1, classes.columns(start, stop), NONE)
        highest = row_max(weight)
        close = close_exponents(weight, highest, norm[here, None], norm, slope)
        some = highest > NONE / 2
        weight.sub_(torch.where(some, highest, 0.0)).clamp_(min=_SMALLEST).exp_()
        total = weight.sum(1, keepdim=True)
        far = torch.where(some, total.log() + highest + level[here], NONE)
        losses[here], pull[here], push = charge(near[here], far)
        weight.mul_(torch.where(some, push / total, 0.0))
        if close is not None:
            take_apart(direct, rows, start, weight, close)
        forces.add(start, stop)
    # Rows are unit · x and ds/dy_i = y_j - y_i, so both products are of unit · x.
    gradient = classes.gradient(pull * distance, distance).add_(direct).add_(forces.gradient())
    gradient = classes.in_given_order(gradient.mul_(-unit / temperature))
    return losses.sum(dtype=torch.float64), gradient
