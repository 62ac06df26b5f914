"""Multi-similarity loss: Wang et al. 2019 (14), and its EPS form (EPS §5.2.2)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from uncollapse.distances.tiles import CLOSE
from uncollapse.losses.base import Batch, Elements, LossInfo, Named, Number, TupleLoss, attach
from uncollapse.losses.classwise import NONE, ByClass, pair_forces, pair_softmax
from uncollapse.losses.on_graph import cosines, log_one_plus, log_sum
from uncollapse.mining.miner import Miner


class MultiSimilarityLoss(TupleLoss):
    """log(1 + Σ_p exp(-α(s_ap - λ)))/α + log(1 + Σ_n exp(β(s_an - λ)))/β, mean over anchors a.

    With cosines s; embeddings are always normalised. Without a miner all pairs count. With one, or
    with tuples, the sets of positives and of negatives they name for each anchor; anchors they
    leave out count as 0 in the mean:

    - `Miner("multi_similarity", "multi_similarity")`: Wang et al.'s own mining, negatives with
      s_an > min s_ap - ε and positives with s_ap < max s_an + ε;
    - `Miner("easy", "multi_similarity")`: the EPS form, the nearest positive in place of positive
      hard-mining.

    These two, `"all"` in either place, and no miner, are mined and measured in one pass with at
    most three N × N products; anything else takes several N × N matrices in float64.

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
    resting = (
        "ln(1 + positives * exp(alpha * (base - cosine))) / alpha"
        " + ln(1 + negatives * exp(beta * (cosine - base))) / beta"
    )
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
        _, _, pulled, pushed, _ = self.pair_sets(batch, tuples)
        gap = cosines(batch) - self.base
        near = (-self.alpha * gap).masked_fill(~pulled, -torch.inf)
        far = (self.beta * gap).masked_fill(~pushed, -torch.inf)
        positive = log_one_plus(log_sum(near)) / self.alpha  # Wang et al. (14)
        negative = log_one_plus(log_sum(far)) / self.beta
        pull = positive.detach().masked_fill(~pulled.any(1), -torch.inf)
        row = torch.arange(batch.count, device=gap.device)
        return Elements((positive + negative).to(batch.rows.dtype), pull, row)

    def value(self, batch: Batch, tuples: Named) -> Tensor:
        """The loss of a checked batch, mined and measured in one pass where possible."""
        rules = self._rules()
        listed = tuples is not None or batch.offset or batch.labels is None or batch.zeros
        if rules is None or listed or batch.frame.collapsed:
            return super().value(batch, tuples)
        if self.miner is not None and batch.classes.triplets == 0:
            self.mined(batch)  # warns once why there is no triplet
        with torch.no_grad():
            classes, unit = ByClass.of(batch), 1 / batch.frame.zoom
            fused = _in_torch if classes.compiled is None else _compiled
            total, gradient = fused(self, rules, classes, unit)
            mean = total / batch.count, gradient / batch.count
        return attach(batch, *mean, lambda again: TupleLoss.value(self, again, None))

    def _rules(self) -> _Rules | None:
        """How to mine and measure in one pass; None if the pairs must be listed."""
        miner = self.miner
        if miner is None:
            return _Rules()
        if not isinstance(miner, Miner) or not miner.sees_all or miner.keep != "all":
            return None
        if miner.positives not in _POSITIVES or miner.negatives not in ("all", _HARD):
            return None
        return _Rules(miner.positives, miner.negatives == _HARD, miner.epsilon, both=True)


# The fast way: value and gradient together, off the graph.

_HARD = "multi_similarity"
_POSITIVES = ("all", "easy", _HARD)


class _Rules(NamedTuple):
    """Which positives count, and whether only hard negatives do.

    With `both`, an anchor left without a pair of either kind does not count at all, as when its
    pairs come from triplets.
    """

    positives: str = "all"
    hard_negatives: bool = False
    epsilon: float = 0.1
    both: bool = False


def _in_torch(
    loss: MultiSimilarityLoss, rules: _Rules, classes: ByClass, unit: float
) -> tuple[Tensor, Tensor]:
    """Sum over the rows of Wang et al. 2019 (14), and its gradient by the rows on the sphere."""
    alpha, beta, above = loss.alpha, loss.beta, 1.0 - loss.base
    slack = beta * rules.epsilon

    def charge(near: Tensor, far: Tensor, highest: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        chosen = near > NONE
        if rules.positives == "easy":  # EPS §4.3
            # Equal rows of a large class are at distances that differ in the last digit: the first.
            nearest = (near >= near.amax(1, keepdim=True) * (1 + 2e-9)).to(torch.uint8)
            first = nearest.argmax(1, keepdim=True)
            chosen &= torch.zeros_like(chosen).scatter_(1, first, True)
        elif rules.positives == _HARD:  # s_ap < max s_an + ε
            chosen &= near < highest + slack
        if rules.both:
            chosen &= far > NONE
            far = torch.where(chosen.any(1, keepdim=True), far, NONE)
        exponent = torch.where(chosen, -alpha * (near / beta + above), -torch.inf)
        pulled = log_sum(exponent)[:, None]
        share = torch.sigmoid(pulled) * (exponent - pulled).exp()
        pushed = far + beta * above
        value = log_one_plus(pulled) / alpha + log_one_plus(pushed) / beta
        return value, -share / beta, torch.sigmoid(pushed) / beta

    return pair_softmax(classes, unit, beta, charge, slack if rules.hard_negatives else None)


def _compiled(
    loss: MultiSimilarityLoss, rules: _Rules, classes: ByClass, unit: float
) -> tuple[Tensor, Tensor]:
    """The same by the compiled kernels."""
    frame, kernels = classes.frame, classes.compiled
    n, norm, share = len(frame), frame.norms, CLOSE[frame.norms.dtype]
    slope = -0.5 * loss.beta * unit**2
    level = norm * slope + loss.beta * (1.0 - loss.base)
    positive = classes.distances(norm.dtype)
    pull = torch.zeros_like(positive)
    charge, shift = torch.zeros(2, n, dtype=torch.float64)
    close = torch.zeros(n, dtype=torch.bool)
    before = (
        *classes.bounds,
        *(x.numpy() for x in (norm, level, positive)),
        unit,
        (loss.alpha, loss.beta, loss.base, rules.epsilon, share),
        (_POSITIVES.index(rules.positives), rules.hard_negatives, rules.both),
        *(x.numpy() for x in (pull, charge, shift, close)),
    )
    after = (loss.beta, share, *(x.numpy() for x in (shift, close, charge)))

    def fill(start: int, weight: Tensor, direct: Tensor) -> None:
        kernels.similarity_before(weight.numpy(), start, *before)
        weight.exp_()
        rows = norm.numpy(), classes.wide.numpy()
        kernels.similarity_after(weight.numpy(), start, *rows, *after, direct.numpy())

    push = pair_forces(classes, fill, slope)
    # Rows are unit · x and ds/dy_i = y_j - y_i, so both products are of unit · x.
    distance = torch.where(classes.real, positive, 0.0)
    gradient = classes.gradient(pull * distance, distance).sub_(push).mul_(unit)
    return charge.sum(), classes.in_given_order(gradient)
