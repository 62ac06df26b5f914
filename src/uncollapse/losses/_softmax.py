"""Softmax losses of a batch's cosines in one go: at most three N × N products, in blocks."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

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
from uncollapse.losses.base import Loss, attach
from uncollapse.mining.tuples import Pairs, Triplets

__all__ = ["NONE", "SMALLEST", "PairSoftmax"]

NONE = -1e30  # logit of what is not there
SMALLEST = -80.0  # an exponent below it adds nothing, and takes ten times as long
_COLD = 0.01  # below this temperature logits need more digits than float32 products have

# As `PairSoftmax.charge`.
Charge = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


class PairSoftmax(Loss):
    """A softmax of cosines over a temperature; in one go where all pairs of a batch count."""

    numbers: ClassVar = {"temperature": (1e-6, math.inf)}

    def __init__(self, *, temperature: float, miner: nn.Module | None = None) -> None:
        super().__init__(miner=miner, normalize=True)
        self.temperature = temperature

    @staticmethod
    @abstractmethod
    def charge(near: Tensor, far: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The rows' losses `[b, 1]`, and their derivatives by both, 0 by what is not there.

        `near` `[b, K]` are logits of the positives, `NONE` where there is none; `far` `[b, 1]` is
        log Σ exp of those of the negatives.
        """

    @staticmethod
    @abstractmethod
    def terms(positives: Tensor) -> Tensor:
        """What the sum of the losses is over, from the numbers of the rows' positives."""

    def value(self, batch: Batch, tuples: Triplets | Pairs | None) -> Tensor:
        """The loss of a checked batch: value and gradient together, off the graph."""
        named = tuples is not None or self.miner is not None
        if named or batch.offset or batch.frame.collapsed or self.temperature < _COLD:
            return super().value(batch, tuples)
        with torch.no_grad():
            total, gradient = pair_softmax(batch, self.temperature, self.charge)
            terms = self.terms(batch.classes.counts).clamp(min=1)
            mean = (total / terms, gradient / terms)
        return attach(batch, *mean, lambda again: Loss.value(self, again, None))


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
        weight.sub_(torch.where(some, highest, 0.0)).clamp_(min=SMALLEST).exp_()
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
