"""ProxyNCA: Movshovitz-Attias et al. 2017 (5), with several proxies a class for easy positives."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from uncollapse._base.arrays import ArrayLike, points
from uncollapse._base.check import InputError, check_int, check_number
from uncollapse.distances import pairwise_distances
from uncollapse.losses._elements import Elements, IndicesTuple, MinerLike, TupleLoss, mean_or_zero
from uncollapse.losses._frame import unit_rows
from uncollapse.losses._rows import row_numbers
from uncollapse.mining import as_pairs

__all__ = ["ProxyNCALoss", "proxy_nca_loss"]


def proxy_nca_loss(
    embeddings: Tensor,
    labels: ArrayLike,
    proxies: Tensor,
    indices_tuple: IndicesTuple | None = None,
    *,
    scale: float = 3.0,
    exclude_positive: bool = True,
    miner: MinerLike | None = None,
) -> Tensor:
    """ProxyNCA of a batch with `proxies` `[classes, per_class, dim]`; see `ProxyNCALoss`.

    >>> corners = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> proxy_nca_loss(torch.tensor([[5.0, 0.0]]), [0], corners, scale=1.0)  # 0 - 2
    tensor(-2.)
    """
    return mean_or_zero(
        _elements(embeddings, labels, proxies, indices_tuple, scale, exclude_positive, miner).loss
    )


class ProxyNCALoss(TupleLoss):
    """d²(x, p_y) + log Σ_z exp(-d²(x, p_z)) over the proxies p_z of the other classes z.

    x and the proxies p are divided by their norms and multiplied by `scale` first. The proxies are
    learned: give this module's parameters to the optimiser (commonly at a higher rate). Labels are
    0 to `num_classes` - 1.

    Needs nothing of a batch: the positive and the negatives of each sample are proxies. So a miner
    has no pairs to choose here; with one, or an `indices_tuple`, the samples it names as anchors
    are charged, once each, and the others are not. What easy positives are to sampled pairs,
    `per_class` is here: of several proxies of its class a sample is pulled to the nearest alone,
    and its class's other proxies are not charged, so a class may keep that many modes.

    Siblings: `SupConLoss` and `NPairLoss` have samples for proxies; all pull a class with one
    proxy to one point.

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
        per_class: number of proxies a class.
        miner: restricts the anchors, see above.
        generator: source of the starting proxies, standard normal rows.

    >>> loss = ProxyNCALoss(3, 2, generator=torch.Generator().manual_seed(0))
    >>> loss(torch.randn(4, 2, generator=torch.Generator().manual_seed(1)), [0, 1, 2, 0]).ndim
    0
    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        scale: float = 3.0,
        exclude_positive: bool = True,
        per_class: int = 1,
        miner: MinerLike | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        shape = (
            check_int("num_classes", num_classes, 2),
            check_int("per_class", per_class),
            check_int("dim", dim),
        )
        self.scale = check_number("scale", scale, 1e-6)
        self.exclude_positive, self.miner = exclude_positive, miner
        self.proxies = nn.Parameter(torch.randn(shape, generator=generator))

    def elements(
        self, embeddings: Tensor, labels: ArrayLike, indices_tuple: IndicesTuple | None = None
    ) -> Elements:
        """One entry a sample; `pull` is its squared distance to its proxy."""
        return _elements(
            embeddings,
            labels,
            self.proxies,
            indices_tuple,
            self.scale,
            self.exclude_positive,
            self.miner,
        )

    def reduce(self, elements: Elements) -> Tensor:
        """Mean over the samples."""
        return mean_or_zero(elements.loss)


def _elements(
    embeddings: Tensor,
    labels: ArrayLike,
    proxies: Tensor,
    indices_tuple: IndicesTuple | None,
    scale: float,
    exclude_positive: bool,
    miner: MinerLike | None,
) -> Elements:
    x = points(embeddings, "embeddings")
    classes, per_class, dim = proxies.shape
    if x.shape[1] != dim:
        raise InputError("embeddings", f"{x.shape[1]} columns", f"{dim} as the proxies have")
    own = row_numbers(labels, len(x), classes, "labels").to(x.device)
    y = unit_rows(x, True)
    if indices_tuple is None and miner is not None:
        indices_tuple = miner(y.detach(), labels)
    if indices_tuple is None:
        anchor = torch.arange(len(x), device=x.device)
    else:
        pairs = as_pairs(indices_tuple, labels)
        anchor = torch.unique(torch.cat([pairs.anchor, pairs.other])).to(x.device)
    if len(anchor) == 0:
        return Elements(x.sum(1)[:0], torch.zeros(0, device=x.device), anchor)
    flat = unit_rows(proxies.reshape(-1, dim).to(x.device), True)
    square = scale**2 * pairwise_distances(y[anchor], flat, squared=True)
    square = square.view(len(anchor), classes, per_class)
    inside = square.gather(1, own[anchor, None, None].expand(-1, 1, per_class))[:, 0]
    near = inside.amin(1)
    other = torch.arange(classes, device=x.device) != own[anchor, None]
    spread = (-square).masked_fill(~other[:, :, None], -torch.inf).flatten(1)
    if not exclude_positive:
        spread = torch.cat([spread, -near[:, None]], dim=1)
    loss = near + torch.logsumexp(spread, dim=1)  # Movshovitz-Attias et al. (5)
    return Elements(loss.to(x.dtype), near.detach(), anchor)
