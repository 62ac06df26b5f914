"""Circle loss: Sun et al. 2020, on pairs."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from uncollapse.losses.base import Batch, Choice, Elements, LossInfo, Named, Number, TupleLoss
from uncollapse.losses.on_graph import among, cosines, log_sum, log_sum_by


def circle_pull(cosine: Tensor, margin: float, gamma: float) -> Tensor:
    """-γ α_p (s - 1 + m) of positive pairs, with the weight α_p = [1 + m - s]₊: Sun et al.

    No gradient goes through the weight.

    >>> circle_pull(torch.tensor(1.0), 0.4, 10.0)
    tensor(-1.6000)
    """
    weight = gamma * (1.0 + margin - cosine.detach()).clamp(min=0.0)
    return weight * (1.0 - margin - cosine)


def circle_push(cosine: Tensor, margin: float, gamma: float) -> Tensor:
    """γ α_n (s - m) of negative pairs, with the weight α_n = [s + m]₊: Sun et al.

    >>> circle_push(torch.tensor(1.0), 0.4, 10.0)
    tensor(8.4000)
    """
    weight = gamma * (cosine.detach() + margin).clamp(min=0.0)
    return weight * (cosine - margin)


class CircleLoss(TupleLoss):
    """log(1 + Σ_n exp(γ α_n (s_an - m)) · Σ_p exp(-γ α_p (s_ap - 1 + m))), mean over anchors a.

    With cosines s, m `margin`, γ `gamma` and the weights α_p = [1 + m - s_ap]₊, α_n = [s_an + m]₊,
    which are constants to the gradient: a pair is pulled or pushed by how far it is from its
    optimum, 1 + m or -m. So a second derivative is that of the formula with these weights fixed.
    Embeddings are always normalised. Without a miner all pairs count; with one, or with tuples, the
    sets of positives and of negatives they name for each anchor.

    Needs anchors with a positive and a negative; the others are left out.

    Siblings: `MultiSimilarityLoss` weighs pairs by exponents alone, and takes positives and
    negatives apart, so that it still pulls once negatives are far; `SupConLoss` has one weight for
    all.

    Collapse: when all embeddings coincide the loss is log(1 + |P| |N| exp(γ(1 - 2m²))), with |P|
    and |N| pairs per anchor, and the gradient 0. On embeddings of digits it
    spreads those collapsed to a point or a cone, and their modes (drift -0.20 and -0.25, mode drift
    -0.20 and -0.61): it leaves network collapse. It pulls together scattered directions with many
    far positives (drift +6.5 untrained, +152 at wrong labels) and merges modes everywhere else: it
    does not prevent class collapse.

    Args:
        margin: m; the paper has 0.25 for faces and re-ID, 0.4 for fine-grained retrieval.
        gamma: γ; 256, 128 and 80 there.
        miner: chooses the pairs.
        reduction: `"mean"`: over the anchors with pairs of both kinds; `"nonzero"`: over those
            whose loss is not rounded to 0 (PML).

    >>> loss = CircleLoss(margin=0.25, gamma=1.0)
    >>> loss(torch.ones(4, 2), [0, 0, 1, 1])  # log(1 + 2 exp(0.875))
    tensor(1.7575)
    """

    info = LossInfo("circle", {"circle": {}}, gentle={"gamma": 4.0})
    resting = "ln(1 + positives * negatives * exp(gamma * (1 - 2 * margin**2)))"
    reduction = Choice("mean", "nonzero")
    margin = Number(0.0, 1.0)
    gamma = Number(1e-6)

    def __init__(
        self,
        *,
        margin: float = 0.4,
        gamma: float = 80.0,
        miner: nn.Module | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(miner=miner, normalize=True, reduction=reduction)
        self.margin, self.gamma = margin, gamma

    def listed(self, batch: Batch, tuples: Named) -> Elements:
        """One entry per anchor with pairs of both kinds; `pull` is the positives' part of it."""
        anchor, other, positive, negative, real = self.pair_sets(batch, tuples)
        cosine = cosines(batch)
        near = among(circle_pull(cosine[anchor, other], self.margin, self.gamma), real, -torch.inf)
        far = circle_push(cosine, self.margin, self.gamma)
        pulled = log_sum_by(near, anchor, batch.count)
        pushed = log_sum(far.masked_fill(~negative, -torch.inf))
        loss = functional.softplus(pulled + pushed).to(batch.rows.dtype)
        row = torch.arange(batch.count, device=loss.device)
        return Elements(loss, pulled.detach(), row).take(positive.any(1) & negative.any(1))
