"""NT-Xent or InfoNCE: Sohn 2016, van den Oord et al. 2018, Chen et al. 2020."""

from abc import abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional

from uncollapse._base.check import Setting, check_bool
from uncollapse.losses.base import Batch, Elements, LossInfo, Named, Number, TupleLoss, attach
from uncollapse.losses.classwise import NONE, ByClass, pair_softmax
from uncollapse.losses.on_graph import cosines, log_sum


def info_nce(logit: Tensor, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """-log softmax of each pair's logit among itself and its anchor's negatives, `[N, M]`.

    >>> info_nce(torch.eye(2), torch.tensor([0]), torch.tensor([0]), torch.eye(2) == 0)
    tensor([0.3133])
    """
    far = log_sum(logit.masked_fill(~negative, -torch.inf))
    # van den Oord et al. (4) is log(1 + Σ_n exp(s_an / T - s_ap / T)).
    return functional.softplus(far[anchor] - logit[anchor, positive])


_COLD = 0.01  # below this temperature logits need more digits than float32 products have


class PairSoftmax(TupleLoss):
    """A softmax of cosines over a temperature; in one pass where all pairs of a batch count."""

    temperature = Number(1e-6)

    def __init__(self, *, temperature: float, miner: nn.Module | None = None) -> None:
        super().__init__(miner=miner, normalize=True)
        self.temperature = temperature

    @staticmethod
    @abstractmethod
    def charge(near: Tensor, far: Tensor, highest: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The rows' losses, and their derivatives: see `Charge`."""

    @staticmethod
    @abstractmethod
    def terms(positives: Tensor) -> Tensor:
        """What the sum of the losses is divided by, from each row's number of positives."""

    def value(self, batch: Batch, tuples: Named) -> Tensor:
        """The loss of a checked batch: value and gradient together, off the graph."""
        listed = tuples is not None or self.miner is not None or batch.offset or batch.zeros
        if listed or batch.frame.collapsed or self.temperature < _COLD:
            return super().value(batch, tuples)
        with torch.no_grad():
            classes, unit = ByClass.of(batch), 1 / batch.frame.zoom
            total, gradient = pair_softmax(classes, unit, 1 / self.temperature, self.charge)
            terms = self.terms(batch.classes.counts).clamp(min=1)
            mean = (total / terms, gradient / terms)
        return attach(batch, *mean, lambda again: TupleLoss.value(self, again, None))


class NTXentLoss(PairSoftmax):
    """-log softmax of one positive among itself and its anchor's negatives, mean over the pairs.

    For a pair (a, p): -log(exp(s_ap / T) / (exp(s_ap / T) + Σ_n exp(s_an / T))), with cosines s and
    T `temperature`: van den Oord et al. Embeddings are always normalised. Without a miner
    every pair of one class is a positive, every other pair a negative; with labels that number the
    samples, two views each, it is SimCLR's loss. With a miner, or with tuples, the positives and
    negatives they name for each anchor.

    Needs a class with two samples, and a second class; a pair whose anchor has no negative costs 0.

    Siblings: `SupConLoss` has the anchor's other positives in the denominator too, which push each
    other away; here positives never compete. `NPairLoss` takes one pair per class, unnormalised.

    Collapse: when all embeddings coincide the loss is log(1 + |N|), with |N| negatives per anchor,
    and the gradient 0; around that point the loss spreads classes, weakly. On embeddings of digits
    its drift is -1.6 untrained, but only -0.0002 at a point and -0.004 in a cone, and +1.0 at wrong
    labels; its mode drift is above 0 in every state: of a class it keeps no modes.

    Args:
        temperature: T; PML and MoCo have 0.07, SimCLR 0.1 to 0.5.
        miner: chooses the pairs.

    >>> NTXentLoss()(torch.ones(4, 2), [0, 0, 1, 1])  # log 3
    tensor(1.0986)
    >>> views = torch.eye(2)[[0, 1, 0, 1]]  # two samples, two views of each
    >>> round(NTXentLoss(temperature=1.0)(views, [0, 1, 0, 1]).item(), 4)  # log(1 + 2/e)
    0.5514
    """

    info = LossInfo("nt-xent", {"NT-Xent": {}}, gentle={"temperature": 0.5})
    resting = "ln(1 + negatives)"

    def __init__(self, *, temperature: float = 0.07, miner: nn.Module | None = None) -> None:
        super().__init__(temperature=temperature, miner=miner)

    def listed(self, batch: Batch, tuples: Named) -> Elements:
        """One entry per pair of anchor and positive; `pull` is minus their cosine."""
        anchor, other, _, negative, real = self.pair_sets(batch, tuples)
        cosine = cosines(batch)
        loss = info_nce(cosine / self.temperature, anchor, other, negative).to(batch.rows.dtype)
        return Elements(loss, -cosine[anchor, other].detach(), anchor).take(real)

    # The fast way: value and gradient together, off the graph.

    @staticmethod
    def charge(near: Tensor, far: Tensor, highest: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Sum of each row's `info_nce`, and its derivatives."""
        gap = torch.where(near > NONE, far - near, NONE)
        push = gap.sigmoid()
        loss = functional.softplus(gap).sum(1, keepdim=True)
        return loss, -push, push.sum(1, keepdim=True)

    @staticmethod
    def terms(positives: Tensor) -> Tensor:
        """The pairs."""
        return positives.sum()


# Multiple-negatives ranking loss: Henderson et al. 2017 (5), of pairs in columns.


class MultipleNegativesRankingLoss(TupleLoss):
    """-log softmax of an anchor's positive among all positives and negatives of the batch.

    For row i of the anchors and positives: -log(exp(c s_ii) / Σ_j exp(c s_ij)), with cosines s, c
    `scale`, and j over the positives and all columns of negatives; mean over the rows. The name and
    the defaults are sentence-transformers', and so are value and gradient.

        ColumnLoss(loss)(*join_columns(a, p, n1, n2))

    Needs two pairs, or a column of negatives. Pairs that are copies of each other count as each
    other's negatives: `BatchSamplers.NO_DUPLICATES` there keeps them out of a batch.

    Siblings: `NTXentLoss` with temperature 1 / scale is the same loss, also of labels (which need
    no columns and say which pairs are no negatives); `symmetric` is what this one adds.

    Collapse: when all embeddings coincide the loss is log(number of candidates) and the gradient 0;
    around that point it spreads the pairs, weakly. Its drift depends on the pairs: on the sphere,
    of random columns [32, 16], -0.0006 where positives lie next to their anchors, but +0.30 where
    they lie anywhere: pairs that mean nothing to the network are pulled together.

    Args:
        scale: c, the inverse of a temperature; 20 there.
        symmetric: mean of that and of the anchor's among all anchors, seen from its positive
            (there: both directions, each with its softmax).
        miner: chooses the pairs.

    >>> import torch
    >>> from uncollapse.losses.columns import ColumnLoss, join_columns
    >>> loss = ColumnLoss(MultipleNegativesRankingLoss(scale=1.0))
    >>> loss(*join_columns(torch.eye(3), torch.eye(3)))  # log(1 + 2/e)
    tensor(0.5514)
    """

    scale = Number(1e-6)
    symmetric = Setting(check_bool)

    def __init__(
        self, *, scale: float = 20.0, symmetric: bool = False, miner: nn.Module | None = None
    ) -> None:
        super().__init__(miner=miner, normalize=True)
        self.scale, self.symmetric = scale, symmetric

    def listed(self, batch: Batch, tuples: Named) -> Elements:
        """One entry per pair of anchor and positive; `pull` is minus their cosine."""
        anchor, other, _, negative, real = self.pair_sets(batch, tuples)
        cosine = cosines(batch)
        loss = info_nce(self.scale * cosine, anchor, other, negative)  # Henderson et al. (5)
        if self.symmetric:
            loss = (loss + info_nce(self.scale * cosine.T, other, anchor, negative.T)) / 2
        pull = -cosine[anchor, other].detach()
        return Elements(loss.to(batch.rows.dtype), pull, anchor).take(real)
