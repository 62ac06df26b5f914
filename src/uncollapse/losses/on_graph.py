"""Distances, cosines, sums and means of a batch on the autograd graph, exact near collapse."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from uncollapse.distances import unit_rows, working_dtype
from uncollapse.distances.frame import Batch, difference_norms, known_distances
from uncollapse.mining.miner import Miner

_NONE = -1e30  # exponent of what is not there
_TINY = 1e-300

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


def seen_by_miner(batch: Batch) -> Batch:
    """The batch with distances over their mean, as the miner of a scale-free loss sees it."""
    if batch.frame.collapsed:
        return batch
    mean = _mean_to_candidates(batch, batch.frame.wide, 0.75)
    return replace(batch, frame=batch.frame.seen_as(1 / mean))


def hardest_negative_mean(batch: Batch, rows: Tensor) -> Tensor:
    """Mean over the anchors of the distance to their hardest negative, on the graph of `rows`.

    Anchors are the rows with a positive and a negative; 1 where there are none, or where every
    hardest negative coincides with its anchor.
    """
    if batch.classes.usable == 0:
        return rows.new_ones(())
    anchor, _, negative = _NEAREST.mine(batch)
    far = pair_distances(rows, anchor, negative + batch.offset, reach=batch.reach).mean()
    return torch.where(far == 0, torch.ones_like(far), far)


def over_mean(batch: Batch, rows: Tensor) -> Tensor:
    """The batch's rows over the mean distance, on the graph; unchanged if all are equal.

    The mean is over pairs of an anchor and a candidate that is not itself.
    """
    mean = _mean_to_candidates(batch, rows, batch.reach)
    return (rows - rows[0].detach()) / torch.where(mean == 0, torch.ones_like(mean), mean)


def _mean_to_candidates(batch: Batch, rows: Tensor, reach: float) -> Tensor:
    """`rows` are the batch's, in any coordinates, and `reach` their largest about their centre."""
    if not batch.offset:
        total, pairs = known_distances(rows, reach=reach).sum(), len(rows) * (len(rows) - 1)
    else:
        sides = rows[: batch.count], rows[batch.offset :]
        total = known_distances(*sides, reach=reach).sum()
        own = batch.known is not None and not batch.known.apart
        pairs = batch.count * (batch.candidates - int(own))
    return total / max(pairs, 1)


def log_sum(exponent: Tensor) -> Tensor:
    """log Σ exp of each row, -inf for what is not in it; gradients stay finite in a row of none."""
    if exponent.numel() == 0:
        return exponent.sum(1)
    found: Tensor = _LogSum.apply(exponent)  # type: ignore[no-untyped-call]
    return found


def _plain_log_sum(exponent: Tensor) -> Tensor:
    shift = exponent.detach().amax(1, keepdim=True).clamp(min=_NONE)
    return (exponent - shift).exp().sum(1).clamp(min=_TINY).log() + shift[:, 0]


class _LogSum(torch.autograd.Function):
    """`_plain_log_sum`, with half the passes over the matrix."""

    @staticmethod
    def forward(ctx: Any, exponent: Tensor) -> Tensor:
        shift = exponent.amax(1, keepdim=True).clamp(min=_NONE)
        share = (exponent - shift).exp_()
        total = share.sum(1, keepdim=True).clamp_(min=_TINY)
        ctx.save_for_backward(exponent, share.div_(total))
        return (total.log() + shift)[:, 0]

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        exponent, share = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted
            value = _plain_log_sum(exponent)
            by: Tensor = torch.autograd.grad(value, exponent, slope, create_graph=True)[0]
        else:
            by = share * slope[:, None]
        return by


def log_sum_by(exponent: Tensor, group: Tensor, groups: int) -> Tensor:
    """log Σ exp over the entries of each group; gradients stay finite where a group has none."""
    shift = exponent.new_full((groups,), _NONE)
    shift = shift.scatter_reduce_(0, group, exponent.detach(), "amax")
    total = torch.zeros_like(shift).index_add(0, group, (exponent - shift[group]).exp())
    return total.clamp(min=_TINY).log() + shift


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
