"""k-means by exact Lloyd steps that rescan only what moved; the clustering behind NMI (EPS §5.1).

Why not a library's: with the thousands of clusters of NMI+ most centres stand still after a few
steps, so comparing every point with every centre again is wasted (`_lloyd`). The steps are Lloyd's,
from the same start to the same result as scikit-learn's; the start is greedy k-means++, as
scikit-learn's is, when clusters are few, drawn in rounds by the same weights when they are many.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, points
from uncollapse._base.check import InputError, check_choice, check_int, check_paired
from uncollapse.distances import Frame
from uncollapse.distances.tiles import short_squares
from uncollapse.metrics._lloyd import State, descend
from uncollapse.metrics._ranked_set import check_norms, narrow_dtype

__all__ = ["KMeansResult", "kmeans"]

_FEW_CLUSTERS = 128  # up to here k-means++ costs little beside the steps
_ROUNDS = 16  # of the start with many clusters


@dataclass(frozen=True)
class KMeansResult:
    """Cluster of each row, the centres, the sum of squared distances to them, and the steps."""

    labels: Array
    centres: Array
    inertia: float
    iterations: int
    converged: bool


def kmeans(
    x: ArrayLike,
    clusters: int,
    *,
    init: str | ArrayLike = "auto",
    restarts: int = 1,
    max_iter: int = 100,
    normalize: bool = False,
    seed: int = 0,
) -> KMeansResult:
    """Cluster the rows of `x`; the best of `restarts` runs by inertia.

    `init` is `"k-means++"`, `"rounds"` (rows drawn with k-means++'s weights, a sixteenth of the
    centres at a time), `"random"` (distinct rows), `"auto"` (k-means++ up to 128 clusters, then
    rounds) or an array of centres (then one run). Stops when no point changes its cluster. A
    cluster left empty restarts at the point farthest from its centre; with fewer distinct points
    than clusters some stay empty. Points (scaled to norm 1 if `normalize`) are centred in float64
    and compared in float32. An inertia that float64 does not hold is infinite (points at 1e200) or
    0 (at 1e-200); labels and centres are right there too.

    >>> result = kmeans([[0.0], [0.1], [5.0], [5.1]], 2)
    >>> bool(result.labels[0] == result.labels[1] != result.labels[2]), round(result.inertia, 6)
    (True, 0.01)
    """
    values = points(x).detach().cpu()
    check_int("clusters", clusters)
    check_int("restarts", restarts)
    check_int("max_iter", max_iter)
    if clusters > len(values):
        raise InputError("clusters", clusters, f"at most {len(values)}, the number of rows")
    frame = Frame.of(values, sphere=normalize, dtype=narrow_dtype(), resident=False).kept()
    check_norms(frame, "x")
    z, unit = frame.block(slice(None)), frame.zoom
    if not isinstance(init, str):
        given = points(init, "init").detach().cpu().double()
        check_paired(values[:clusters], given, ("x[:clusters]", "init"))
        starts = [_assigned(frame, (given * unit - frame.centre).to(z.dtype))]
    else:
        check_choice("init", init, ("auto", "k-means++", "rounds", "random"))
        if init == "auto":
            init = "k-means++" if clusters <= _FEW_CLUSTERS else "rounds"
        starts = [
            _start(frame, clusters, init, np.random.default_rng((seed, run)))
            for run in range(restarts)
        ]
    best = min((_settled(start, max_iter) for start in starts), key=lambda run: run.inertia)
    centres = (torch.from_numpy(best.centres) + frame.centre) / unit
    return replace(best, centres=centres.numpy(), inertia=best.inertia / unit / unit)


def _settled(state: State, max_iter: int) -> KMeansResult:
    inertia, steps, converged = descend(state, max_iter)
    return KMeansResult(state.labels, state.centres.double().numpy(), inertia, steps, converged)


def _start(frame: Frame, clusters: int, init: str, generator: np.random.Generator) -> State:
    if init == "rounds":
        return _drawn_in_rounds(frame, clusters, generator)
    if init == "random":
        rows = torch.from_numpy(generator.permutation(len(frame))[:clusters])
        return _assigned(frame, frame.block(rows))
    chosen = _plus_plus(frame, clusters, generator)
    return _assigned(frame, frame.block(torch.from_numpy(chosen)))


def _plus_plus(frame: Frame, clusters: int, generator: np.random.Generator) -> Array:
    """Greedy k-means++ (Arthur and Vassilvitskii 2007): of a few rows drawn, the most helpful.

    Its own, because scikit-learn takes longer to load than most clusterings take.
    """
    norms, every = frame.norms.numpy(), slice(None)

    def squares(rows: Array) -> Array:
        tile = short_squares(frame, every, frame.at(torch.from_numpy(rows)), every)
        return np.asarray(np.maximum(tile.numpy() + norms[:, None], 0.0))

    chosen = generator.integers(len(frame), size=1)
    nearest = squares(chosen)[:, 0]
    tries = 2 + int(np.log(clusters))
    while len(chosen) < clusters:
        upto = nearest.cumsum(dtype=np.float64)
        drawn = np.searchsorted(upto, generator.random(tries) * upto[-1], side="right")
        drawn = np.minimum(drawn, len(frame) - 1)  # all points are centres already, or rounding
        offers = np.minimum(squares(drawn), nearest[:, None])
        best = int(offers.sum(axis=0, dtype=np.float64).argmin())
        chosen, nearest = np.append(chosen, drawn[best]), offers[:, best]
    return chosen


def _assigned(frame: Frame, centres: Tensor) -> State:
    state = State(frame, len(centres))
    state.centres.copy_(centres)
    state.scan(np.arange(len(frame)), np.arange(len(centres)))
    return state


def _drawn_in_rounds(frame: Frame, clusters: int, generator: np.random.Generator) -> State:
    """Rows drawn by their squared distance to the centres of the rounds before.

    It costs one comparison of all points with all centres, which the first step needs anyway.
    """
    n, state = len(frame), State(frame, clusters)
    ends = np.linspace(0, clusters, min(_ROUNDS, clusters) + 1).round().astype(int)
    for low, high in pairwise(ends.tolist()):
        # The least of exponential times of rate w are a draw by the weights w without replacement.
        weight = np.maximum(state.score + state.norms, 0.0) if low else np.ones(n)
        time = generator.standard_exponential(n) / np.maximum(weight, 1e-30)
        rows = np.argpartition(time, high - low - 1)[: high - low]
        state.centres[low:high] = frame.block(torch.from_numpy(rows))
        state.scan(np.arange(n), np.arange(low, high))
    return state
