"""k-means by exact Lloyd steps that rescan only what moved; the clustering behind NMI (EPS §5.1).

Why not a library's: with the thousands of clusters of NMI+ most centres stand still after a few
steps, so comparing every point with every centre again is wasted. A point whose own centre stood
still needs only the centres that moved. The steps are Lloyd's, from the same start to the same
result as scikit-learn's; the start is scikit-learn's k-means++ when clusters are few.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.cluster import kmeans_plusplus
from torch import Tensor

from uncollapse._check import ArrayLike, InputError, check_choice, check_int, check_paired, points
from uncollapse.metrics._frame import make_sides

__all__ = ["KMeansResult", "kmeans"]

Array = np.ndarray[Any, Any]
_FEW_CLUSTERS = 128  # up to here k-means++ costs little beside the steps
_TILE_ELEMENTS = 1 << 19  # point-centre products held at a time: 2 MB
_SUM_ROWS = 4096


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

    `init` is `"k-means++"`, `"random"` (distinct rows), `"auto"` (k-means++ up to 128 clusters) or
    an array of centres (then one run). Stops when no point changes its cluster. A cluster left
    empty restarts at the point farthest from its centre; with fewer distinct points than clusters
    some stay empty. Points (scaled to norm 1 if `normalize`) are centred in float64 and compared
    in float32.

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
    side = make_sides(
        [("x", values.contiguous(), np.arange(len(values)))], normalize=normalize, resident=True
    )[0]
    z = side.block(0, len(values)).float()
    if not isinstance(init, str):
        given = points(init, "init").detach().cpu().double()
        check_paired(values[:clusters], given, ("x[:clusters]", "init"))
        starts = [(given * side.unit - side.middle).float()]
    else:
        check_choice("init", init, ("auto", "k-means++", "random"))
        plus = init == "k-means++" or (init == "auto" and clusters <= _FEW_CLUSTERS)
        starts = [
            _start(z, clusters, plus, np.random.default_rng((seed, run))) for run in range(restarts)
        ]
    best = min((_lloyd(z, start, max_iter) for start in starts), key=lambda run: run.inertia)
    centres = ((torch.from_numpy(best.centres) + side.middle) / side.unit).numpy()
    return KMeansResult(
        best.labels, centres, best.inertia / side.unit**2, best.iterations, best.converged
    )


def _start(z: Tensor, clusters: int, plus: bool, generator: np.random.Generator) -> Tensor:
    if plus:
        state = int(generator.integers(2**31))
        centres, _ = kmeans_plusplus(z.numpy(), clusters, random_state=state)
        return torch.from_numpy(centres)
    return z[torch.from_numpy(generator.permutation(len(z))[:clusters])].clone()


def _lloyd(z: Tensor, centres: Tensor, max_iter: int) -> KMeansResult:
    """Lloyd steps until no label changes. `score` is |c|² - 2 z·c of each point's own centre."""
    n, clusters = len(z), len(centres)
    centres = centres.clone()
    labels = np.full(n, -1, np.int64)
    score = np.full(n, np.inf, np.float32)
    moved = np.arange(clusters)
    everything = np.arange(clusters)
    converged = False
    iteration = 0
    for iteration in range(1, max_iter + 1):
        before = labels.copy()
        is_moved = np.zeros(clusters, bool)
        is_moved[moved] = True
        lost = is_moved[labels] if iteration > 1 else np.ones(n, bool)
        # A point whose centre moved has lost its score; any other only meets the moved centres.
        _nearest(z, centres, np.flatnonzero(lost), everything, labels, score)
        _nearest(z, centres, np.flatnonzero(~lost), moved, labels, score)
        changed = labels != before
        if not changed.any():
            converged = True
            break
        # Every cluster that gained or lost a point gets a new centre; the others stand still.
        touched = np.union1d(labels[changed], before[changed & (before >= 0)])
        moved = _recentre(z, centres, labels, touched, score)
    inertia = 0.0
    for low in range(0, n, _SUM_ROWS):
        own = centres[torch.from_numpy(labels[low : low + _SUM_ROWS])]
        inertia += float((z[low : low + _SUM_ROWS].double() - own.double()).square().sum())
    return KMeansResult(labels, centres.double().numpy(), inertia, iteration, converged)


def _nearest(
    z: Tensor, centres: Tensor, rows: Array, among: Array, labels: Array, score: Array
) -> None:
    """Move each of `rows` to the nearest of the centres `among`, if it beats its score."""
    if not len(rows) or not len(among):
        return
    full = len(among) == len(centres)
    if full:
        score[rows] = np.inf
    chosen = centres if full else centres[torch.from_numpy(among)]
    norms, turned = chosen.square().sum(1), (-2.0 * chosen).T.contiguous()
    step = max(64, min(4096, _TILE_ELEMENTS // len(among)))
    buffer = torch.empty(step * len(among))
    for low in range(0, len(rows), step):
        part = rows[low : low + step]
        out = buffer[: len(part) * len(among)].view(len(part), len(among))
        left = z[low : low + step] if len(rows) == len(z) else z[torch.from_numpy(part)]
        torch.mm(left, turned, out=out).add_(norms)
        tile = out.numpy()
        place = np.argmin(tile, axis=1)
        value = tile[np.arange(len(part)), place]
        better = value < score[part]
        labels[part[better]] = among[place[better]]
        score[part[better]] = value[better]


def _recentre(z: Tensor, centres: Tensor, labels: Array, touched: Array, score: Array) -> Array:
    """Put the touched centres at their means, empty ones at the worst points; return the moved."""
    clusters = len(centres)
    counts = np.bincount(labels, minlength=clusters)
    is_touched = np.zeros(clusters, bool)
    is_touched[touched] = True
    rows = np.flatnonzero(is_touched[labels])
    place = np.cumsum(is_touched) - 1  # among the touched
    sums = torch.zeros(len(touched), z.shape[1], dtype=torch.float64)
    for low in range(0, len(rows), _SUM_ROWS):
        part = rows[low : low + _SUM_ROWS]
        at = torch.from_numpy(place[labels[part]])
        sums.index_add_(0, at, z[torch.from_numpy(part)].double())
    full = torch.from_numpy(counts[touched] > 0)
    size = torch.from_numpy(counts[touched]).double()[:, None]
    target = torch.from_numpy(touched)
    means = (sums / size.clamp(min=1)).float()
    centres[target[full]] = means[full]

    empty = np.flatnonzero(counts == 0)
    if not len(empty):
        return touched
    apart = score + z.square().sum(1).numpy()
    order = np.argsort(-apart, kind="stable")
    # Not from a cluster of one, and not where nothing would be gained.
    order = order[(counts[labels[order]] > 1) & (apart[order] > 1e-6 * max(apart.max(), 1e-30))]
    distinct = _distinct(z, order, len(empty))
    refilled = empty[: len(distinct)]
    centres[torch.from_numpy(refilled)] = z[torch.from_numpy(distinct)]
    return np.union1d(touched, refilled)


def _distinct(z: Tensor, order: Array, wanted: int) -> Array:
    """The first `wanted` rows of `order` that differ from each other."""
    head = order[: 8 * wanted]
    if not len(head):
        return head
    _, first = np.unique(z[torch.from_numpy(head)].numpy(), axis=0, return_index=True)
    return head[np.sort(first)[:wanted]]
