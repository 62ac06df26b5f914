"""What users hand to `verification`: checked, and as arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, class_ids, label_array, numbers64
from uncollapse._base.check import InputError, check_int

__all__ = [
    "accept_rates",
    "finite_scores",
    "fold_numbers",
    "pair_truth",
    "row_pairs",
    "truth_values",
]


def finite_scores(scores: ArrayLike) -> Array:
    """Scores as finite float64 numbers, or an `InputError`."""
    values = numbers64(scores, "scores", least=2)
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise InputError("scores", f"{values[row]} in row {row}", "finite numbers")
    return values


def truth_values(same: ArrayLike | None, count: int) -> Array:
    """`same` as booleans, one a pair, or an `InputError`."""
    allowed = f"{count} truth values (True or 1: the same), one a pair"
    if same is None:
        raise InputError("same", "None", allowed)
    array = np.asarray(same.detach().cpu() if isinstance(same, Tensor) else same)
    if (
        array.shape != (count,)
        or array.dtype.kind not in "biuf"
        or not np.isin(array, (0, 1)).all()
    ):
        raise InputError("same", f"{array.dtype} of shape {array.shape}", allowed)
    return array.astype(bool)


def row_pairs(pairs: ArrayLike, rows: int) -> Array:
    """Pairs of row numbers `[P, 2]`, or an `InputError`."""
    array = np.asarray(pairs.detach().cpu() if isinstance(pairs, Tensor) else pairs)
    if array.ndim != 2 or array.shape[1] != 2 or not len(array) or array.dtype.kind not in "iu":
        given = f"{array.dtype} of shape {array.shape}"
        raise InputError("pairs", given, "row numbers of shape [P, 2]")
    if array.min() < 0 or array.max() >= rows:
        given = f"{array.min()} to {array.max()}"
        raise InputError("pairs", given, f"row numbers from 0 to {rows - 1}")
    itself = np.flatnonzero(array[:, 0] == array[:, 1])
    if len(itself):
        given = f"row {array[itself[0], 0]} with itself in pair {itself[0]}"
        raise InputError("pairs", given, "two different rows in each")
    return array.astype(np.int64)


def pair_truth(rows: Array, same: ArrayLike | None, labels: ArrayLike | None, count: int) -> Array:
    """Which pairs are the same: as said, or by the labels of their rows."""
    if same is not None:
        return truth_values(same, len(rows))
    if labels is None:
        raise InputError("same", "None", "one truth value a pair, or labels, which say it")
    ids, _ = class_ids(labels, count)
    found: Array = ids[rows[:, 0]] == ids[rows[:, 1]]
    return found


def fold_numbers(folds: ArrayLike | int, same: Array) -> Array:
    """The fold of each pair; a number makes so many runs of the pairs as they stand."""
    if isinstance(folds, int | np.integer):
        if not 2 <= check_int("folds", folds, 2) <= len(same):
            raise InputError("folds", folds, f"at most {len(same)}, the number of pairs")
        parts = np.arange(len(same)) * int(folds) // len(same)
    else:
        parts = label_array(folds, len(same), "folds")
    for fold in np.unique(parts):
        rest = same[parts != fold]
        if not rest.any() or rest.all():
            given = f"a fold, {fold}, without which no same or no different pairs are left"
            raise InputError("folds", given, "two folds or more, with both kinds of pairs")
    return parts


def accept_rates(far: Sequence[float]) -> Array:
    """False accept rates as an array, or an `InputError`."""
    try:
        values = np.atleast_1d(np.asarray(far, dtype=float))
    except (TypeError, ValueError):
        values = np.zeros(1)
    if not len(values) or not ((values > 0) & (values < 1)).all():
        raise InputError("far", repr(far), "numbers between 0 and 1")
    return values
