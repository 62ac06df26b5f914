"""Distances, cosines, sums and means of a batch on the autograd graph, exact near collapse."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from uncollapse.distances import unit_rows, working_dtype
from uncollapse.distances.frame import Batch, difference_norms, known_distances, on_host
from uncollapse.mining.miner import Miner

_NONE = -1e30  # exponent of a missing entry
_TINY = 1e-30  # less than the sum of any row with an entry

HARDEST = "hardest-negative"
_NEAREST = Miner("easy", "hard")  # each anchor once, with its hardest negative


def graph_rows(batch: Batch, normalize: bool) -> Tensor:
    """The rows in the working dtype, on the graph, of length 1 if asked; a zero row stays 0."""
    wide = batch.rows.to(working_dtype(batch.rows))
    return unit_rows(wide) if normalize else wide


def pair_distances(
    rows: Tensor, i: Tensor, j: Tensor, *, reach: float, kind: str = "euclidean", offset: int = 0
) -> Tensor:
    """Distances of rows i to rows j: by differences, or out of the matrix if that is smaller.

    `kind` is `"euclidean"`, `"squared"`, or, for rows of length 1, `"cosine"`: 1 - cos = d²/2, and
    1 for a row of zeros. With an `offset` all i are below it and no j is: anchors and references.
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
    if kind != "cosine":
        return distance
    zero = (rows == 0).all(1)
    return torch.where(zero[i] | zero[j], 1.0, distance / 2)


def cosines(batch: Batch) -> Tensor:
    """Cosines of the anchors to the candidates, on the graph, as 1 - d²/2; 0 for a row of zeros.

    Exact where the rows nearly coincide.
    """
    rows, reach = graph_rows(batch, normalize=True), batch.reach
    square = (
        known_distances(rows[: batch.count], rows[batch.offset :], squared=True, reach=reach)
        if batch.offset
        else known_distances(rows, squared=True, reach=reach)
    )
    if batch.zeros:
        zero = (rows == 0).all(1)
        square = square.masked_fill(zero[: batch.count, None] | zero[batch.offset :], 2.0)
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
    return (exponent - shift).exp().sum(1).clamp(min=_TINY).log() + shift[:, 0]


def log_sum_by(exponent: Tensor, group: Tensor, groups: int) -> Tensor:
    """log Σ exp over the entries of each group; gradients stay finite where a group has none."""
    shift = exponent.new_full((groups,), _NONE)
    shift = shift.scatter_reduce_(0, group, exponent.detach(), "amax")
    total = torch.zeros_like(shift).index_add(0, group, (exponent - shift[group]).exp())
    return total.clamp(min=_TINY).log() + shift


def log_one_plus(log_total: Tensor) -> Tensor:
    """log(1 + exp(x)), to all digits of float64."""
    return functional.softplus(log_total, threshold=40.0)


def pair_mask(batch: Batch, i: Tensor, j: Tensor) -> Tensor:
    """Which pairs are named, as `[N, M]`."""
    shape = batch.count, batch.candidates
    mask = torch.zeros(shape, dtype=torch.bool, device=batch.rows.device)
    mask[i, j] = True
    return mask


class PairSets(NamedTuple):
    """Positive pairs (`anchor`, `other`), each once, and all pairs as `[N, M]` masks.

    With `real`, on a device, only those of the list are there.
    """

    anchor: Tensor
    other: Tensor
    positive: Tensor
    negative: Tensor
    real: Tensor | None = None


def among(values: Tensor, mask: Tensor | None, others: float = 0.0) -> Tensor:
    """The entries of a mask; None: all. On a device, whose host would wait to know how many, there
    are `others` in the place of the rest.
    """
    if mask is None:
        return values
    return values[mask] if on_host(values) else values.masked_fill(~mask, others)


def mean_or_zero(loss: Tensor, mask: Tensor | None = None, *, nonzero: bool = False) -> Tensor:
    """Mean of the entries (of a mask, above 0), or a zero on the graph when there are none."""
    some = among(loss, mask)
    if not nonzero and (mask is None or on_host(loss)):
        return some.sum() / max(len(some), 1)
    counted = some.detach() > 0 if nonzero else mask
    return some.sum() / counted.sum().clamp(min=1)  # type: ignore[union-attr]
