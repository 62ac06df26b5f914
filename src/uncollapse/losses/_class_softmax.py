"""-log softmax of a sample's own class among the others, with few passes over the matrix."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from uncollapse.losses._softmax import SMALLEST

__all__ = ["own_apart", "softmax_loss"]


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
