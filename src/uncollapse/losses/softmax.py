"""Softmax losses of a batch's cosines in one go: at most three N × N products, in blocks."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from uncollapse.distances.batch import Batch
from uncollapse.distances.frame import short_squares
from uncollapse.distances.tiles import (
    BLOCK,
    Forces,
    close_exponents,
    take_apart,
)
from uncollapse.losses.base import Loss, attach
from uncollapse.losses.classwise import ByClass
from uncollapse.mining.tuples import Pairs, Triplets

__all__ = ["NONE", "SMALLEST", "PairSoftmax", "own_apart", "softmax_loss"]


# Softmax losses of a batch's cosines in one go: at most three N × N products, in blocks.

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
        highest = weight.amax(1, keepdim=True)
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


# -log softmax of a sample's own class among the others, with few passes over the matrix.


def own_apart(cosine: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Entries `own` `[n, k]` of a matrix, and the matrix, to be used in place of it.

    Their gradients are added in one pass: `gather` alone would make a matrix of zeros for its own.

    >>> own_apart(torch.tensor([[3.0, 4.0]]), torch.tensor([[1]]))
    (tensor([[4.]]), tensor([[3., 4.]]))
    """
    both: tuple[Tensor, Tensor] = _OwnApart.apply(cosine, own)  # type: ignore[no-untyped-call]
    return both


class _OwnApart(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cosine: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(own)
        return cosine.gather(1, own), cosine.view_as(cosine)

    @staticmethod
    def backward(ctx: Any, by_own: Tensor, by_all: Tensor) -> tuple[Tensor, None]:
        (own,) = ctx.saved_tensors
        return by_all.scatter_add(1, own, by_own), None


def softmax_loss(
    cosine: Tensor, own: Tensor, logit: Tensor, scale: float, *, among: bool = True
) -> Tensor:
    """-log softmax of the own class's `logit` among `scale` times the other classes' cosines.

    `cosine` `[n, m]`, `own` `[n, k]` the columns that are the own class's, `logit` `[n]`. Without
    `among` the sum is over the other classes alone.

    >>> softmax_loss(torch.zeros(1, 3), torch.tensor([[0]]), torch.zeros(1), 1.0)  # log 3
    tensor([1.0986])
    """
    given = (cosine, own, logit, scale, among)
    loss: Tensor = _SoftmaxLoss.apply(*given)  # type: ignore[no-untyped-call]
    return loss


def _logits(cosine: Tensor, own: Tensor, logit: Tensor, scale: float, among: bool) -> Tensor:
    logits = scale * cosine
    if own.shape[1] > 1 or not among:
        logits.scatter_(1, own, -torch.inf)
    return logits.scatter_(1, own[:, :1], logit[:, None]) if among else logits


class _SoftmaxLoss(torch.autograd.Function):
    """`logsumexp(_logits) - logit`, with half the passes over the matrix."""

    @staticmethod
    def forward(
        ctx: Any, cosine: Tensor, own: Tensor, logit: Tensor, scale: float, among: bool
    ) -> Tensor:
        ctx.scale, ctx.among = scale, among
        share = _logits(cosine, own, logit, scale, among)
        if share.numel() == 0:
            ctx.save_for_backward(cosine, own, logit, share)
            return logit.clone()
        top = share.amax(1, keepdim=True)
        share.sub_(top).clamp_(min=SMALLEST).exp_()
        total = share.sum(1, keepdim=True)
        share.div_(total)
        ctx.save_for_backward(cosine, own, logit, share)
        return (total.log() + top)[:, 0] - logit

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, None, Tensor | None, None, None]:
        cosine, own, logit, share = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted
            logits = _logits(cosine, own, logit, ctx.scale, ctx.among)
            value = torch.logsumexp(logits, dim=1) - logit
            wanted = [x for x in (cosine, logit) if x.requires_grad]
            found = iter(torch.autograd.grad(value, wanted, slope, create_graph=True))
            by = [next(found) if x.requires_grad else None for x in (cosine, logit)]
            return by[0], None, by[1], None, None
        part = share.gather(1, own[:, :1])[:, 0] - 1.0 if ctx.among else -1.0
        by_cosine = (share * (ctx.scale * slope)[:, None]).scatter_(1, own, 0.0)
        return by_cosine, None, part * slope, None, None
