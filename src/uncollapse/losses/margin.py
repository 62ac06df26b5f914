"""Margin loss: EPS §3, Wu et al. 2017 (4)-(6)."""

import torch
from torch import Tensor, nn

from uncollapse._base.arrays import ArrayLike
from uncollapse._base.check import InputError, check_bool, check_int, check_number
from uncollapse.losses.base import Batch, Choice, Elements, LossInfo, Named, Number, TupleLoss
from uncollapse.losses.proxies import NamedClasses, parameter_rows


def margin_loss(distance: Tensor, beta: Tensor, positive: Tensor, margin: float) -> Tensor:
    """[d - β + margin]₊ of positive pairs, [β - d + margin]₊ of the others: EPS §3.

    >>> margin_loss(torch.tensor([1.5, 2.0]), torch.tensor(1.2), torch.tensor([True, False]), 0.2)
    tensor([0.5000, 0.0000])
    """
    above = distance - beta
    return (torch.where(positive, above, -above) + margin).clamp(min=0.0)


class MarginLoss(TupleLoss):
    """[d(a, p) - β + margin]₊ over positive pairs, [β - d(a, n) + margin]₊ over negative pairs.

    The boundary β is learned: one, one per class (of the anchor) or one per training sample (EPS:
    β_a). Give its parameters to the optimiser. Without a miner all ordered pairs count once each;
    with one, each triplet (a, p, n) it names gives (a, p) and (a, n). Wu et al. and EPS use
    `Miner("random", "distance")`, EPS's own is `Miner("easy", "distance")`.

    Needs pairs of both kinds. With `beta_per="class"` labels are 0 to `size` - 1, or at most so
    many names, which are numbered as they first come and saved with the loss; with `"sample"` each
    call gets `sample_ids`, the numbers 0 to `size` - 1 of the batch's rows in the dataset.
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
        nu: weight of the mean of β, added to the loss to hold the boundary down (Wu et al. (6))
            while β is learned.
        normalize: divide embeddings by their norms first.
        reduction: `"nonzero"`: sum over the number of pairs with a positive loss (Wu et al., PML);
            `"mean"`: over all pairs.

    >>> loss = MarginLoss(beta_per="class", size=2)
    >>> z = torch.tensor([[0.0], [1.5], [2.0]])
    >>> value = loss(z, torch.tensor([0, 0, 1]))  # 0.5 both ways, and 0.9 both
    >>> value.backward()
    >>> round(value.item(), 4), [round(g, 4) for g in loss.beta.grad.tolist()]
    (0.7, [-0.25, 0.25])
    """

    info = LossInfo("margin", {"margin, normalised": {"normalize": True}})
    resting = "nan if cosine < 1 or nu or beta < margin or reduction == 'mean' else beta + margin"
    reduction = Choice("nonzero", "mean")
    beta_per = Choice("global", "class", "sample")
    margin = Number(0.0)
    nu = Number(0.0)

    def __init__(
        self,
        *,
        margin: float = 0.2,
        beta: float = 1.2,
        miner: nn.Module | None = None,
        beta_per: str = "global",
        size: int | None = None,
        learn_beta: bool = True,
        nu: float = 0.0,
        normalize: bool = False,
        reduction: str = "nonzero",
    ) -> None:
        super().__init__(miner=miner, normalize=normalize, reduction=reduction)
        self.margin, self.nu, self.beta_per = margin, nu, beta_per
        if beta_per == "global":
            length = 1
        elif size is None:
            raise InputError("size", None, f"the number of β's for beta_per={beta_per!r}")
        else:
            length = check_int("size", size)
        start = torch.full((length,), check_number("beta", beta))
        self.beta = nn.Parameter(start, requires_grad=check_bool("learn_beta", learn_beta))
        self.names = NamedClasses(length) if beta_per == "class" else None

    def numbered(self, labels: ArrayLike | None) -> ArrayLike | None:
        """Labels as rows of β, where each class has one."""
        return labels if self.names is None else self.names.numbers(labels)

    def listed(self, batch: Batch, tuples: Named) -> Elements:
        """One entry per pair, positive pairs first; `pull` is their distance."""
        anchor, distance, positive = self.pairs(batch, tuples)
        loss = margin_loss(distance, self._boundary(batch, anchor), positive, self.margin)
        pull = distance.detach().masked_fill(~positive, -torch.inf)
        return Elements(loss.to(batch.rows.dtype), pull, anchor)

    def reduce(self, elements: Elements) -> Tensor:
        """As `reduction` says, plus nu times the mean of β."""
        loss = super().reduce(elements)
        if not self.nu or not self.beta.requires_grad:
            return loss
        return loss + self.nu * self.beta.mean().to(loss)

    def _boundary(self, batch: Batch, anchor: Tensor) -> Tensor:
        """β of each pair."""
        beta = self.beta.to(batch.rows.device, batch.frame.centre.dtype)
        if self.beta_per == "global":
            return beta[0]
        name = "labels" if self.beta_per == "class" else "sample_ids"
        numbers = batch.labels if self.beta_per == "class" else batch.sample_ids
        span = batch.label_range if self.beta_per == "class" else batch.sample_range
        return beta[parameter_rows(numbers, span, len(beta), name)[anchor]]
