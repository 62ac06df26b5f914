"""How noisy are the labels? An estimate of p from how often neighbours share a label."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, class_ids, points
from uncollapse._base.check import InputError, check_int, check_number
from uncollapse._base.table import percent
from uncollapse.distances import pairwise_distances
from uncollapse.noise.model import NoiseModel

_ROWS = 512  # rows whose distances are held at a time
_ASSUMES = (
    "labels are wrong at random as in NoiseModel, independently of the sample; near neighbours are "
    "of the same true class (where classes touch, p is underestimated); the embedding was not "
    "trained on these labels (one that memorised them hides the noise)"
)


@dataclass(frozen=True)
class NoiseEstimate:
    """p and its interval; `agreement` is the share of neighbours with the sample's own label."""

    p: float
    low: float
    high: float
    confidence: float
    agreement: float
    classes: int
    neighbours: int
    assumes: str = _ASSUMES

    def __str__(self) -> str:
        interval = f"{percent(self.confidence)} interval {self.low:.3f} to {self.high:.3f}"
        return f"p = {self.p:.3f} ({interval}), assuming that {self.assumes}"


def estimate_noise(
    embeddings: ArrayLike,
    labels: ArrayLike,
    *,
    neighbours: int = 5,
    confidence: float = 0.95,
    classes: int | None = None,
) -> NoiseEstimate:
    """Estimate the probability p that a label is right, with an interval.

    Two samples of one class agree with probability S_same = p² + (1 − p)²/(t − 1); the agreement
    of each sample with its nearest neighbours estimates S_same, solved here for p >= 1/t. The
    interval holds every p whose S_same is within z standard deviations of the agreement; the
    deviation is exact for the model and for this neighbour graph. See `assumes` in the result.

    >>> z = torch.cat([torch.zeros(50, 1), torch.ones(50, 1)])
    >>> clean = estimate_noise(z, [0] * 50 + [1] * 50)
    >>> clean.p, round(clean.low, 2)
    (1.0, 0.91)
    """
    z = points(embeddings, "embeddings", min_rows=2).detach()
    ids, names = class_ids(labels, len(z), min_classes=2)
    t = len(names) if classes is None else check_int("classes", classes, low=len(names))
    if check_int("neighbours", neighbours) >= len(z):
        raise InputError("neighbours", neighbours, f"fewer than the {len(z)} rows")
    level = check_number("confidence", confidence, low=0.0, high=1.0)
    if level in (0.0, 1.0):
        raise InputError("confidence", confidence, "a number strictly between 0 and 1")

    near = _nearest(z, neighbours)
    agreement = float((ids[near] == ids[:, None]).mean())
    spread = _deviation(near, t)
    z_score = NormalDist().inv_cdf(0.5 + level / 2)

    def outside(p: float) -> float:
        return abs(NoiseModel(t, p).same - agreement) - z_score * spread(p)

    # S_same = 1/t + (tp − 1)²/(t(t − 1))
    p = min(1.0, (1 + math.sqrt(max(agreement - 1 / t, 0.0) * t * (t - 1))) / t)
    low, high = _edge(outside, p, 1 / t), _edge(outside, p, 1.0)
    return NoiseEstimate(p, low, high, level, agreement, t, neighbours)


def _nearest(z: Tensor, k: int) -> Array:
    """`[N, k]` nearest other rows."""
    nearest = []
    for start in range(0, len(z), _ROWS):
        rows = torch.arange(start, min(start + _ROWS, len(z)), device=z.device)
        d = pairwise_distances(z[rows], z, squared=True)
        d[torch.arange(len(rows)), rows] = torch.inf
        nearest.append(d.topk(k, largest=False).indices.cpu())
    return torch.cat(nearest).numpy()


def _deviation(near: Array, t: int) -> Callable[[float], float]:
    """Standard deviation of the agreement as a function of p, by its Hoeffding decomposition.

    1[Y_i = Y_j] = S + (g_i − S) + (g_j − S) + remainder, with g = p for a right label and q for a
    wrong one; the parts of different samples and of different pairs are uncorrelated.
    """
    n, k = near.shape
    degree = k + np.bincount(near.ravel(), minlength=n)
    rows = np.repeat(np.arange(n), k)
    pairs = np.minimum(rows, near.ravel()) * n + np.maximum(rows, near.ravel())
    times = np.unique(pairs, return_counts=True)[1]  # 2 for mutual neighbours
    by_sample, by_pair = float((degree**2).sum()), float((times**2).sum())

    def deviation(p: float) -> float:
        noise = NoiseModel(t, p)
        single = p * (1 - p) * (p - noise.q) ** 2
        paired = max(noise.same * (1 - noise.same) - 2 * single, 0.0)
        return math.sqrt(single * by_sample + paired * by_pair) / float(near.size)

    return deviation


def _edge(outside: Callable[[float], float], inside: float, limit: float) -> float:
    """The end of the interval around `inside` in the direction of `limit`."""
    from scipy.optimize import brentq

    if inside == limit or outside(limit) <= 0:
        return limit
    # At p = 1 the deviation is 0: start a hair off the estimate. An agreement below chance is
    # farther off than any p allows: the interval is the one point.
    start = inside + 1e-9 * (limit - inside)
    return inside if outside(start) >= 0 else float(brentq(outside, start, limit, xtol=1e-9))
