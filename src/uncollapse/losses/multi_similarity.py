"""Multi-similarity loss: Wang et al. 2019 (14), and its EPS form (EPS §5.2.2)."""

import torch
from torch import Tensor, nn

from uncollapse.losses.base import Batch, Elements, LossInfo, Named, Number, TupleLoss, attach
from uncollapse.losses.classwise import ByClass, Rules, Weights, multi_similarity
from uncollapse.losses.on_graph import cosines, log_one_plus, log_sum, pair_mask
from uncollapse.mining.miner import Miner

__all__ = ["MultiSimilarityLoss"]


class MultiSimilarityLoss(TupleLoss):
    """log(1 + Σ_p exp(-α(s_ap - λ)))/α + log(1 + Σ_n exp(β(s_an - λ)))/β, mean over anchors a.

    With cosines s; embeddings are always normalised. Without a miner all pairs count. With one, or
    with tuples, the sets of positives and of negatives they name for each anchor; anchors they
    leave out count as 0 in the mean:

    - `Miner("multi_similarity", "multi_similarity")`: Wang et al.'s own mining, negatives with
      s_an > min s_ap - ε and positives with s_ap < max s_an + ε;
    - `Miner("easy", "multi_similarity")`: the EPS form, the nearest positive in place of positive
      hard-mining.

    These two, `"all"` in either place, and no miner, are mined and measured in one go with at most
    three N × N products; anything else takes several N × N matrices in float64.

    Needs nothing of a batch, but pairs of both kinds to be of use.

    Siblings: `SupConLoss` puts positives and negatives into one softmax; `ContrastiveLoss` takes
    each pair alone.

    Collapse: when all embeddings coincide all s are 1, the loss is log(1 + |P|)/α + log(1 + |N|)/β
    for λ = 1, with |P| and |N| pairs per anchor, and the gradient 0.

    Args:
        alpha: weight of the positives' exponents.
        beta: weight of the negatives' exponents.
        base: λ. EPS states 1, as Wang et al. do; PML's default, and the authors' code, is 0.5.
        miner: chooses the pairs.

    >>> loss = MultiSimilarityLoss(miner=Miner("easy", "multi_similarity"))
    >>> z = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.9, 0.1], [0.0, 1.0]])
    >>> round(loss(z, [0, 0, 1, 1]).item(), 4)
    0.7176
    """

    info = LossInfo("multi-similarity", {"multi-similarity": {}}, gentle={"beta": 5.0})
    alpha = Number(1e-6)
    beta = Number(1e-6)
    base = Number()

    def __init__(
        self,
        *,
        alpha: float = 2.0,
        beta: float = 50.0,
        base: float = 1.0,
        miner: nn.Module | None = None,
    ) -> None:
        super().__init__(miner=miner, normalize=True)
        self.alpha, self.beta, self.base = alpha, beta, base

    def listed(self, batch: Batch, tuples: Named) -> Elements:
        """One entry per row, 0 if it has no pair; `pull` is the positives' part of it."""
        pairs = self.pairs(batch, tuples, unique=True)
        gap = cosines(batch) - self.base
        pulled = pair_mask(gap, pairs.anchor, pairs.positive - batch.offset)
        pushed = pair_mask(gap, pairs.other, pairs.negative - batch.offset)
        near = (-self.alpha * gap).masked_fill(~pulled, -torch.inf)
        far = (self.beta * gap).masked_fill(~pushed, -torch.inf)
        positive = log_one_plus(log_sum(near)) / self.alpha  # Wang et al. (14)
        negative = log_one_plus(log_sum(far)) / self.beta
        pull = positive.detach().masked_fill(~pulled.any(1), -torch.inf)
        row = torch.arange(batch.count, device=gap.device)
        return Elements((positive + negative).to(batch.rows.dtype), pull, row)

    # The fast way: value and gradient together, off the graph.

    def value(self, batch: Batch, tuples: Named) -> Tensor:
        """The loss of a checked batch, mined and measured in one go where that can be."""
        rules = self._rules()
        listed = tuples is not None or batch.offset or batch.labels is None
        if rules is None or listed or batch.frame.collapsed:
            return super().value(batch, tuples)
        if self.miner is not None and batch.classes.triplets == 0:
            self.mined(batch)  # says, once, why
        with torch.no_grad():
            weights = Weights(self.alpha, self.beta, self.base)
            value, gradient = multi_similarity(
                ByClass.of(batch), 1 / batch.frame.zoom, weights, rules
            )
        return attach(batch, value, gradient, lambda again: TupleLoss.value(self, again, None))

    def _rules(self) -> Rules | None:
        """How to mine and charge in one go; None if the pairs must be named."""
        miner = self.miner
        if miner is None:
            return Rules()
        if not isinstance(miner, Miner) or not miner.sees_all or miner.keep != "all":
            return None
        if miner.positives not in ("all", "easy", "multi_similarity"):
            return None
        if miner.negatives not in ("all", "multi_similarity"):
            return None
        return Rules(miner.positives, miner.negatives, miner.epsilon, both=True)
