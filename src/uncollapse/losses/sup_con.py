"""Supervised contrastive loss: Khosla et al. 2020 (2); with easy positives, EPS §6."""

from __future__ import annotations

import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike, points
from uncollapse._base.check import check_number
from uncollapse.losses._elements import Elements, IndicesTuple, MinerLike, TupleLoss
from uncollapse.losses._frame import unit_rows
from uncollapse.losses._pairs import chosen_pairs, cosines, pair_mask

__all__ = ["SupConLoss", "sup_con_loss"]


def sup_con_loss(
    embeddings: Tensor,
    labels: ArrayLike,
    indices_tuple: IndicesTuple | None = None,
    *,
    temperature: float = 0.1,
    miner: MinerLike | None = None,
) -> Tensor:
    """Supervised contrastive loss of a batch; see `SupConLoss`.

    >>> sup_con_loss(torch.ones(4, 2), [0, 0, 1, 1])  # log 3
    tensor(1.0986)
    """
    return SupConLoss(temperature, miner)(embeddings, labels, indices_tuple)  # type: ignore[no-any-return]


class SupConLoss(TupleLoss):
    """-log softmax of an anchor's positives among all others, mean over positives, then anchors.

    For anchor a with positives P and others A: mean over p in P of
    -s_ap / T + log Σ_{j in A} exp(s_aj / T), with cosines s. Embeddings are always normalised.
    Without a miner P is the rest of the class and A the rest of the batch.

    With a miner, or an `indices_tuple`, P is the set of positives and A the set of positives and
    negatives it names for a. `Miner("easy", "all")` is EPS's stated future work: each anchor is
    pulled to its nearest positive alone, and its other positives are in no one's denominator, so
    the modes of a class stay apart.

    Needs a class with two samples; anchors without a positive are left out.

    Siblings: `NPairLoss` has one positive a class and no normalisation; `ProxyNCALoss` learned
    class proxies in place of samples; `MultiSimilarityLoss` charges positives and negatives apart.

    Collapse: when all embeddings coincide the loss is log(N - 1), the mean of log |A| in general,
    and the gradient 0; around that point the loss spreads classes, whatever the scale.

    >>> from uncollapse.mining import Miner
    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.0, 1.0], [1.0, 1.0]])
    >>> loss = SupConLoss(temperature=1.0, miner=Miner("easy", "all"))
    >>> round(loss(z, [0, 0, 1, 1, 1]).item(), 4)
    0.8285
    """

    def __init__(self, temperature: float = 0.1, miner: MinerLike | None = None) -> None:
        super().__init__()
        self.temperature = check_number("temperature", temperature, 1e-6)
        self.miner = miner

    def elements(
        self, embeddings: Tensor, labels: ArrayLike, indices_tuple: IndicesTuple | None = None
    ) -> Elements:
        """One entry a pair of anchor and positive; `pull` is minus their cosine."""
        x = points(embeddings, "embeddings")
        y = unit_rows(x, True)
        pairs = chosen_pairs(y, labels, indices_tuple, self.miner, unique=True)
        anchor, positive, other, negative = pairs
        cosine = cosines(y)
        others = pair_mask(len(x), torch.cat([anchor, other]), torch.cat([positive, negative]))
        logit = (cosine / self.temperature).masked_fill(~others, -torch.inf)
        # Rows without an entry are in no pair; a 0 keeps their logsumexp, and its gradient, finite.
        logit = logit.masked_fill(~others.any(1, keepdim=True), 0.0)
        log_sum = torch.logsumexp(logit, dim=1)
        similarity = cosine[anchor, positive]
        loss = log_sum[anchor] - similarity / self.temperature
        return Elements(loss.to(x.dtype), -similarity.detach(), anchor)

    def reduce(self, elements: Elements) -> Tensor:
        """Mean over the pairs of an anchor, then over the anchors that have one."""
        if len(elements.anchor) == 0:
            return elements.loss.sum()
        count = torch.bincount(elements.anchor)
        return (elements.loss / count[elements.anchor]).sum() / int((count > 0).sum())
