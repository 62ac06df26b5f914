"""Smooth-AP: Brown et al. 2020, average precision with sigmoids for the steps of a rank."""

import torch
from torch import Tensor, nn

from uncollapse.losses.base import Batch, Elements, LossInfo, Named, Number, TupleLoss, attached
from uncollapse.losses.on_graph import PairSets, among, cosines

_ELEMENTS = 1 << 17  # of a block: what a cache holds


def smooth_precision(
    similarity: Tensor, positive: Tensor, counted: Tensor, temperature: float
) -> Tensor:
    """(1 + Σ_{j in P} G_j) / (1 + Σ_{j in A} G_j), with G_j = 1 / (1 + exp((s_i - s_j) / τ)).

    The smooth rank of one candidate i among the positives P, over that among all candidates A, i
    itself in neither. Rows of `similarity` and of the masks `counted` (A) and `positive` (P) are
    those of one query each, the similarity of i subtracted.

    >>> gap = torch.tensor([[0.1, -0.1]])  # a negative above i, a positive below it
    >>> smooth_precision(gap, torch.tensor([[0.0, 1.0]]), torch.ones(1, 2), 0.01)
    tensor([0.5000])
    """
    above = torch.sigmoid(similarity / temperature)
    return (1.0 + (above * positive).sum(1)) / (1.0 + (above * counted).sum(1))


class SmoothAPLoss(TupleLoss):
    """1 - AP, mean over anchors; AP the mean over positives i of rank among P / rank among all.

    A rank is 1 + Σ_j 1 / (1 + exp((s_ai - s_aj) / τ)) over the others j, with cosines s of the
    anchor and τ `temperature`: a count of those nearer than i, made smooth. The anchor is one of
    its own positives, as in the authors' code. Embeddings are always normalised. Without a miner
    every pair counts; with one, or with tuples, the sets of positives and negatives they name.
    With references the anchor is not among the candidates.

    Needs a class with two samples, of any size and in any order; anchors without a positive are
    left out, those without a negative cost 0. Memory is O(N²), time O(N² K) for classes of K.

    Siblings: the only loss here of a whole ranking. `MultiSimilarityLoss` and `CircleLoss` weigh
    pairs by their similarities, not by their ranks; a `TripletLoss` compares two pairs.

    Collapse: when all embeddings coincide every comparison is a half, the loss is
    1 - (K + 1) / (N + 1) for classes of K in a batch of N, and the gradient 0. Pairs whose
    cosines differ by much more than τ have no gradient either: a batch far from right learns
    slowly.

    Args:
        temperature: τ; the paper and PML have 0.01.
        miner: chooses the pairs.

    >>> loss = SmoothAPLoss()
    >>> loss(torch.ones(4, 2), [0, 0, 1, 1])  # 1 - 3/5
    tensor(0.4000)
    >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6], [0.6, 0.8]])
    >>> round(loss(z, [0, 0, 1, 1]).item(), 4)  # two negatives above the positive of two anchors
    0.125
    """

    info = LossInfo("smooth-ap", {"SmoothAP": {}}, gentle={"temperature": 0.3})
    resting = "nan if cosine < 1 else 1 - (positives + 2) / (rows + 1)"
    temperature = Number(1e-6)

    def __init__(self, *, temperature: float = 0.01, miner: nn.Module | None = None) -> None:
        super().__init__(miner=miner, normalize=True)
        self.temperature = temperature

    def listed(self, batch: Batch, tuples: Named) -> Elements:
        """One entry per anchor with a positive; `pull` is minus the cosine of its farthest."""
        pairs = self.pair_sets(batch, tuples)
        anchor, other, positive, negative, real = pairs
        cosine, row = cosines(batch), torch.arange(batch.count, device=anchor.device)
        some = positive.any(1)
        pull = -cosine.detach().masked_fill(~positive, torch.inf).amin(1)
        if not batch.offset:  # the anchor is one of its own positives
            real = None if real is None else torch.cat([real, some])
            anchor, other = torch.cat([anchor, row]), torch.cat([other, row])
            pairs = PairSets(anchor, other, positive | torch.diag(some), negative, real)
        sets = (pairs, self.temperature)
        ap = attached(cosine, *_blockwise(cosine, *sets), lambda x: mean_precision(x, *sets))
        return Elements((1.0 - ap[:, 0]).to(batch.rows.dtype), pull, row).take(some)


def mean_precision(similarity: Tensor, pairs: PairSets, temperature: float) -> Tensor:
    """AP of each row, `[N, 1]`, on the graph and in one go."""
    query, candidate, positive, negative, real = pairs
    rows = similarity[query]
    value = _precision(rows, positive[query], negative[query], candidate, temperature)
    return _mean_by(query, among(value, real), positive)


def _precision(
    row: Tensor, positive: Tensor, negative: Tensor, candidate: Tensor, temperature: float
) -> Tensor:
    """`smooth_precision` of one candidate of each row."""
    at = candidate[:, None]
    near = positive.to(row.dtype).scatter_(1, at, 0.0)
    return smooth_precision(row - row.gather(1, at), near, near + negative, temperature)


def _mean_by(query: Tensor, value: Tensor, positive: Tensor) -> Tensor:
    total = value.new_zeros(len(positive)).index_add(0, query, value)
    return (total / positive.sum(1).clamp(min=1))[:, None]


def _blockwise(similarity: Tensor, pairs: PairSets, temperature: float) -> tuple[Tensor, Tensor]:
    """`mean_precision` and its derivative by the similarities, in blocks of memory O(N²)."""
    query, candidate, positive, negative, real = pairs
    size = max(1, _ELEMENTS // max(similarity.shape[1], 1))
    known, wanted = similarity.detach(), similarity.requires_grad
    slope, values = torch.zeros_like(known), [known.new_zeros(0)]
    for start in range(0, len(query), size):
        q, i = query[start : start + size], candidate[start : start + size]
        rows = known[q].requires_grad_(wanted)
        value = _precision(rows, positive[q], negative[q], i, temperature)
        value = among(value, None if real is None else real[start : start + size])
        if wanted:
            slope.index_add_(0, q, torch.autograd.grad(value.sum(), rows)[0])
        values.append(value.detach())
    slope.div_(positive.sum(1, keepdim=True).clamp(min=1))
    return _mean_by(query, torch.cat(values), positive), slope
