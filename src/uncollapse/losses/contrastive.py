"""Contrastive loss: EPS §3, HNM §5 (its minus sign is a misprint), Hadsell et al. 2006."""

from __future__ import annotations

import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike, points
from uncollapse._base.check import check_choice, check_number
from uncollapse.losses._elements import (
    Elements,
    IndicesTuple,
    MinerLike,
    TupleLoss,
    mean_or_zero,
    nonzero_mean,
)
from uncollapse.losses._frame import unit_rows
from uncollapse.losses._pairs import chosen_pairs, pair_distances

__all__ = ["ContrastiveLoss", "contrastive_loss"]

_REDUCTIONS = ("mean", "nonzero", "pairs")


def contrastive_loss(
    embeddings: Tensor,
    labels: ArrayLike,
    indices_tuple: IndicesTuple | None = None,
    *,
    margin: float = 1.0,
    miner: MinerLike | None = None,
    normalize: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Contrastive loss of a batch; see `ContrastiveLoss`.

    >>> contrastive_loss(torch.tensor([[0.0], [0.5], [0.75]]), [0, 0, 1])  # 0.5 + mean(0.25, 0.75)
    tensor(1.)
    """
    loss = ContrastiveLoss(margin, miner, normalize, reduction)
    return loss(embeddings, labels, indices_tuple)  # type: ignore[no-any-return]


class ContrastiveLoss(TupleLoss):
    """d(a, p) over positive pairs plus [margin - d(a, n)]₊ over negative pairs.

    Needs nothing of a batch, but pairs of both kinds to be of use. Without a miner all N(N - 1)
    ordered pairs are charged; with one, or with an `indices_tuple`, each triplet (a, p, n) it names
    charges the pairs (a, p) and (a, n). `Miner("easy", "hard")` pulls only on nearest positives.

    Siblings: `MarginLoss` also leaves positives alone once they are near enough, and learns where
    the boundary is; `TripletLoss` has no fixed scale at all.

    Collapse: when all embeddings coincide the loss is `margin` (0 without negative pairs) and the
    gradient 0. It always pulls the classes to points (EPS §4.1: class collapse is its optimum).

    Args:
        margin: distance beyond which a negative pair is not charged.
        miner: chooses the pairs.
        normalize: divide embeddings by their norms first; EPS and PML do.
        reduction: `"mean"`: mean over the positive pairs plus mean over the negative pairs;
            `"nonzero"`: the same over the pairs with a positive loss (PML); `"pairs"`: mean over
            all pairs together, the weighting of EPS §4.1.

    >>> z = torch.zeros(4, 2, requires_grad=True)
    >>> ContrastiveLoss(margin=0.5)(z, [0, 0, 1, 1]).item()
    0.5
    """

    def __init__(
        self,
        margin: float = 1.0,
        miner: MinerLike | None = None,
        normalize: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        check_choice("reduction", reduction, _REDUCTIONS)
        self.margin, self.miner = check_number("margin", margin, 0.0), miner
        self.normalize, self.reduction = normalize, reduction

    def elements(
        self, embeddings: Tensor, labels: ArrayLike, indices_tuple: IndicesTuple | None = None
    ) -> Elements:
        """One entry a pair, positive pairs first; `pull` is their distance."""
        x = points(embeddings, "embeddings")
        y = unit_rows(x, self.normalize)
        pairs = chosen_pairs(y, labels, indices_tuple, self.miner)
        anchor = torch.cat([pairs.anchor, pairs.other])
        distance = pair_distances(y, anchor, torch.cat([pairs.positive, pairs.negative]))
        near, far = distance[: len(pairs.anchor)], distance[len(pairs.anchor) :]
        loss = torch.cat([near, (self.margin - far).clamp(min=0.0)])
        pull = torch.cat([near.detach(), torch.full_like(far, -torch.inf)])
        return Elements(loss.to(x.dtype), pull, anchor)

    def reduce(self, elements: Elements) -> Tensor:
        """As `reduction` says."""
        if self.reduction == "pairs":
            return mean_or_zero(elements.loss)
        positive = elements.pull > -torch.inf
        mean = nonzero_mean if self.reduction == "nonzero" else mean_or_zero
        return mean(elements.loss[positive]) + mean(elements.loss[~positive])
