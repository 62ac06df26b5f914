"""Distances, cosines, sums and means of a batch on the autograd graph, exact near collapse."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from uncollapse.distances import unit_rows, working_dtype
from uncollapse.distances.frame import Batch, difference_norms, known_distances
from uncollapse.mining.miner import Miner

_NONE = -1e30  # exponent of what is not there
_TINY = 1e-300
SMALLEST = -80.0  # an exponent below it adds nothing, and takes ten times as long

HARDEST = "hardest-negative"
_NEAREST = Miner("easy", "hard")  # each anchor once, with its hardest negative


def graph_rows(batch: Batch, normalize: bool) -> Tensor:
    """The rows in the working dtype, on the graph, of length 1 if asked; a zero row stays 0."""
    wide = batch.rows.to(working_dtype(batch.rows))
    return unit_rows(wide) if normalize else wide


def pair_distances(
    rows: Tensor,
    i: Tensor,
    j: Tensor,
    *,
    reach: float,
    kind: str = "euclidean",
    offset: int = 0,
) -> Tensor:
    """Distances of rows i to rows j: by differences, or out of the matrix if that is smaller.

    `kind` is `"euclidean"`, `"squared"`, or, for rows of length 1, `"cosine"`: 1 - cos = d²/2. With
    an `offset` all i are below it and no j is: anchors and references.
    """
    if len(i) == 0:
        return rows[i].sum(1)
    squared = kind != "euclidean"
    start, others = (offset, len(rows) - offset) if offset else (len(rows), len(rows))
    if len(i) * rows.shape[1] <= start * others:
        distance = difference_norms(rows[i] - rows[j], squared=squared)
    else:
        further = rows[offset:] if offset else None
        matrix = known_distances(rows[:start], further, reach=reach, squared=squared)
        distance = matrix[i, j - offset]
    return distance / 2 if kind == "cosine" else distance


def cosines(batch: Batch) -> Tensor:
    """Cosines of the anchors to the candidates, on the graph, as 1 - d²/2.

    Exact where the rows nearly coincide.
    """
    rows, reach = graph_rows(batch, normalize=True), batch.reach
    square = (
        known_distances(rows[: batch.count], rows[batch.offset :], squared=True, reach=reach)
        if batch.offset
        else known_distances(rows, squared=True, reach=reach)
    )
    return 1.0 - 0.5 * square


def scale(batch: Batch, rows: Tensor, form: bool | str) -> Tensor:
    """What a scale-free loss divides distances by, on the graph of `rows`; 1 where that is 0.

    The mean distance of an anchor to a candidate that is not itself. For `"hardest-negative"`, the
    mean distance to their hardest negatives of the anchors with a positive and a negative.
    """
    if form == HARDEST and batch.classes.usable == 0:
        size = rows.new_zeros(())
    elif form == HARDEST:
        anchor, _, negative = _NEAREST.mine(batch)
        size = pair_distances(rows, anchor, negative + batch.offset, reach=batch.reach).mean()
    else:
        further = rows[batch.offset :] if batch.offset else None
        total = known_distances(rows[: batch.count], further, reach=batch.reach).sum()
        own = batch.known is None or not batch.known.apart or not batch.offset
        size = total / max(batch.count * (batch.candidates - int(own)), 1)
    return torch.where(size == 0, torch.ones_like(size), size)


def log_sum(exponent: Tensor) -> Tensor:
    """log Σ exp of each row, -inf for what is not in it; gradients stay finite in a row of none."""
    if exponent.numel() == 0:
        return exponent.sum(1)
    shift = exponent.detach().amax(1, keepdim=True).clamp(min=_NONE)
    return (exponent - shift).clamp(min=SMALLEST).exp().sum(1).log() + shift[:, 0]


def log_sum_by(exponent: Tensor, group: Tensor, groups: int) -> Tensor:
    """log Σ exp over the entries of each group; gradients stay finite where a group has none."""
    shift = exponent.new_full((groups,), _NONE)
    shift = shift.scatter_reduce_(0, group, exponent.detach(), "amax")
    total = torch.zeros_like(shift).index_add(0, group, (exponent - shift[group]).exp())
    return total.clamp(min=_TINY).log() + shift


def log_one_plus(log_total: Tensor) -> Tensor:
    """log(1 + exp(x)), to all digits of float64."""
    return functional.softplus(log_total, threshold=40.0)


def pair_mask(like: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Which pairs are named, in the shape of a matrix."""
    mask = torch.zeros_like(like, dtype=torch.bool)
    mask[i, j] = True
    return mask


def mean_or_zero(loss: Tensor) -> Tensor:
    """Mean, or a zero on the graph when there is nothing."""
    return loss.sum() / max(len(loss), 1)


def nonzero_mean(loss: Tensor) -> Tensor:
    """Mean of the entries above 0, or a zero on the graph when there are none."""
    return loss.sum() / (loss.detach() > 0).sum().clamp(min=1)


def attach(
    batch: Batch, value: Tensor, gradient: Tensor, plain: Callable[[Batch], Tensor]
) -> Tensor:
    """A scalar of the rows' dtype, whose backward pass hands `gradient` to the rows.

    `gradient` is by the rows as the batch's frame sees them. `plain` is the same loss on the graph,
    as slow as it may be: it is asked where the gradient's own derivative is wanted.
    """
    given = batch.frame.pull_back(gradient).to(batch.rows.dtype)
    scalar = value.to(batch.rows.dtype)
    return attached(batch.rows, scalar, given, lambda rows: plain(replace(batch, rows=rows)))


def attached(x: Tensor, value: Tensor, slope: Tensor, plain: Callable[[Tensor], Tensor]) -> Tensor:
    """`value`, of which the derivative `slope` by x is known already, on the graph of x.

    The shape of `value` broadcasts to that of x. `plain(x)` is the same on the graph, as slow as it
    may be: it is asked where the slope's own derivative is wanted.
    """
    return _Attached.apply(x, value, slope, plain)  # type: ignore[no-any-return,no-untyped-call]


class _Attached(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, value: Tensor, slope: Tensor, plain: Callable[[Tensor], Tensor]
    ) -> Tensor:
        ctx.save_for_backward(x, slope)
        ctx.plain = plain
        return value.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None]:
        x, slope = ctx.saved_tensors
        if torch.is_grad_enabled() and x.requires_grad:  # a second derivative is wanted
            (slope,) = torch.autograd.grad(ctx.plain(x), x, upstream, create_graph=True)
            return slope, None, None, None
        return slope * upstream, None, None, None
