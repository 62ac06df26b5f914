"""SoftTriple loss: Qian et al. 2019, with several soft centres per class."""

import torch
from torch import Tensor, nn

from uncollapse.losses.base import Batch, Elements, LossInfo, Named, Number
from uncollapse.losses.proxies import ProxyLoss, softmax_loss


def soft_assigned(cosine: Tensor, gamma: float) -> Tensor:
    """Σ_k softmax_k(s_k / γ) s_k over a class's centres, the second dimension.

    >>> soft_assigned(torch.tensor([[[1.0], [0.0]]]), 0.1)
    tensor([[1.0000]])
    """
    share = torch.softmax(cosine / gamma, dim=1)
    return (share * cosine).sum(1)


class SoftTripleLoss(ProxyLoss):
    """-log softmax of λ(S_y - δ) among λ S_c, S_c = Σ_k softmax_k(s_ck / γ) s_ck over K centres.

    With cosines s of a sample with the `centers_per_class` centres k of class c, `proxies`, which
    are learned: Qian et al., λ `la`, δ `margin`, γ `gamma`. A sample is compared with a
    class by the centres it is near, so a class may keep K modes; `tau` weighs the mean distance
    between the centres of a class, over 2, which merges those that are not needed.

    Give this module's parameters to the optimiser. Labels are 0 to `num_classes` - 1, or at most so
    many names, which are numbered as they first come and saved with the loss. Needs nothing of a
    batch. With a miner, or with tuples, the samples they name as anchors count, once each, and the
    others do not.

    Siblings: `ArcFaceLoss` and `CosFaceLoss` take the nearest sub-centre alone and larger margins;
    `ProxyNCALoss(per_class=K)` pulls to the nearest and pushes from all proxies of other classes.

    Collapse: when all embeddings coincide the gradient is not 0 as long as the centres differ. When
    these coincide as well the loss is log(1 + (num_classes - 1) exp(λδ)) and the gradient 0.
    On digits with fitted centres it spreads every collapsed state (drift -0.35 at a point, -1.2 in
    a cone), so it works against network collapse; its mode drift is above 0 in every state, so
    several centres alone do not keep the modes of a class.

    Args:
        num_classes: number of classes, at least 2.
        dim: embedding dimension.
        centers_per_class: K.
        la: λ.
        gamma: γ, the temperature of the assignment to centres.
        margin: δ.
        tau: weight of the regulariser; the paper has 0.2, PML leaves it out.
        miner: restricts the samples, see above.
        generator: source of the starting centres, standard normal rows.

    >>> loss = SoftTripleLoss(num_classes=2, dim=2, centers_per_class=1, la=1.0, margin=0.0)
    >>> loss.proxies.data = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> value = loss(torch.tensor([[5.0, 0.0]]), [0])  # log(1 + e⁻¹)
    >>> round(value.item(), 4)
    0.3133
    """

    info = LossInfo("soft-triple", {"SoftTriple": {}}, gentle={"la": 4.0})
    resting = "ln(1 + other_classes * exp(la * margin)) if tau == 0 else nan"
    la = Number(1e-6)
    gamma = Number(1e-6)
    margin = Number(0.0)
    tau = Number(0.0)

    def __init__(
        self,
        *,
        num_classes: int,
        dim: int,
        centers_per_class: int = 10,
        la: float = 20.0,
        gamma: float = 0.1,
        margin: float = 0.01,
        tau: float = 0.0,
        miner: nn.Module | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(num_classes, dim, miner, generator, centers_per_class, "centers_per_class")
        self.la, self.gamma, self.margin, self.tau = la, gamma, margin, tau

    def listed(self, batch: Batch, tuples: Named) -> Elements:
        """One entry per sample; `pull` is minus its similarity S_y with its class."""
        compared = self.compared(batch, tuples)
        own_column = compared.own[:, None]
        similarity = soft_assigned(compared.cosine, self.gamma)
        near = similarity.gather(1, own_column)[:, 0]
        loss = softmax_loss(similarity, own_column, self.la * (near - self.margin), self.la)
        elements = Elements(loss.to(batch.rows.dtype), -near.detach(), compared.anchor)
        return elements.take(compared.real)

    def reduce(self, elements: Elements) -> Tensor:
        """Mean over the samples, plus tau times half the mean distance of a class's centres."""
        loss = super().reduce(elements)
        centres = self.proxies.shape[1]
        if not self.tau or centres < 2:
            return loss
        unit = nn.functional.normalize(self.proxies.to(loss.device, torch.float64), dim=2)
        i, j = torch.triu_indices(centres, centres, 1, device=loss.device)
        gap = unit[:, i] - unit[:, j]
        apart = (gap != 0).any(2, keepdim=True)
        distance = torch.linalg.vector_norm(gap.masked_fill(~apart, 1.0), dim=2) * apart[:, :, 0]
        apart_by: Tensor = distance.mean().to(loss.dtype)
        return loss + 0.5 * self.tau * apart_by
