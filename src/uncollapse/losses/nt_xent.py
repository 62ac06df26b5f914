"""NT-Xent or InfoNCE: Sohn 2016, van den Oord et al. 2018, Chen et al. 2020."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from uncollapse.distances.batch import Batch
from uncollapse.losses._softmax import NONE, PairSoftmax
from uncollapse.losses.base import Elements, cosines, log_sum
from uncollapse.mining.tuples import Pairs, Triplets

__all__ = ["NTXentLoss", "info_nce"]


def info_nce(logit: Tensor, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """-log softmax of each pair's logit among itself and its anchor's negatives, `[N, M]`.

    >>> info_nce(torch.eye(2), torch.tensor([0]), torch.tensor([0]), torch.eye(2) == 0)
    tensor([0.3133])
    """
    far = log_sum(logit.masked_fill(~negative, -torch.inf))
    # van den Oord et al. (4) is log(1 + Σ_n exp(s_an / T - s_ap / T)).
    return functional.softplus(far[anchor] - logit[anchor, positive])


class NTXentLoss(PairSoftmax):
    """-log softmax of one positive among itself and its anchor's negatives, mean over the pairs.

    For a pair (a, p): -log(exp(s_ap / T) / (exp(s_ap / T) + Σ_n exp(s_an / T))), with cosines s and
    T `temperature`: van den Oord et al. Embeddings are always normalised. Without a miner
    every pair of one class is a positive, every other pair a negative; with labels that number the
    samples, two views each, it is SimCLR's loss. With a miner, or with tuples, the positives and
    negatives they name for each anchor.

    Needs a class with two samples, and a second class; a pair whose anchor has no negative costs 0.

    Siblings: `SupConLoss` has the anchor's other positives in the denominator too, which push each
    other away; here positives never compete. `NPairLoss` takes one pair per class, unnormalised.

    Collapse: when all embeddings coincide the loss is log(1 + |N|), with |N| negatives per anchor,
    and the gradient 0; around that point the loss spreads classes, weakly. On embeddings of digits
    its drift is -1.6 untrained, but only -0.0002 at a point and -0.004 in a cone, and +1.0 at wrong
    labels; its mode drift is above 0 in every state: of a class it keeps no modes.

    Args:
        temperature: T; PML and MoCo have 0.07, SimCLR 0.1 to 0.5.
        miner: chooses the pairs.

    >>> NTXentLoss()(torch.ones(4, 2), [0, 0, 1, 1])  # log 3
    tensor(1.0986)
    >>> views = torch.eye(2)[[0, 1, 0, 1]]  # two samples, two views of each
    >>> round(NTXentLoss(temperature=1.0)(views, [0, 1, 0, 1]).item(), 4)  # log(1 + 2/e)
    0.5514
    """

    def __init__(self, *, temperature: float = 0.07, miner: nn.Module | None = None) -> None:
        super().__init__(temperature=temperature, miner=miner)

    def listed(self, batch: Batch, tuples: Triplets | Pairs | None) -> Elements:
        """One entry per pair of anchor and positive; `pull` is minus their cosine."""
        anchor, positive, negative = self.pair_masks(batch, tuples)
        cosine = cosines(batch)
        loss = info_nce(cosine / self.temperature, anchor, positive, negative)
        return Elements(loss.to(batch.rows.dtype), -cosine[anchor, positive].detach(), anchor)

    # The fast way: value and gradient together, off the graph.

    @staticmethod
    def charge(near: Tensor, far: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Sum of each row's `info_nce`, and its derivatives."""
        gap = torch.where(near > NONE, far - near, NONE)
        push = gap.sigmoid()
        loss = functional.softplus(gap).sum(1, keepdim=True)
        return loss, -push, push.sum(1, keepdim=True)

    @staticmethod
    def terms(positives: Tensor) -> Tensor:
        """The pairs."""
        return positives.sum()
