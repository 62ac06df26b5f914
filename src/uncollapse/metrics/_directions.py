"""Rows on the unit sphere in float64, and the mean cosine of their pairs without the pairs."""

from __future__ import annotations

import numpy as np
import torch

from uncollapse._base.arrays import Array, ArrayLike, points64
from uncollapse._base.check import check_int
from uncollapse.distances import pairwise_distances

__all__ = ["block_squares", "chosen_rows", "mean_gap", "pair_blocks", "unit_rows"]

_BLOCK = 1024  # rows whose pairs are looked at together


def unit_rows(x: ArrayLike, *, min_rows: int = 1) -> Array:
    """Rows over their norms, of any size; a row of zeros, which has no direction, stays 0."""
    rows = points64(x, min_rows=min_rows)
    largest = np.abs(rows).max(axis=1, keepdims=True)
    rows = rows / np.where(largest > 0, largest, 1.0)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Array = rows / np.where(norms > 0, norms, 1.0)
    return unit


def mean_gap(unit: Array) -> float:
    """Mean of 1 - cosine over the pairs of unit rows (or zeros); NaN for a single one.

    1 - u·v = |u - v|²/2, and the mean of that over pairs is n/(n - 1) times the variance: right to
    its own last digits where 1 minus a cosine near 1 would have none. A pair with a row of zeros
    has cosine 0: what |u - v|²/2 lacks there is 1/2 for each of its zero rows.
    """
    n = len(unit)
    if n < 2:
        return float("nan")
    about = unit - unit[0]
    variance = float(((about - about.mean(axis=0)) ** 2).sum() / (n - 1))
    zeros = int((unit == 0).all(axis=1).sum())
    return variance + zeros / n


def chosen_rows(n: int, sample: int | None, seed: int) -> Array:
    """All rows where `sample` is None or large enough, else so many of them, ascending."""
    if sample is None or n <= check_int("sample", sample, 2):
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, sample, replace=False))


def pair_blocks(rows: Array) -> list[tuple[int, int]]:
    """Ends of blocks of rows; with all rows from its start on, each pair is met once."""
    return [(low, min(low + _BLOCK, len(rows))) for low in range(0, len(rows), _BLOCK)]


def block_squares(rows: Array, low: int, high: int) -> Array:
    """Squared distances of the pairs i < j with i in the block, as one list."""
    first, rest = torch.from_numpy(rows[low:high]), torch.from_numpy(rows[low:])
    squares = pairwise_distances(first, rest, squared=True).numpy()
    return squares[np.arange(high - low)[:, None] < np.arange(len(rest))]
