"""k-means by exact Lloyd steps that rescan only what moved, and scores of a clustering (EPS §5.1).

Why not a library's k-means: with the thousands of clusters of NMI+ most centres stand still after a
few steps, so comparing every point with every centre again is wasted. The steps are Lloyd's, from
the same start to the same result as scikit-learn's; the start is greedy k-means++, as
scikit-learn's is, when clusters are few, drawn in rounds by the same weights when they are many.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, class_ids, points
from uncollapse._base.check import InputError, check_bool, check_int, check_paired
from uncollapse._base.result import Result
from uncollapse.distances import Frame, screen_dtype, short_squares, squared_norms
from uncollapse.metrics.ranking import check_directions

_ROWS, _COLUMNS = 1024, 512  # a tile of points and centres that stays near the core
_SUM_ROWS = 4096
_FEW_CLUSTERS = 128  # up to here k-means++ costs little beside the steps
_ROUNDS = 16  # of the start with many clusters


@dataclass(frozen=True, kw_only=True, repr=False)
class ClusteringResult(Result):
    """Agreement of a k-means clustering with the classes; `ami` is None unless asked for.

    `clusters` were asked for; `clusters_used` are not empty, fewer only when the points have fewer
    distinct values.
    """

    nmi: float
    ami: float | None = None
    f1: float
    clusters: int
    clusters_used: int
    classes: int
    inertia: float


def clustering(
    x: ArrayLike,
    labels: ArrayLike,
    clusters: int | None = None,
    *,
    multiplier: int = 1,
    restarts: int = 3,
    normalize: bool = False,
    ami: bool = False,
    seed: int = 0,
) -> ClusteringResult:
    """Cluster the points by k-means and compare with the labels.

    `clusters` defaults to `multiplier` times the number of classes: 1 gives NMI, 10 the NMI+ of
    EPS Table 2, 30 that of Table 3. NMI rewards class collapse; NMI+ lets a class keep several
    modes. AMI is corrected for chance, but slow for many clusters, so only on request. `f1` counts
    pairs, as in the metric-learning literature (Oh Song et al.): see `pairwise_f1`.

    >>> result = clustering([[0.0], [0.1], [5.0], [5.1]], ["a", "a", "b", "b"])
    >>> result.nmi, result.f1, result.clusters
    (1.0, 1.0, 2)
    """
    values = points(x.detach().cpu() if isinstance(x, Tensor) and not x.is_meta else x)
    ids, classes = class_ids(labels, len(values))
    check_int("multiplier", multiplier)
    if clusters is None:
        clusters = len(classes) * multiplier
        if clusters > len(values):
            given = f"{multiplier} (× {len(classes)} classes = {clusters} clusters)"
            raise InputError("multiplier", given, f"at most {len(values)} clusters, one per row")
    elif multiplier != 1:
        raise InputError("multiplier", multiplier, "1 when clusters is given")
    run = kmeans(values, clusters, restarts=restarts, normalize=normalize, seed=seed)
    agreement = None
    if check_bool("ami", ami):
        from sklearn.metrics import adjusted_mutual_info_score  # a second to load

        agreement = float(adjusted_mutual_info_score(ids, run.labels))
    return ClusteringResult(
        nmi=normalized_mutual_information(ids, run.labels),
        f1=pairwise_f1(ids, run.labels),
        clusters=clusters,
        clusters_used=len(np.unique(run.labels)),
        classes=len(classes),
        inertia=run.inertia,
        ami=agreement,
    )


def normalized_mutual_information(labels: ArrayLike, clusters: ArrayLike) -> float:
    """Mutual information over the mean of the two entropies; 1.0 if both are one group.

    >>> normalized_mutual_information([0, 0, 1, 1], [5, 5, 7, 7])
    1.0
    """
    both, rows, columns = _counts(labels, clusters)
    total = _entropy(rows) + _entropy(columns)
    if total == 0.0:
        return 1.0
    return max(0.0, 2 * (total - _entropy(both)) / total)


def pairwise_f1(labels: ArrayLike, clusters: ArrayLike) -> float:
    """F1 over pairs of points: predicted if they share a cluster, true if they share a class.

    P = pairs sharing both / pairs sharing a cluster,
    R = pairs sharing both / pairs sharing a class,
    F1 = 2PR/(P + R); 0 if no pair shares both.

    >>> pairwise_f1([0, 0, 1, 1], [0, 0, 0, 1])
    0.4
    """
    # Ordered pairs that share both, a class, a cluster; F1 = 2 hits / (true + predicted).
    hit, true, predicted = (int((n * (n - 1)).sum()) for n in _counts(labels, clusters))
    return 2 * hit / (true + predicted) if hit else 0.0


def _counts(labels: ArrayLike, clusters: ArrayLike) -> tuple[Array, Array, Array]:
    """Points that each class and cluster share (if any), points per class, points per cluster."""
    ids = class_ids(labels, None)[0]
    groups = class_ids(clusters, len(ids), "clusters")[0]
    _, both = np.unique(ids * (groups.max() + 1) + groups, return_counts=True)
    return both, np.bincount(ids), np.bincount(groups)


def _entropy(counts: Array) -> float:
    """Entropy in nats of a partition whose parts have these sizes."""
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())


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
    init: ArrayLike | None = None,
    restarts: int = 1,
    max_iter: int = 100,
    normalize: bool = False,
    seed: int = 0,
) -> KMeansResult:
    """Cluster the rows of `x`; the best of `restarts` runs by inertia.

    A run starts at the centres `init` (then there is one run), or at k-means++'s: greedily chosen
    up to 128 clusters, beyond that rows drawn with the same weights, a sixteenth of the centres at
    a time. It stops when no point changes its cluster. A cluster left empty restarts at the point
    farthest from its centre; with fewer distinct points than clusters some stay empty. Points
    (scaled to norm 1 if `normalize`) are centred in float64 and compared in float32. An inertia
    that float64 does not hold is infinite (points at 1e200) or 0 (at 1e-200); labels and centres
    are right there too.

    >>> result = kmeans([[0.0], [0.1], [5.0], [5.1]], 2)
    >>> bool(result.labels[0] == result.labels[1] != result.labels[2]), round(result.inertia, 6)
    (True, 0.01)
    """
    values = points(x).detach().cpu()
    check_int("clusters", clusters)
    check_int("restarts", restarts)
    check_int("max_iter", max_iter)
    check_int("seed", seed, 0)
    if clusters > len(values):
        raise InputError("clusters", clusters, f"at most {len(values)}, the number of rows")
    if check_bool("normalize", normalize):
        check_directions(values, names=["x"])
    frame = Frame.of(values, normalize=normalize, dtype=screen_dtype(), resident=False).kept()
    z, unit = frame.block(slice(None)), frame.zoom
    if init is not None:
        given = points(init, "init").detach().cpu().double()
        check_paired(values[:clusters], given, ("x[:clusters]", "init"))
        starts = [_assigned(frame, (given * unit - frame.centre).to(z.dtype))]
    else:
        start = _plus_plus if clusters <= _FEW_CLUSTERS else _drawn_in_rounds
        starts = [
            start(frame, clusters, np.random.default_rng((seed, run))) for run in range(restarts)
        ]
    best = min((_descend(start, max_iter) for start in starts), key=lambda run: run.inertia)
    centres = (torch.from_numpy(best.centres) + frame.centre) / unit
    return replace(best, centres=centres.numpy(), inertia=best.inertia / unit / unit)


def _plus_plus(frame: Frame, clusters: int, generator: np.random.Generator) -> State:
    """Greedy k-means++ (Arthur and Vassilvitskii 2007): keep the best of a few rows drawn.

    Not scikit-learn's, which takes longer to load than most clusterings take to run.
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
    return _assigned(frame, frame.block(torch.from_numpy(chosen)))


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


class State:
    """Centres and what is known of each point: its centre, its score there, a bound on the others.

    The score of a centre is |c|² - 2 z·c. `lower` is a distance that no centre but the point's own
    is nearer than.
    """

    def __init__(self, frame: Frame, clusters: int) -> None:
        self.frame, self.z = frame, frame.block(slice(None))
        self.norms = frame.norms.numpy()
        self.centres = self.z.new_empty(clusters, self.z.shape[1])
        self.labels = np.full(len(frame), -1)
        self.score = np.full_like(self.norms, np.inf)
        self.lower = np.full_like(self.norms, -np.inf)
        # What a product may be wrong by, in a squared distance; no centre is farther than a point.
        self.band = self.norms.dtype.type(2 * frame.gamma) * (self.norms + self.norms.max())

    def own(self) -> Array:
        """Upper bound of the distance of each point to its centre, tight up to rounding."""
        return np.asarray(np.sqrt(np.maximum(self.score + self.norms, 0.0) + self.band))

    def scan(self, rows: Array, among: Array) -> None:
        """Move each of `rows` to the nearest of the centres `among`, if it beats its score."""
        if not len(rows) or not len(among):
            return
        chosen = self.frame.beside(self.centres[torch.from_numpy(among)])
        buffer = self.z.new_empty(_ROWS * _COLUMNS)
        every = len(among) == len(self.centres)
        for low in range(0, len(rows), _ROWS):
            part = rows[low : low + _ROWS]
            some = self.frame.beside(self.z[torch.from_numpy(part)])
            best, label = self.score[part], self.labels[part]
            second = np.full(len(part), np.inf, best.dtype)
            each = np.arange(len(part))
            for first in range(0, len(among), _COLUMNS):
                columns = slice(first, min(first + _COLUMNS, len(among)))
                out = buffer[: len(part) * (columns.stop - first)].view(len(part), -1)
                tile = short_squares(some, slice(None), chosen, columns, out=out).numpy()
                column = tile.argmin(axis=1)
                value = tile[each, column]
                second = np.minimum(second, np.maximum(best, value))
                better = value < best
                # Only a tile that gives the new centre may hold another below the old one.
                again = each if every else np.flatnonzero(better)
                tile[again, column[again]] = np.inf
                others = tile if every else tile[again]
                second[again] = np.minimum(second[again], others.min(axis=1))
                best[better] = value[better]
                label[better] = among[first + column[better]]
            bound = np.sqrt(np.maximum(second + self.norms[part] - self.band[part], 0.0))
            self.lower[part] = bound if every else np.minimum(self.lower[part], bound)
            self.score[part], self.labels[part] = best, label

    def follow(self, moved: Array, before: Tensor) -> None:
        """Reassign the points after the centres `moved` have left their old places `before`."""
        here = self.centres[torch.from_numpy(moved)]
        step = torch.linalg.vector_norm(here - before, dim=1).mul_(1.00001).numpy()
        lost = np.isin(self.labels, moved)
        rows = np.flatnonzero(lost)
        for low in range(0, len(rows), _ROWS):
            row = rows[low : low + _ROWS]
            gap = self.z[torch.from_numpy(row)] - self.centres[torch.from_numpy(self.labels[row])]
            self.score[row] = squared_norms(gap).numpy() - self.norms[row]
        allowance = self._step_allowance(step, lost)
        self.lower -= allowance
        far, is_open = moved[step > allowance], self.own() >= self.lower
        again = np.flatnonzero(is_open & lost)
        self.score[again] = np.inf
        self.scan(again, np.arange(len(self.centres)))
        # A point whose centre stood still meets the moved ones; its bound on the others holds.
        stood = np.flatnonzero(is_open & ~lost)
        self.lower[stood] += allowance
        self.scan(stood, moved)
        self.scan(np.flatnonzero(~is_open), far)

    def _step_allowance(self, step: Array, lost: Array) -> float:
        """The step length that the bounds allow for; centres that moved farther meet every point.

        Hamerly 2010: a point nearer to its centre than the bound minus the allowance stays, unless
        a centre that moved farther has come near. The cheapest of a few values is taken.
        """
        slack = self.lower - self.own()

        def cost(allowance: float) -> int:
            is_open = slack <= allowance
            full, some = int((is_open & lost).sum()), int((is_open & ~lost).sum())
            closed = (len(lost) - full - some) * int((step > allowance).sum())
            return full * len(self.centres) + some * len(step) + closed

        allowances: list[float] = np.quantile(step, (1.0, 0.98, 0.9, 0.7, 0.4)).tolist()
        return min(allowances, key=cost)


def _descend(state: State, max_iter: int) -> KMeansResult:
    """Lloyd steps until no label changes."""
    labels = state.labels
    changed, before = np.ones(len(labels), bool), labels
    converged, iteration = False, 1
    while iteration < max_iter and not converged:
        # Every cluster that gained or lost a point gets a new centre; the others stand still.
        touched = np.union1d(labels[changed], before[changed])
        old = state.centres.clone()
        moved = _recentre(state, touched)
        before = labels.copy()
        state.follow(moved, old[torch.from_numpy(moved)])
        changed = labels != before
        converged = not changed.any()
        iteration += 1
    inertia = 0.0
    for low in range(0, len(labels), _SUM_ROWS):
        own = state.centres[torch.from_numpy(labels[low : low + _SUM_ROWS])]
        gap = state.z[low : low + _SUM_ROWS].double().sub_(own)
        inertia += float(gap.square_().sum())
    return KMeansResult(labels, state.centres.double().numpy(), inertia, iteration, converged)


def _recentre(state: State, touched: Array) -> Array:
    """Move touched centres to their means, empty ones to the worst points; return those moved."""
    z, centres, labels = state.z, state.centres, state.labels
    clusters = len(centres)
    counts = np.bincount(labels, minlength=clusters)
    is_touched = np.zeros(clusters, bool)
    is_touched[touched] = True
    rows = np.flatnonzero(is_touched[labels])
    index = np.cumsum(is_touched) - 1  # among the touched
    sums = torch.zeros(len(touched), z.shape[1], dtype=torch.float64)
    for low in range(0, len(rows), _SUM_ROWS):
        part = rows[low : low + _SUM_ROWS]
        at = torch.from_numpy(index[labels[part]])
        sums.index_add_(0, at, z[torch.from_numpy(part)].double())
    full = torch.from_numpy(counts[touched] > 0)
    size = torch.from_numpy(counts[touched]).double()[:, None]
    target = torch.from_numpy(touched)
    means = (sums / size.clamp(min=1)).to(centres.dtype)
    centres[target[full]] = means[full]

    empty = np.flatnonzero(counts == 0)
    if not len(empty):
        return touched
    apart = state.score + state.norms
    order = np.argsort(-apart, kind="stable")
    # Not from a cluster of one, and not where nothing would be gained.
    order = order[(counts[labels[order]] > 1) & (apart[order] > 1e-6 * max(apart.max(), 1e-30))]
    if not len(order):
        return touched
    head = order[: 8 * len(empty)]
    _, first = np.unique(z[torch.from_numpy(head)].numpy(), axis=0, return_index=True)
    distinct = head[np.sort(first)[: len(empty)]]
    refilled = empty[: len(distinct)]
    centres[torch.from_numpy(refilled)] = z[torch.from_numpy(distinct)]
    return np.union1d(touched, refilled)
