"""Margin loss: EPS §3, Wu et al. 2017 (4)-(6)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from uncollapse._base.arrays import ArrayLike, points
from uncollapse._base.check import InputError, check_choice, check_int, check_number
from uncollapse.losses._elements import (
    Elements,
    IndicesTuple,
    MinerLike,
    TupleLoss,
    mean_or_zero,
    nonzero_mean,
)
from uncollapse.losses._frame import unit_rows
from uncollapse.losses._pairs import chosen_pairs, pair_distances
from uncollapse.losses._rows import row_numbers

__all__ = ["MarginLoss", "margin_loss"]

_BETA_PER = ("global", "class", "sample")
_REDUCTIONS = ("nonzero", "mean")


def margin_loss(
    embeddings: Tensor,
    labels: ArrayLike,
    indices_tuple: IndicesTuple | None = None,
    *,
    margin: float = 0.2,
    beta: float | Tensor = 1.2,
    miner: MinerLike | None = None,
    normalize: bool = False,
    reduction: str = "nonzero",
) -> Tensor:
    """Margin loss of a batch with the boundary `beta`: one number, or one for each row.

    See `MarginLoss`, which learns it.

    >>> margin_loss(torch.tensor([[0.0], [1.5], [2.0]]), [0, 0, 1])  # 0.5 both ways, and 0.9 both
    tensor(0.7000)
    """
    check_choice("reduction", reduction, _REDUCTIONS)
    elements = _elements(embeddings, labels, indices_tuple, margin, beta, miner, normalize)
    return _reduce(elements, reduction)


class MarginLoss(TupleLoss):
    """[d(a, p) - β + margin]₊ over positive pairs, [β - d(a, n) + margin]₊ over negative pairs.

    The boundary β is learned: one, one a class (of the anchor) or one a training sample (EPS: β_a).
    Give its parameters to the optimiser. Without a miner all ordered pairs are charged once each;
    with one, each triplet (a, p, n) it names charges (a, p) and (a, n). Wu et al. and EPS use
    `Miner("random", "distance")`, EPS's own is `Miner("easy", "distance")`.

    Needs pairs of both kinds. With `beta_per="class"` labels are 0 to `size` - 1; with `"sample"`
    each call gets `samples`, the numbers 0 to `size` - 1 of the batch's rows in the data set.
    Made for normalised embeddings (β = 1.2 of at most 2): `normalize=True`, as in both papers, or
    normalise in the model.

    Siblings: `ContrastiveLoss` is this without slack for positives; `TripletLoss` compares the two
    pairs of an anchor to each other instead of to β.

    Collapse: when all embeddings coincide, positive pairs cost [margin - β]₊ = 0, negative pairs
    β + margin, so the loss is 1.4 (`"nonzero"`); the gradient of the embeddings is 0, that of β 1:
    β goes down after the embeddings.

    Args:
        margin: slack on each side of β.
        beta: where β starts.
        miner: chooses the pairs.
        beta_per: `"global"`, `"class"` or `"sample"`.
        size: number of classes or samples, for the latter two.
        learn_beta: False keeps β where it started.
        nu: weight of the mean of β, added to the loss to hold the boundary down (Wu et al. (6)).
        normalize: divide embeddings by their norms first.
        reduction: `"nonzero"`: sum over the number of pairs with a positive loss (Wu et al., PML);
            `"mean"`: over all pairs.

    >>> loss = MarginLoss(beta_per="class", size=2)
    >>> z = torch.tensor([[0.0], [1.5], [2.0]])
    >>> loss(z, torch.tensor([0, 0, 1])).backward()
    >>> [round(g, 4) for g in loss.beta.grad.tolist()]  # class 0: two down, one up, of four pairs
    [-0.25, 0.25]
    """

    def __init__(
        self,
        margin: float = 0.2,
        beta: float = 1.2,
        miner: MinerLike | None = None,
        beta_per: str = "global",
        size: int | None = None,
        learn_beta: bool = True,
        nu: float = 0.0,
        normalize: bool = False,
        reduction: str = "nonzero",
    ) -> None:
        super().__init__()
        check_choice("beta_per", beta_per, _BETA_PER)
        check_choice("reduction", reduction, _REDUCTIONS)
        if beta_per == "global":
            length = 1
        elif size is None:
            raise InputError("size", None, f"the number of β's for beta_per={beta_per!r}")
        else:
            length = check_int("size", size)
        self.margin, self.miner = check_number("margin", margin, 0.0), miner
        self.nu, self.beta_per = check_number("nu", nu, 0.0), beta_per
        self.normalize, self.reduction = normalize, reduction
        start = torch.full((length,), check_number("beta", beta))
        self.beta = nn.Parameter(start, requires_grad=learn_beta)

    def forward(
        self,
        embeddings: Tensor,
        labels: ArrayLike,
        indices_tuple: IndicesTuple | None = None,
        samples: ArrayLike | None = None,
    ) -> Tensor:
        """Loss of a batch; `samples` are its rows' numbers in the data set, for one β a sample."""
        return self.reduce(self.elements(embeddings, labels, indices_tuple, samples))

    def elements(
        self,
        embeddings: Tensor,
        labels: ArrayLike,
        indices_tuple: IndicesTuple | None = None,
        samples: ArrayLike | None = None,
    ) -> Elements:
        """One entry a pair, positive pairs first; `pull` is their distance."""
        beta: Tensor = self.beta
        if self.beta_per != "global":
            name, which = ("labels", labels) if self.beta_per == "class" else ("samples", samples)
            beta = beta[row_numbers(which, len(embeddings), len(beta), name).to(beta.device)]
        return _elements(
            embeddings, labels, indices_tuple, self.margin, beta, self.miner, self.normalize
        )

    def reduce(self, elements: Elements) -> Tensor:
        """As `reduction` says, plus nu times the mean of β."""
        loss = _reduce(elements, self.reduction)
        return loss + self.nu * self.beta.mean().to(loss) if self.nu else loss


def _elements(
    embeddings: Tensor,
    labels: ArrayLike,
    indices_tuple: IndicesTuple | None,
    margin: float,
    beta: float | Tensor,
    miner: MinerLike | None,
    normalize: bool,
) -> Elements:
    x = points(embeddings, "embeddings")
    y = unit_rows(x, normalize)
    pairs = chosen_pairs(y, labels, indices_tuple, miner)
    anchor = torch.cat([pairs.anchor, pairs.other])
    distance = pair_distances(y, anchor, torch.cat([pairs.positive, pairs.negative]))
    bound = torch.as_tensor(beta, dtype=y.dtype, device=y.device).expand(len(x))[anchor]
    positives = len(pairs.anchor)
    above = distance - bound
    loss = torch.cat([above[:positives], -above[positives:]]) + margin  # EPS §3
    pull = distance.detach().clone()
    pull[positives:] = -torch.inf
    return Elements(loss.clamp(min=0.0).to(x.dtype), pull, anchor)


def _reduce(elements: Elements, reduction: str) -> Tensor:
    return (nonzero_mean if reduction == "nonzero" else mean_or_zero)(elements.loss)
