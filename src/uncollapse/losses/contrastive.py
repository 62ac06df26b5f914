"""Contrastive loss: EPS §3, HNM §5 (its minus sign is a misprint), Hadsell et al. 2006."""

import torch
from torch import Tensor, nn

from uncollapse.losses import base
from uncollapse.losses.base import Batch, Choice, Elements, LossInfo, Named, Number, TupleLoss
from uncollapse.losses.on_graph import mean_or_zero


class ContrastiveLoss(TupleLoss):
    """[d(a, p) - pos_margin]₊ over positive pairs plus [margin - d(a, n)]₊ over negative pairs.

    Needs nothing of a batch, but pairs of both kinds to be of use. Without a miner all N(N - 1)
    ordered pairs count; with one, or with tuples, each triplet (a, p, n) they name gives the pairs
    (a, p) and (a, n). `Miner("easy", "hard")` pulls only on nearest positives.

    Siblings: `MarginLoss` also leaves positives alone once they are near enough, and learns where
    the boundary is; `TripletLoss` has no fixed scale at all.

    Collapse: when all embeddings coincide the loss is `margin` (0 without negative pairs) and the
    gradient 0. It always pulls the classes to points (EPS §4.1: class collapse is its optimum).

    Args:
        margin: distance beyond which a negative pair costs nothing.
        pos_margin: distance up to which a positive pair costs nothing.
        miner: chooses the pairs.
        normalize: divide embeddings by their norms first; EPS and PML do.
        reduction: `"mean"`: mean over the positive pairs plus mean over the negative pairs;
            `"nonzero"`: the same over the pairs with a positive loss (PML); `"pairs"`: mean over
            all pairs together, the weighting of EPS §4.1.
        distance: `"euclidean"`; `"squared"`: d² in place of d; `"cosine"`: 1 - cos, of normalised
            embeddings.

    >>> ContrastiveLoss()(torch.tensor([[0.0], [0.5], [0.75]]), [0, 0, 1])  # 0.5 + mean(0.25, 0.75)
    tensor(1.)
    >>> ContrastiveLoss(margin=0.5)(torch.zeros(4, 2), [0, 0, 1, 1])
    tensor(0.5000)
    """

    info = LossInfo("contrastive", {"contrastive": {"margin": 1.0}})
    resting = "margin if cosine == 1 and reduction != 'pairs' else nan"
    reduction = Choice("mean", "nonzero", "pairs")
    distance = base.DistanceChoice()
    margin = Number(0.0)
    pos_margin = Number(0.0)

    def __init__(
        self,
        *,
        margin: float = 1.0,
        pos_margin: float = 0.0,
        miner: nn.Module | None = None,
        normalize: bool = False,
        reduction: str = "mean",
        distance: str = "euclidean",
    ) -> None:
        super().__init__(miner=miner, normalize=normalize, reduction=reduction)
        self.margin, self.pos_margin, self.distance = margin, pos_margin, distance

    def listed(self, batch: Batch, tuples: Named) -> Elements:
        """One entry per pair, positive pairs first; `pull` is their distance."""
        anchor, distance, positive = self.pairs(batch, tuples, self.distance)
        gap = torch.where(positive, distance - self.pos_margin, self.margin - distance)  # EPS §3
        pull = distance.detach().masked_fill(~positive, -torch.inf)
        return Elements(gap.relu().to(batch.rows.dtype), pull, anchor)

    def reduce(self, elements: Elements) -> Tensor:
        """As `reduction` says."""
        if self.reduction == "pairs":
            return mean_or_zero(elements.loss, elements.real)
        return base.sum_of_means(elements, nonzero=self.reduction == "nonzero")
