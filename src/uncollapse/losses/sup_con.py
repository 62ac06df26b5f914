"""Supervised contrastive loss: Khosla et al. 2020 (2); with easy positives, EPS §6."""

import torch
from torch import Tensor, nn

from uncollapse.losses.base import Batch, Elements, LossInfo, Named
from uncollapse.losses.classwise import NONE
from uncollapse.losses.nt_xent import PairSoftmax
from uncollapse.losses.on_graph import cosines, log_sum


class SupConLoss(PairSoftmax):
    """-log softmax of an anchor's positives among all others, mean over positives, then anchors.

    For anchor a with positives P and others A: mean over p in P of
    -s_ap / T + log Σ_{j in A} exp(s_aj / T), with cosines s. Embeddings are always normalised.
    Without a miner P is the rest of the class and A the rest of the batch.

    With a miner, or with tuples, P is the set of positives and A the set of positives and
    negatives they name for a. `Miner("easy", "all")` is EPS's stated future work: each anchor is
    pulled to its nearest positive alone, and its other positives are in no one's denominator, so
    the modes of a class stay apart.

    Needs a class with two samples; anchors without a positive are left out.

    Siblings: `NPairLoss` has one positive per class and no normalisation; `ProxyNCALoss` learned
    class proxies in place of samples; `NTXentLoss` leaves other positives out of the
    denominator; `MultiSimilarityLoss` takes positives and negatives apart.

    Collapse: when all embeddings coincide the loss is log(N - 1), the mean of log |A| in general,
    and the gradient 0; around that point the loss spreads classes, whatever the scale.

    >>> SupConLoss()(torch.ones(4, 2), [0, 0, 1, 1])  # log 3
    tensor(1.0986)
    >>> from uncollapse.mining import Miner
    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.0, 1.0], [1.0, 1.0]])
    >>> loss = SupConLoss(temperature=1.0, miner=Miner("easy", "all"))
    >>> round(loss(z, [0, 0, 1, 1, 1]).item(), 4)
    0.8285
    """

    info = LossInfo("sup-con", {"SupCon": {}}, gentle={"temperature": 0.5})
    resting = "ln(rows - 1)"

    def __init__(self, *, temperature: float = 0.1, miner: nn.Module | None = None) -> None:
        super().__init__(temperature=temperature, miner=miner)

    def listed(self, batch: Batch, tuples: Named) -> Elements:
        """One entry per pair of anchor and positive; `pull` is minus their cosine."""
        anchor, other, positive, negative, real = self.pair_sets(batch, tuples)
        # Only distances need the digits of float64: exponents of cosines do not.
        cosine = cosines(batch).to(batch.rows.dtype)
        logit = (cosine / self.temperature).masked_fill(~(positive | negative), -torch.inf)
        similarity = cosine[anchor, other]
        loss = (log_sum(logit)[anchor] - similarity / self.temperature).to(batch.rows.dtype)
        return Elements(loss, -similarity.detach(), anchor).take(real)

    def reduce(self, elements: Elements) -> Tensor:
        """Mean over the pairs of an anchor, then over the anchors that have counted."""
        loss, _, anchor, real = elements
        first = torch.searchsorted(anchor, anchor)  # of those of the same anchor
        counted = torch.ones_like(anchor) if real is None else real.to(anchor.dtype)
        count = torch.zeros_like(anchor).index_add_(0, first, counted)
        return (loss / count[first].clamp(min=1)).sum() / (count > 0).sum().clamp(min=1)

    # The fast way: value and gradient together, off the graph.

    @staticmethod
    def charge(near: Tensor, far: Tensor, highest: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Khosla et al. (2) of each row, and its derivatives."""
        real = near > NONE
        count = real.sum(1, keepdim=True)
        among = torch.logaddexp(torch.logsumexp(near, 1, keepdim=True), far)
        share = real / count.clamp(min=1).to(near.dtype)
        loss = (share * (among - near)).sum(1, keepdim=True)
        pull = torch.where(real, (near - among).exp() - share, 0.0)
        return loss, pull, (far - among).exp() * (count > 0)

    @staticmethod
    def terms(positives: Tensor) -> Tensor:
        """The anchors that have a positive."""
        return (positives > 0).sum()
