"""ProxyNCA: Movshovitz-Attias et al. 2017 (5), several proxies per class for easy positives."""

import torch
from torch import nn

from uncollapse._base.check import Setting, check_bool
from uncollapse.losses.base import Batch, Elements, LossInfo, Named, Number
from uncollapse.losses.proxies import ProxyLoss, softmax_loss


class ProxyNCALoss(ProxyLoss):
    """d²(x, p_y) + log Σ_z exp(-d²(x, p_z)) over the proxies p_z of the other classes z.

    x and the proxies p are divided by their norms and multiplied by `scale` first. The proxies are
    learned: give this module's parameters to the optimiser (commonly at a higher rate). Labels are
    0 to `num_classes` - 1, or at most so many names, which are numbered as they first come and
    saved with the loss.

    Needs nothing of a batch: the positive and the negatives of each sample are proxies. So a miner
    has no pairs to choose here; with one, or with tuples, the samples they name as anchors count,
    once each, and the others do not. What easy positives are to sampled pairs,
    `per_class` is here: of several proxies of its class a sample is pulled to the nearest alone,
    and its class's other proxies do not count, so a class may keep that many modes.

    Siblings: `ProxyAnchorLoss` weighs a proxy's samples against each other; `SupConLoss` and
    `NPairLoss` have samples for proxies; all pull a class with one proxy to one point.

    Collapse: when all embeddings coincide the mean of d²(x, p_y) over the classes is still that
    over the proxies: the loss is finite and its gradient is not 0, as long as the proxies differ.
    When these coincide as well it is log(num_classes - 1) with gradient 0.

    Args:
        num_classes: number of classes, at least 2.
        dim: embedding dimension.
        scale: norm given to embeddings and proxies; 3 is common with this loss (EPS's framework),
            1 is the bare formula.
        exclude_positive: the sum leaves the positive out, as in the paper; False puts it in, which
            makes it a softmax (PML, and ProxyNCA++), never below 0.
        per_class: number of proxies per class.
        miner: restricts the anchors, see above.
        generator: source of the starting proxies, standard normal rows.

    >>> loss = ProxyNCALoss(num_classes=2, dim=2, scale=1.0)
    >>> loss.proxies.data = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> loss(torch.tensor([[5.0, 0.0]]), [0])  # 0 - 2
    tensor(-2., grad_fn=<DivBackward0>)
    """

    info = LossInfo("proxy-nca", {"ProxyNCA": {}})
    resting = "ln(other_proxies) if exclude_positive else ln(1 + other_proxies)"
    scale = Number(1e-6)
    exclude_positive = Setting(check_bool)

    def __init__(
        self,
        *,
        num_classes: int,
        dim: int,
        scale: float = 3.0,
        exclude_positive: bool = True,
        per_class: int = 1,
        miner: nn.Module | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(num_classes, dim, miner, generator, per_class)
        self.scale, self.exclude_positive = scale, exclude_positive

    def listed(self, batch: Batch, tuples: Named) -> Elements:
        """One entry per sample; `pull` is its squared distance to its proxy."""
        compared = self.compared(batch, tuples)
        cosine, own_columns = compared.cosine.flatten(1), compared.columns
        near = cosine.gather(1, own_columns).amax(1)
        # d² = w (1 - cos), so d²(x, p_y) + log Σ exp(-d²(x, p_z)) = log Σ exp(w cos_z) - w cos_y.
        weight, among = 2 * self.scale**2, not self.exclude_positive
        loss = softmax_loss(cosine, own_columns, weight * near, weight, among=among)
        pull = weight * (1.0 - near.detach())
        return Elements(loss.to(batch.rows.dtype), pull, compared.anchor).take(compared.real)
