"""Mode drift: whether a loss merges the modes of a class, without fine labels or training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, points
from uncollapse._base.check import check_int
from uncollapse._base.classes import ClassLayout
from uncollapse.health.loss_pull import (
    LEFT_OUT,
    Batch,
    LossFn,
    Pull,
    check_loss_fn,
    leave_out,
    pull,
    several,
)

__all__ = ["MODES_KEPT", "MODE_NEIGHBOURS", "ModeDrift", "mode_drift", "mode_rates"]

MODE_NEIGHBOURS = 3  # neighbours that show a mode
MODES_KEPT = 0.1  # mode drifts up to this keep modes: that of a batch varies by as much

_ROUNDING = 2.0**10  # roundings of the embedding's size below which modes are no more than those


@dataclass(frozen=True)
class ModeDrift:
    """Rates at which a loss merges modes; NaN where the batch shows none.

    `value` is n · mean distance · <S, ∇L> / |S|²; `spread` its standard deviation over batches, NaN
    where one batch was measured once; `exact` the same with <TᵀS, ∇L> for S = TZ: minus half of
    n · mean distance · d/dt log |S|² under gradient flow. `inside` is the rate of the rest, each
    row less the mean of its neighbourhood: a loss that keeps modes and learns has it above 0.
    """

    value: float
    spread: float
    exact: float
    inside: float


def mode_drift(
    loss_fn: LossFn,
    embeddings: ArrayLike | Sequence[Batch],
    labels: ArrayLike | None = None,
    *,
    k: int = MODE_NEIGHBOURS,
    normalized: bool = False,
    resamples: int = 0,
    seed: int = 0,
) -> ModeDrift:
    """n · mean distance · <S, ∇L> / |S|², for any `loss_fn(embeddings, labels)`.

    S, the modes of the classes as nearest neighbours show them: for each of the n rows, the mean of
    itself and its `k` nearest of the same class, less the class mean of that. Positive: the loss
    merges the modes of a class. Zero or negative: it keeps them, or moves them apart. Under
    gradient flow modes shrink only while `exact` is positive, and need not vanish then. The sign is
    that of this moment: a batch after a few steps of training tells more than one of an untrained
    network. Losses whose gradients differ in scale can be compared by sign, and by
    `value / inside`, not by size. One backward pass, as for `drift`.

    A class of at most k + 1 rows is its own neighbourhood and shows no modes; where no class shows
    any, or all rows of every class coincide, the rates are NaN. Of neighbours at equal distance the
    lowest index is taken.

    Args:
        loss_fn: ours, pytorch-metric-learning's, or any callable that gives a scalar.
        embeddings: one batch `[N, dim]` with its `labels`, or several as `[(embeddings, labels)]`:
            rates are then means over those that show modes, the spread a standard deviation.
        k: neighbours of each row; fewer than a mode has rows in the batch.
        normalized: the model ends in an L2 normalisation, as for `drift`.
        resamples: for one batch, estimate the spread by this many runs that each leave out a
            quarter of every class (a delete-d jackknife).
        seed: of the resamples.

    >>> from uncollapse.losses import TripletLoss
    >>> from uncollapse.mining import Miner
    >>> z = torch.tensor([[-3.0, 0], [-3, 1], [3, 0], [3, 1], [-5, 8], [-5, 9], [5, 8], [5, 9]])
    >>> labels = [0, 0, 0, 0, 1, 1, 1, 1]
    >>> for positives in ("easy", "hard"):
    ...     loss = TripletLoss(margin=9.0, miner=Miner(positives, "hard"))
    ...     print(positives, round(mode_drift(loss, z, labels, k=1).value, 2))
    easy -0.24
    hard 3.5
    """
    check_loss_fn(loss_fn)
    check_int("k", k)
    if labels is None:
        every = [_measured(loss_fn, z, y, k, normalized) for z, y in several(embeddings)]
        seen = [rates for rates in every if not math.isnan(rates[0])]
        if not seen:
            return ModeDrift(math.nan, math.nan, math.nan, math.nan)
        value, exact, inside = np.mean(seen, axis=0).tolist()
        spread = float(np.std([one[0] for one in seen], ddof=1)) if len(seen) > 1 else math.nan
        return ModeDrift(value, spread, exact, inside)
    whole = points(embeddings, "embeddings", min_rows=2)
    value, exact, inside = _measured(loss_fn, whole, labels, k, normalized)
    check_int("resamples", resamples, 0)
    if resamples < 2:
        return ModeDrift(value, math.nan, exact, inside)
    rng = np.random.default_rng(seed)
    subsets = [leave_out(whole, labels, rng) for _ in range(resamples)]
    values = np.array([_measured(loss_fn, z, y, k, normalized)[0] for z, y in subsets])
    values = values[~np.isnan(values)]
    deviation = float(np.std(values)) if len(values) > 1 else math.nan
    return ModeDrift(value, deviation * math.sqrt((1 - LEFT_OUT) / LEFT_OUT), exact, inside)


def mode_rates(found: Pull, labels: ArrayLike, k: int) -> tuple[float, float, float]:
    """`value`, `exact` and `inside` of one batch whose gradient is known."""
    n, smallest = len(found.rows), _ROUNDING * torch.finfo(found.rows.dtype).eps
    layout = ClassLayout.of(labels, n)
    if found.mean == 0.0:
        return math.nan, math.nan, math.nan
    # In units of the mean distance, so that no square under- or overflows.
    rows = found.rows / found.mean
    own = _neighbourhoods(found.distances, layout, k)
    means = _averaged(rows, own)
    modes = _about_class_mean(means, layout)
    size, whole = float(modes.square().sum()), float(rows.square().sum())
    if size <= smallest**2 * whole:
        return math.nan, math.nan, math.nan
    # S = PAZ, where A averages over neighbourhoods and P subtracts class means: TᵀS = Aᵀ P S = AᵀS.
    back = _spread_back(modes, own)
    value, exact = (n * float((part * found.slope).sum()) / size for part in (modes, back))
    rest = rows - means
    left = float(rest.square().sum())
    if left <= smallest**2 * whole:
        return value, exact, 0.0
    return value, exact, n * float((rest * found.slope).sum()) / left


def _measured(
    loss_fn: LossFn, z: ArrayLike, labels: ArrayLike, k: int, normalized: bool
) -> tuple[float, float, float]:
    return mode_rates(pull(loss_fn, z, labels, normalized), labels, k)


def _neighbourhoods(distances: Tensor, layout: ClassLayout, k: int) -> list[tuple[Tensor, Tensor]]:
    """For each class its rows, and for each of them itself and its k nearest of the class."""
    found = []
    for c in range(len(layout.classes)):
        rows = _on(layout.members(c), distances)
        among = distances[rows[:, None], rows].fill_diagonal_(-1.0)  # itself before its copies
        order = among.argsort(dim=1, stable=True)[:, : min(k + 1, len(rows))]
        found.append((rows, rows[order]))
    return found


def _averaged(rows: Tensor, own: list[tuple[Tensor, Tensor]]) -> Tensor:
    """AZ: each row's mean over its neighbourhood, taken about the row itself.

    Differences keep a mode whose rows coincide exactly where it is.
    """
    means = torch.empty_like(rows)
    for members, near in own:
        middle = rows[members]
        means[members] = middle + (rows[near] - middle[:, None]).mean(1)
    return means


def _spread_back(modes: Tensor, own: list[tuple[Tensor, Tensor]]) -> Tensor:
    """AᵀS."""
    back = torch.zeros_like(modes)
    for members, near in own:
        share = modes[members] / near.shape[1]
        back.index_add_(0, near.flatten(), share.repeat_interleave(near.shape[1], dim=0))
    return back


def _about_class_mean(rows: Tensor, layout: ClassLayout) -> Tensor:
    ids = _on(layout.ids, rows)
    counts = _on(layout.counts, rows).to(rows.dtype)
    sums = rows.new_zeros(len(layout.classes), rows.shape[1]).index_add_(0, ids, rows)
    return rows - (sums / counts[:, None])[ids]


def _on(index: Array, like: Tensor) -> Tensor:
    return torch.from_numpy(index).to(like.device)
