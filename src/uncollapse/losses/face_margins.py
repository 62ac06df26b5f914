"""ArcFace and CosFace: Deng et al. 2019 (3), Wang et al. 2018; sub-centres: Deng 2020."""

import math
from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from uncollapse.losses.base import Batch, Elements, LossInfo, Named, Number
from uncollapse.losses.proxies import Compared, ProxyLoss, softmax_loss


def arc_margin(cosine: Tensor, square: Tensor, margin: float) -> Tensor:
    """cos(θ + m): Deng et al. (3); cos θ - m sin m beyond θ = π - m, so that it keeps falling.

    `square` is the squared chord 2 - 2 cos θ, by which sin θ keeps its digits where θ is small.

    >>> cosine = torch.tensor([1.0, 0.0, -1.0])
    >>> arc_margin(cosine, 2 - 2 * cosine, 0.5)
    tensor([ 0.8776, -0.4794, -1.2397])
    """
    product = square * (1.0 - 0.25 * square)  # sin² θ
    inside = (product > 0) & (cosine > -math.cos(margin))
    sine = torch.where(inside, product, 1.0).sqrt() * inside
    turned = cosine * math.cos(margin) - sine * math.sin(margin)
    return torch.where(cosine >= -math.cos(margin), turned, cosine - margin * math.sin(margin))


class MarginSoftmax(ProxyLoss):
    """Cross-entropy of scaled cosines, the own class's with a margin."""

    usual_margin: ClassVar[float]

    def __init__(
        self,
        *,
        num_classes: int,
        dim: int,
        margin: float | None = None,
        scale: float = 64.0,
        sub_centers: int = 1,
        miner: nn.Module | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(num_classes, dim, miner, generator, sub_centers, "sub_centers")
        self.margin = self.usual_margin if margin is None else margin
        self.scale = scale

    @abstractmethod
    def with_margin(self, cosine: Tensor, compared: Compared) -> Tensor:
        """The own class's cosine as the softmax sees it."""

    def listed(self, batch: Batch, tuples: Named) -> Elements:
        """One entry per sample; `pull` is minus its cosine with its nearest sub-centre."""
        compared = self.compared(batch, tuples)
        every, own_column = compared.cosine, compared.own[:, None]
        cosine = every[:, 0] if every.shape[1] == 1 else every.amax(1)  # Deng et al. 2020
        near = cosine.gather(1, own_column)[:, 0]
        logit = self.scale * self.with_margin(near, compared)
        loss = softmax_loss(cosine, own_column, logit, self.scale).to(batch.rows.dtype)
        return Elements(loss, -near.detach(), compared.anchor).take(compared.real)


class ArcFaceLoss(MarginSoftmax):
    """-log softmax of s cos(θ_y + m) among s cos θ_j, the angles θ of a sample to class vectors.

    Deng et al. 2019 (3), with s `scale` and m `margin`; embeddings and class vectors, `proxies`,
    are always normalised. Beyond θ_y = π - m, where cos(θ_y + m) would rise again, it is
    cos θ_y - m sin m, as in the authors' code. With `sub_centers` above 1 a class has that many
    vectors, and its θ is to the nearest (Deng et al. 2020): a class may keep so many modes, and
    wrong labels gather at a centre of their own.

    The class vectors are learned: give this module's parameters to the optimiser. Labels are 0 to
    `num_classes` - 1, or at most so many names, which are numbered as they first come and saved
    with the loss. Needs nothing of a batch. With a miner, or with tuples, the samples they name as
    anchors count, once each, and the others do not.

    Siblings: `CosFaceLoss` takes the margin off the cosine; `ProxyNCALoss(exclude_positive=False)`
    is a softmax without one; `SoftTripleLoss` has soft sub-centres; `IdentityLoss` adds a plain
    classifier to another loss.

    Collapse: when all embeddings coincide the gradient is not 0 as long as the class vectors
    differ: each class is pulled to its own. When these coincide as well the loss is
    log(1 + (num_classes - 1) exp(s (1 - cos m))) and the gradient 0. Near its class vector a
    sample's pull does not vanish, so where the vectors themselves lie in a cone it holds the cone
    (drift +7.9 on such digits with fitted vectors, +0.02 at a point; elsewhere it spreads: -0.16
    untrained, -1.9 healthy). With one centre its mode drift is above 0 in every state: it does
    nothing against class collapse.

    Args:
        num_classes: number of classes, at least 2.
        dim: embedding dimension.
        margin: m, an angle in radians (PML asks for degrees); 0.5 if not given.
        scale: s.
        sub_centers: number of vectors per class; Deng et al. 2020 have 3.
        miner: restricts the samples, see above.
        generator: source of the starting vectors, standard normal rows.

    >>> loss = ArcFaceLoss(num_classes=2, dim=2, margin=0.5, scale=1.0)
    >>> loss.proxies.data = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> value = loss(torch.tensor([[5.0, 0.0]]), [0])  # log(1 + exp(0 - cos 0.5))
    >>> round(value.item(), 4)
    0.3477
    """

    info = LossInfo("arcface", {"ArcFace": {}}, gentle={"scale": 4.0})
    resting = "ln(1 + other_classes * exp(scale * (cosine - cos(acos(cosine) + margin))))"
    usual_margin = 0.5
    margin = Number(0.0, math.pi / 2)
    scale = Number(1e-6)

    def with_margin(self, cosine: Tensor, compared: Compared) -> Tensor:
        """cos(θ + m)."""
        return arc_margin(cosine, compared.own_squares(cosine), self.margin)


class CosFaceLoss(MarginSoftmax):
    """-log softmax of s (cos θ_y - m) among s cos θ_j, the angles θ of a sample to class vectors.

    Wang et al. 2018, with s `scale` and m `margin`; also known as AM-softmax. All else as
    `ArcFaceLoss`: normalisation, learned class vectors `proxies`, `sub_centers`, labels, miners.

    Needs nothing of a batch.

    Siblings: `ArcFaceLoss` adds the margin to the angle; with `margin=0` both are a softmax of
    cosines.

    Collapse: when all embeddings coincide the gradient is not 0 as long as the class vectors
    differ. When these coincide as well the loss is log(1 + (num_classes - 1) exp(s m)) and the
    gradient 0. On digits with fitted vectors it spreads a point and a cone (drift -0.16 and -0.88)
    and merges modes in every state: it works against network collapse, and with one centre not
    against class collapse.

    Args:
        num_classes: number of classes, at least 2.
        dim: embedding dimension.
        margin: m, of cosines; 0.35 if not given.
        scale: s.
        sub_centers: number of vectors per class.
        miner: restricts the samples.
        generator: source of the starting vectors, standard normal rows.

    >>> loss = CosFaceLoss(num_classes=2, dim=2, margin=0.5, scale=1.0)
    >>> loss.proxies.data = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> value = loss(torch.tensor([[5.0, 0.0]]), [0])  # log(1 + exp(0 - 0.5))
    >>> round(value.item(), 4)
    0.4741
    """

    info = LossInfo("cosface", {"CosFace": {}}, gentle={"scale": 4.0})
    resting = "ln(1 + other_classes * exp(scale * margin))"
    usual_margin = 0.35
    margin = Number(0.0, 2.0)
    scale = Number(1e-6)

    def with_margin(self, cosine: Tensor, compared: Compared) -> Tensor:
        """cos θ - m."""
        return cosine - self.margin
