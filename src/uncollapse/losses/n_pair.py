"""N-pair loss: Sohn 2016 (6); with easy positives, Xuan et al. 2020."""

from __future__ import annotations

import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike, points
from uncollapse._base.check import check_number
from uncollapse._base.classes import ClassLayout
from uncollapse.losses._elements import Elements, IndicesTuple, MinerLike, TupleLoss, mean_or_zero
from uncollapse.losses._frame import unit_rows
from uncollapse.mining import as_pairs

__all__ = ["NPairLoss", "n_pair_loss"]


def n_pair_loss(
    embeddings: Tensor,
    labels: ArrayLike,
    indices_tuple: IndicesTuple | None = None,
    *,
    miner: MinerLike | None = None,
    normalize: bool = False,
    l2: float = 0.0,
) -> Tensor:
    """N-pair loss of a batch; see `NPairLoss`.

    >>> n_pair_loss(torch.eye(4)[[0, 0, 1, 1]], [0, 0, 1, 1])  # log(1 + e⁻¹)
    tensor(0.3133)
    """
    return NPairLoss(miner, normalize, l2)(embeddings, labels, indices_tuple)  # type: ignore[no-any-return]


class NPairLoss(TupleLoss):
    """log(1 + Σ_j exp(f·f⁺_j - f·f⁺)) over the pairs (f, f⁺), j the pairs of other classes.

    Inner products of the embeddings as they are; Sohn holds their norms down with `l2` (0.002
    there) instead of normalising.

    Needs two classes with two samples each. Without a miner the pairs are each class's first two
    samples, one pair a class: Sohn's batch of N pairs, and PML's choice. With a miner, or an
    `indices_tuple`, they are all distinct (anchor, positive) pairs it names, several a class, which
    are not each other's negatives; the negatives it names are not used. `Miner("easy", "hard")`
    gives every sample its nearest positive (Xuan et al. 2020); PML takes one pair a class.

    Siblings: `SupConLoss` is its normalised form over all samples; `ProxyNCALoss` has learned
    positives f⁺, one a class.

    Collapse: when all embeddings coincide the loss is log(number of classes) and the gradient 0,
    for one pair a class; in general log(1 + pairs of other classes), and a positive of a class with
    fewer pairs than the others is pushed along the common embedding.

    Args:
        miner: chooses the positive pairs.
        normalize: divide embeddings by their norms first; PML does, Sohn does not.
        l2: weight of (|f|² + |f⁺|²) / 2, mean over the pairs.

    >>> from uncollapse.mining import Miner
    >>> z = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    >>> NPairLoss(miner=Miner("easy", "hard"))(z, [0, 0, 1, 1])
    tensor(0.2395)
    """

    def __init__(
        self, miner: MinerLike | None = None, normalize: bool = False, l2: float = 0.0
    ) -> None:
        super().__init__()
        self.miner, self.normalize, self.l2 = miner, normalize, check_number("l2", l2, 0.0)

    def elements(
        self, embeddings: Tensor, labels: ArrayLike, indices_tuple: IndicesTuple | None = None
    ) -> Elements:
        """One entry a pair of anchor and positive; `pull` is minus their inner product."""
        x = points(embeddings, "embeddings")
        y = unit_rows(x, self.normalize)
        layout = ClassLayout.of(labels, len(x))
        if indices_tuple is None and self.miner is not None:
            indices_tuple = self.miner(y.detach(), labels)
        if indices_tuple is None:
            whole = layout.counts > 1
            first = torch.from_numpy(layout.order[layout.starts[whole]])
            second = torch.from_numpy(layout.order[layout.starts[whole] + 1])
        else:
            first, second, *_ = as_pairs(indices_tuple, labels, unique=True)
        anchor, positive = first.to(x.device), second.to(x.device)
        ids = torch.from_numpy(layout.ids).to(x.device)[anchor]
        product = y[anchor] @ y[positive].T
        own = product.diagonal()
        gap = (product - own[:, None]).masked_fill(ids[:, None] == ids, -torch.inf)
        one = gap.new_zeros(len(gap), 1)
        loss = torch.logsumexp(torch.cat([one, gap], dim=1), dim=1)  # Sohn (6)
        if self.l2:
            squares = y[anchor].square().sum(1) + y[positive].square().sum(1)
            loss = loss + self.l2 * squares / 2
        # With one class alone there is nothing to compare: no tuple.
        kept = (ids[:, None] != ids).any(1)
        return Elements(loss.to(x.dtype), -own.detach(), anchor).take(kept)

    def reduce(self, elements: Elements) -> Tensor:
        """Mean over the pairs."""
        return mean_or_zero(elements.loss)
