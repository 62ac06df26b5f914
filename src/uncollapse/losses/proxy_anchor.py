"""Proxy-anchor loss: Kim et al. 2020."""

import torch
from torch import Tensor, nn

from uncollapse.losses.base import Batch, Elements, LossInfo, Named, Number, sum_of_means
from uncollapse.losses.on_graph import log_one_plus, log_sum, log_sum_by
from uncollapse.losses.proxies import ProxyLoss


class ProxyAnchorLoss(ProxyLoss):
    """log(1 + Σ_x exp(-α(s_xp - δ))) over a proxy's own samples x, log(1 + Σ_x exp(α(s_xp + δ)))
    over the others; each is a mean over proxies p, the first over those with a sample.

    With cosines s, α `alpha` and δ `margin`: Kim et al. The proxies are learned, one per
    class: give this module's parameters to the optimiser (the paper: at 100 times the network's
    rate). Labels are 0 to `num_classes` - 1, or at most so many names, which are numbered as they
    first come and saved with the loss.

    Needs nothing of a batch, but is the better for several samples of a class: they share their
    proxy's pull by how far each still is. With a miner, or with tuples, the samples they name as
    anchors count, once each, and the others do not.

    Siblings: `ProxyNCALoss` has samples for anchors, each alone, and may have several proxies per
    class; `MultiSimilarityLoss` has the same two terms with samples in place of proxies.

    Collapse: when all embeddings coincide the loss is finite and its gradient is not 0, as long as
    the proxies differ: each class is pulled to its own. When these coincide as well the value is
    log(1 + |P| exp(-α(1 - δ))) + log(1 + |N| exp(α(1 + δ))), with |P| samples per proxy and |N| of
    other classes, and the gradient 0. On collapsed embeddings of digits, with fitted proxies, it
    spreads (drift -7.1 at a point, -5.9 in a cone) and merges modes (mode drift above 0 in every
    state): one proxy per class pulls a class to one point, so it works against network collapse
    and not against class collapse.

    Args:
        num_classes: number of classes, at least 2.
        dim: embedding dimension.
        margin: δ.
        alpha: α.
        miner: restricts the samples, see above.
        generator: source of the starting proxies, standard normal rows.

    >>> loss = ProxyAnchorLoss(num_classes=2, dim=2, alpha=1.0, margin=0.0)
    >>> loss.proxies.data = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> value = loss(torch.tensor([[5.0, 0.0]]), [0])  # log(1 + e⁻¹), and log(2) over 2 proxies
    >>> round(value.item(), 4)
    0.6598
    """

    info = LossInfo("proxy-anchor", {"ProxyAnchor": {}}, gentle={"alpha": 4.0})
    resting = (
        "ln(1 + (positives + 1) * exp(alpha * (margin - cosine)))"
        " + ln(1 + negatives * exp(alpha * (cosine + margin))) * classes / num_classes"
        " + ln(1 + rows * exp(alpha * (cosine + margin))) * (1 - classes / num_classes)"
    )
    margin = Number(0.0)
    alpha = Number(1e-6)

    def __init__(
        self,
        *,
        num_classes: int,
        dim: int,
        margin: float = 0.1,
        alpha: float = 32.0,
        miner: nn.Module | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(num_classes, dim, miner, generator)
        self.margin, self.alpha = margin, alpha

    def listed(self, batch: Batch, tuples: Named) -> Elements:
        """One entry per proxy with samples, then one per proxy for those of other classes.

        `anchor` is the proxy's class; `pull` is what its own samples cost.
        """
        _, own, cosine, *_, real = self.compared(batch, tuples)
        cosine = cosine[:, 0]
        number, own_column = torch.arange(cosine.shape[1], device=own.device), own[:, None]
        near = -self.alpha * (cosine.gather(1, own_column)[:, 0] - self.margin)
        near = near.masked_fill(~real, -torch.inf)
        far = (self.alpha * (cosine + self.margin)).scatter(1, own_column, -torch.inf)
        far = far.masked_fill(~real[:, None], -torch.inf)
        near = log_one_plus(log_sum_by(near, own, len(number)))
        far = log_one_plus(log_sum(far.T))
        some = torch.zeros_like(number).index_add_(0, own, real.to(own.dtype)) > 0
        loss = torch.cat([near, far]).to(batch.rows.dtype)
        pull = torch.cat([near.detach(), torch.full_like(far, -torch.inf)])
        every = torch.cat([some, torch.ones_like(some)])
        return Elements(loss, pull, torch.cat([number, number])).take(every)

    def reduce(self, elements: Elements) -> Tensor:
        """Mean over the proxies with samples, plus mean over all."""
        return sum_of_means(elements)
