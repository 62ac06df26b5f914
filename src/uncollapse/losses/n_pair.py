"""N-pair loss: Sohn 2016 (6); with easy positives, Xuan et al. 2020."""

import torch
from torch import Tensor, nn

from uncollapse.distances import on_host
from uncollapse.losses.base import Batch, Elements, LossInfo, Named, Number, TupleLoss
from uncollapse.losses.on_graph import graph_rows, log_one_plus, log_sum


class NPairLoss(TupleLoss):
    """log(1 + Σ_j exp(f·f⁺_j - f·f⁺)) over the pairs (f, f⁺), j the pairs of other classes.

    Inner products of the embeddings as they are; Sohn holds their norms down with `l2` (0.002
    there) instead of normalising.

    Needs two classes with two samples each. Without a miner the pairs are each class's first two
    samples, one pair per class: Sohn's batch of N pairs, and PML's choice. With a miner, or with
    tuples, they are all distinct (anchor, positive) pairs they name, several per class, which are
    not each other's negatives; the negatives they name are not used. `Miner("easy", "hard")`
    gives every sample its nearest positive (Xuan et al. 2020); PML takes one pair per class.

    Siblings: `SupConLoss` is its normalised form over all samples; `ProxyNCALoss` has learned
    positives f⁺, one per class.

    Collapse: when all embeddings coincide the loss is log(number of classes) and the gradient 0,
    for one pair per class; in general log(1 + pairs of other classes), and a positive of a class
    with fewer pairs than the others is pushed along the common embedding.

    Args:
        miner: chooses the positive pairs.
        normalize: divide embeddings by their norms first; PML does, Sohn does not.
        l2: weight of (|f|² + |f⁺|²) / 2, mean over the pairs.

    >>> NPairLoss()(torch.eye(4)[[0, 0, 1, 1]], [0, 0, 1, 1])  # log(1 + e⁻¹)
    tensor(0.3133)
    >>> from uncollapse.mining import Miner
    >>> z = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    >>> NPairLoss(miner=Miner("easy", "hard"))(z, [0, 0, 1, 1])
    tensor(0.2395)
    """

    info = LossInfo("n-pair", {"N-pair": {}}, pml="NPairsLoss")
    resting = "ln(classes) if l2 == 0 else nan"
    labels_needed = True
    l2 = Number(0.0)

    def __init__(
        self, *, miner: nn.Module | None = None, normalize: bool = False, l2: float = 0.0
    ) -> None:
        super().__init__(miner=miner, normalize=normalize)
        self.l2 = l2

    def listed(self, batch: Batch, tuples: Named) -> Elements:
        """One entry per pair of anchor and positive; `pull` is minus their inner product."""
        rows = graph_rows(batch, self.normalize)
        anchor, positive, real = self._positive_pairs(batch, tuples)
        ids = batch.labels[anchor] if batch.labels is not None else anchor
        product = rows[anchor] @ rows[positive].T
        own = product.diagonal()
        other = ids[:, None] != ids
        if real is not None:
            other &= real & real[:, None]
        gap = (product - own[:, None]).masked_fill(~other, -torch.inf)
        loss = log_one_plus(log_sum(gap))  # Sohn (6)
        if self.l2:
            squares = rows[anchor].square().sum(1) + rows[positive].square().sum(1)
            loss = loss + self.l2 * squares / 2
        # With one class alone there is nothing to compare: no tuple.
        return Elements(loss.to(batch.rows.dtype), -own.detach(), anchor).take(other.any(1))

    def _positive_pairs(self, batch: Batch, tuples: Named) -> tuple[Tensor, Tensor, Tensor | None]:
        """Pairs of rows: named, or of each class its first anchor and its first positive."""
        if self.miner is not None or tuples is not None:
            anchor, positive, _, _, real = self.pair_sets(batch, tuples)
            return anchor, positive + batch.offset, real
        classes = batch.classes
        row = torch.arange(batch.count, device=batch.rows.device)
        some = classes.counts > 0
        first = torch.full((len(classes.order) + 1,), batch.count, device=row.device)
        first.scatter_reduce_(0, classes.low, torch.where(some, row, batch.count), "amin")
        chosen = some & (first[classes.low] == row)
        anchor = chosen.nonzero().flatten() if on_host(chosen) else row
        real = None if on_host(chosen) else chosen
        return anchor, classes.table[0][anchor, 0] + batch.offset, real
