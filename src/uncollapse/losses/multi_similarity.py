"""Multi-similarity loss: Wang et al. 2019 (14), and its EPS form (EPS §5.2.2)."""

from __future__ import annotations

import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike, points
from uncollapse._base.check import check_number
from uncollapse._base.classes import ClassLayout
from uncollapse.losses._classwise import SortedClasses
from uncollapse.losses._elements import Elements, IndicesTuple, MinerLike, TupleLoss, mean_or_zero
from uncollapse.losses._frame import Frame, attach, full_precision, unit_rows
from uncollapse.losses._pairs import chosen_pairs, cosines, pair_mask
from uncollapse.losses._similarity import Rules, Weights, multi_similarity
from uncollapse.mining import Miner

__all__ = ["MultiSimilarityLoss", "multi_similarity_loss"]


def multi_similarity_loss(
    embeddings: Tensor,
    labels: ArrayLike,
    indices_tuple: IndicesTuple | None = None,
    *,
    alpha: float = 2.0,
    beta: float = 50.0,
    base: float = 1.0,
    miner: MinerLike | None = None,
) -> Tensor:
    """Multi-similarity loss of a batch; see `MultiSimilarityLoss`.

    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> multi_similarity_loss(z, [0, 0, 1, 1])  # log(1 + 1) / 2: positives at the base
    tensor(0.3466)
    """
    x = points(embeddings, "embeddings")
    rules = None if indices_tuple is not None else _rules(miner)
    frame = Frame.of(x, normalize=True)
    if rules is None or frame.unit == 0.0:
        loss = MultiSimilarityLoss(alpha, beta, base, miner)
        return loss.reduce(loss.elements(embeddings, labels, indices_tuple))
    classes = SortedClasses.of(ClassLayout.of(labels, len(x)), x.device)
    if miner is not None and classes.triplets == 0:
        miner(frame.y, labels)  # says, once, why
    with torch.no_grad(), full_precision(x):
        value, gradient = multi_similarity(frame, classes, Weights(alpha, beta, base), rules)
    return attach(x, value, frame.pull_back(gradient))


class MultiSimilarityLoss(TupleLoss):
    """log(1 + Σ_p exp(-α(s_ap - λ)))/α + log(1 + Σ_n exp(β(s_an - λ)))/β, mean over anchors a.

    With cosines s; embeddings are always normalised. Without a miner all pairs are charged. With
    one, or with an `indices_tuple`, the sets of positives and of negatives it names for each
    anchor; anchors it leaves out count as 0 in the mean:

    - `Miner("multi_similarity", "multi_similarity")`: Wang et al.'s own mining, negatives with
      s_an > min s_ap - ε and positives with s_ap < max s_an + ε;
    - `Miner("easy", "multi_similarity")`: the EPS form, the nearest positive in place of positive
      hard-mining.

    These two, `"all"` in either place, and no miner, are mined and charged in one go with at most
    three N × N products; anything else takes several N × N matrices in float64.

    Needs nothing of a batch, but pairs of both kinds to be of use.

    Siblings: `SupConLoss` puts positives and negatives into one softmax; `ContrastiveLoss` charges
    each pair apart.

    Collapse: when all embeddings coincide all s are 1, the loss is log(1 + |P|)/α + log(1 + |N|)/β
    for λ = 1, with |P| and |N| pairs an anchor, and the gradient 0.

    Args:
        alpha: weight of the positives' exponents.
        beta: weight of the negatives' exponents.
        base: λ. EPS states 1, as Wang et al. do; PML's default, and the authors' code, is 0.5.
        miner: chooses the pairs.

    >>> from uncollapse.mining import Miner
    >>> loss = MultiSimilarityLoss(miner=Miner("easy", "multi_similarity"))
    >>> z = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.9, 0.1], [0.0, 1.0]])
    >>> round(loss(z, [0, 0, 1, 1]).item(), 4)
    0.7176
    """

    def __init__(
        self,
        alpha: float = 2.0,
        beta: float = 50.0,
        base: float = 1.0,
        miner: MinerLike | None = None,
    ) -> None:
        super().__init__()
        self.alpha, self.beta = check_number("alpha", alpha, 1e-6), check_number("beta", beta, 1e-6)
        self.base, self.miner = check_number("base", base), miner

    def forward(
        self, embeddings: Tensor, labels: ArrayLike, indices_tuple: IndicesTuple | None = None
    ) -> Tensor:
        """Loss of a batch; `indices_tuple` (ours or PML's) takes the place of the miner."""
        return multi_similarity_loss(
            embeddings,
            labels,
            indices_tuple,
            alpha=self.alpha,
            beta=self.beta,
            base=self.base,
            miner=self.miner,
        )

    def elements(
        self, embeddings: Tensor, labels: ArrayLike, indices_tuple: IndicesTuple | None = None
    ) -> Elements:
        """One entry a row, 0 if it has no pair; `pull` is the positives' part of it."""
        x = points(embeddings, "embeddings")
        y = unit_rows(x, True)
        pairs = chosen_pairs(y, labels, indices_tuple, self.miner, unique=True)
        gap = cosines(y) - self.base
        pulled = pair_mask(len(x), pairs.anchor, pairs.positive)
        pushed = pair_mask(len(x), pairs.other, pairs.negative)
        positive = _log_one_plus(-self.alpha * gap, pulled) / self.alpha
        negative = _log_one_plus(self.beta * gap, pushed) / self.beta
        pull = positive.detach().masked_fill(~pulled.any(1), -torch.inf)
        row = torch.arange(len(x), device=x.device)
        return Elements((positive + negative).to(x.dtype), pull, row)

    def reduce(self, elements: Elements) -> Tensor:
        """Mean over the rows."""
        return mean_or_zero(elements.loss)


def _log_one_plus(exponent: Tensor, mask: Tensor) -> Tensor:
    """log(1 + Σ exp) of each row's entries in the mask."""
    kept = exponent.masked_fill(~mask, -torch.inf)
    return torch.logsumexp(torch.cat([kept.new_zeros(len(kept), 1), kept], dim=1), dim=1)


def _rules(miner: MinerLike | None) -> Rules | None:
    """How to mine and charge in one go; None if the pairs must be named."""
    if miner is None:
        return Rules()
    if type(miner) is not Miner or miner.pool is not None or miner.keep != "all":
        return None
    if miner.positives not in ("all", "easy", "multi_similarity"):
        return None
    if miner.negatives not in ("all", "multi_similarity"):
        return None
    return Rules(miner.positives, miner.negatives, miner.epsilon, both=True)
