"""Every figure of collapse of one snapshot of an embedding; `measure` judges them too."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uncollapse import metrics
from uncollapse._base.arrays import (
    Array,
    ArrayLike,
    ClassLayout,
    as_rows,
    class_ids,
    label_array,
    points,
)
from uncollapse._base.check import InputError, check_bool, check_int
from uncollapse.distances import binary_scale, pairwise_distances, working_dtype
from uncollapse.geometry import Thickness, thickness
from uncollapse.geometry.diameters import diameter_bracket
from uncollapse.health.verdict import (
    FEW_EQUAL,
    ClassHealth,
    Cosines,
    Health,
    Histogram,
    NearestLabels,
    Norms,
    Reference,
    Thresholds,
    judge,
)
from uncollapse.metrics.collapse import Spectrum, spectrum

__all__ = ["balanced_rows", "measure", "spread"]

_EXACT_DIM, _EXACT_ROWS = 3, 2048  # up to these the smallest width is found exactly, and quickly
_SAFE = (1e-150, 1e150)  # lengths whose squares float64 holds
_VALUES = 1 << 20  # converted to float64 at a time: 8 MB
_WORK = 1e11  # multiplications that look for the diameters: some seconds
_ROWS = 256  # most rows of a batch that its diameter is measured on
_NEIGHBOURS = 5  # of a row at the start, inside its class
_ROOM = 3  # a class counts if it has rows for this many neighbourhoods
_TIE = 2.0**-40  # relative: equal distances that rounding tells apart
_VOTES_TIE = 1e-9  # relative difference of distances that counts as none
_MODE_CLASSES, _MODE_ROWS = 20, 800  # that are looked at for modes: the largest classes, evenly
_WITHOUT_MODES = ("network-collapse", "diverging", "uninformative")
_FEW = 8  # rows that are judged without spoiled ones, at least
_BINS = 40
_COSINE_ROWS = 512  # whose 130,000 pairs give the quantiles of the cosine


def measure(
    embeddings: ArrayLike,
    labels: ArrayLike | None = None,
    thresholds: Thresholds | None = None,
    reference: Health | Reference | float | None = None,
    *,
    fine_labels: ArrayLike | None = None,
    before: ArrayLike | None = None,
    sample: int = 2048,
    modes: bool = True,
    seed: int = 0,
    cosine: bool = True,
    spoiled: metrics.SpoiledRows | None = None,
    names: ArrayLike | None = None,
) -> Health:
    """Measure an embedding and say whether it has collapsed.

    Distances are taken about the centre in float64, so neither the position nor the scale of the
    embedding changes a figure beyond rounding, in any dtype. Diameters are exact unless there are
    too many pairs (from about 23,000 rows of 384 dimensions on): then they are the largest distance
    between rows far from the centre, and `diameter_most` bounds them. What would cost N² is
    measured on `sample` rows, evenly over classes; separation is then an upper bound. `modes=False`
    skips the modes of the 20 largest classes, which are not in the verdict. `cosine=False`:
    rows are compared by Euclidean distance alone, so only rows of length 1 can be a cone.

    **One snapshot can decide** that all rows agree to the precision of their dtype, or to four
    digits of their distance from the origin; that they share one direction; that classes are
    points; that few axes are used; that neighbours say nothing about labels. **It cannot decide**
    whether a diameter of 2e-5 about the origin is a collapse or small units. That takes a scale:
    `reference` (a healthy earlier `Health`, or its diameter), or `Thresholds(margin=...)`.
    Shrinking and diverging need a reference. NaN or infinite rows are left out if they are at most
    one in twenty; more are `diverging`, all figures NaN.

    **Rows that spoil the others** (`spoiled`, which `find_spoiled` gives) do not decide: where some
    are zero, one and the same, or at most 2 % far from all others, the verdict is from the figures
    without them, `Health.robust`; reasons name these rows, by `names` if given.

    **Modes that merged inside classes** (EPS §4) are seen by `fine_labels`, beside the reference's
    or chance; without, by `before`, the same rows at the start, then the reference too by default.

    >>> z, labels = torch.randn(60, 8, generator=torch.manual_seed(0)), torch.arange(60) % 6
    >>> first = measure(z, labels)
    >>> print(measure(z * 1e-3, labels, reference=first))
    network-collapse
      diameter 0.00789: the embedding fell to 0.1...% of its reference scale
    >>> measure(z + 30, labels).verdict, measure(z + 30, labels, cosine=False).verdict
    ('cone', 'healthy')
    """
    check_int("sample", sample, 8), check_bool("modes", modes)
    limits = Thresholds.of(thresholds)
    embeddings = as_rows(embeddings, "embeddings", min_rows=2).detach().cpu()
    if reference is None and before is not None:
        start: dict[str, Any] = {"fine_labels": fine_labels, "sample": sample, "seed": seed}
        reference = measure(before, labels, modes=False, **start)
    spoiled = spoiled or metrics.find_spoiled(embeddings, neighbours=False)
    given = (embeddings, labels, fine_labels, before)
    how = {"margin": limits.margin or 0.0, "sample": sample, "seed": seed}
    health, kept = _with_robust(given, how, spoiled, names, limits.equal_share)
    health = judge(health, limits, reference, cosine=cosine)
    return with_modes(health, *kept[:2], seed=seed) if modes and health.classes else health


def _with_robust(
    given: tuple[Any, ...],
    how: dict[str, Any],
    spoiled: metrics.SpoiledRows,
    names: ArrayLike | None,
    equal_share: float,
) -> tuple[Health, tuple[Any, ...]]:
    """Figures of all rows but a few invalid ones, and without spoiled ones; what was measured."""
    lost, zero, equal = len(spoiled.invalid), len(spoiled.zero), len(spoiled.equal)
    rows = spoiled.kept(["invalid"] if lost <= metrics.FEW_INVALID * spoiled.n else [])
    kept = _select(given, rows)
    health = health_figures(*kept, **how)
    health = replace(health, invalid_rows=lost, zero_rows=zero, equal_rows=equal)
    usual = _usual_rows(rows, given[1], spoiled, equal_share)
    if len(usual) < len(rows) and not math.isnan(health.diameter):
        words = spoiled.sentences(None if names is None else label_array(names))
        left_out = tuple(words[kind] for kind in ("zero", "duplicates", "far") if kind in words)
        robust = health_figures(*_select(given, usual), **how)
        health = replace(health, robust=robust, left_out=left_out)
    return health, kept


def _select(given: tuple[Any, ...], rows: Array) -> tuple[Any, ...]:
    """Some rows, or all, of embeddings, two kinds of labels, and embeddings of the start."""
    z, labels, fine, before = given
    if len(rows) == len(z):
        return given
    labels, fine = (None if x is None else label_array(x)[rows] for x in (labels, fine))
    return z[rows], labels, fine, None if before is None else as_rows(before)[rows]


def _usual_rows(
    rows: Array, labels: ArrayLike | None, spoiled: metrics.SpoiledRows, equal_share: float
) -> Array:
    """The rows that decide: not far from all others, not zero or one and the same.

    Zero or equal rows stay where they are a class, or where nearly all rows are so.
    """
    usual = np.setdiff1d(rows, spoiled.far)
    ids = np.arange(spoiled.n) if labels is None else class_ids(labels, spoiled.n)[0]
    several = len(spoiled.equal) >= max(FEW_EQUAL, equal_share * spoiled.n)
    for alike in (spoiled.zero, spoiled.equal[: spoiled.n * several]):
        own, others = np.isin(ids, ids[alike]), np.setdiff1d(usual, alike)
        is_class = len(np.unique(ids[own])) == 1 and 1 < len(alike) > own.sum() / 2
        if not is_class and len(others) > max(_FEW, metrics.FAR_SHARE * len(rows)):
            usual = others
    return usual


def health_figures(
    embeddings: ArrayLike,
    labels: ArrayLike | None,
    fine_labels: ArrayLike | None = None,
    before: ArrayLike | None = None,
    *,
    sample: int,
    margin: float = 0.0,
    seed: int = 0,
) -> Health:
    """All figures but modes, not yet judged."""
    x = as_rows(embeddings, "embeddings").detach().cpu()
    integers = isinstance(embeddings, Tensor) and not embeddings.is_floating_point()
    epsilon = 0.0 if integers else torch.finfo(x.dtype).eps
    if not all(bool(torch.isfinite(chunk).all()) for chunk in _wide_chunks(x)):
        return _unknown(*x.shape)
    layout = ClassLayout.of(np.arange(len(x)) if labels is None else labels, len(x))
    scale, part = _scale(x, x, epsilon), _Sample.of(x, layout, sample, seed)
    axes = spectrum(part.rows)
    cosines = None
    if len(part.rows) > 1:
        pairs = metrics.anisotropy(part.rows, quantiles=(0.1, 0.5, 0.9), sample=_COSINE_ROWS)
        cosines = Cosines(pairs.mean, *pairs.quantiles.values())
    health = Health(
        **scale,
        dim=x.shape[1],
        effective_rank=metrics.effective_rank(axes),
        axes=metrics.principal_axes(axes),
        room=min(x.shape[1], len(part.rows) - 1),
        thickness=thickness_bracket(x, axes),
        between=_histogram(part.between, scale["diameter"]),
        sampled=len(part.rows),
        cosines=cosines,
    )
    if labels is None:
        return health
    health = replace(health, **_class_figures(x, layout, part, health.diameter, margin))
    return replace(health, **_inner_figures(part, len(x), fine_labels, before))


def to_host(*parts: Any) -> list[Any]:
    """The same values with all tensors on the host, by a single copy from their device.

    Each copy from a device waits for it, however small; anything that is no tensor stays as it is.

    >>> to_host(torch.ones(2), ["a", "b"], None)
    [tensor([1., 1.]), ['a', 'b'], None]
    """
    given = [part.detach() if isinstance(part, Tensor) else part for part in parts]
    far = [n for n, part in enumerate(given) if isinstance(part, Tensor) and not part.is_cpu]
    if not far:
        return given
    device = given[far[0]].device
    flat = [given[n].to(device).contiguous().reshape(-1).view(torch.uint8) for n in far]
    pieces = torch.split(torch.cat(flat).cpu(), [len(piece) for piece in flat])
    for n, piece in zip(far, pieces, strict=True):
        given[n] = piece.clone().view(given[n].dtype).reshape(given[n].shape)
    return given


def scale_figures(z: Tensor) -> dict[str, Any]:
    """The fields of `Health` about scale, in O(N d); the diameter is that of at most 256 rows.

    >>> scale_figures(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))["diameter"]
    5.0
    """
    x = points(z)
    return _scale(x, x[:: -(-len(x) // _ROWS)], torch.finfo(z.dtype).eps)


def with_modes(
    health: Health,
    embeddings: ArrayLike,
    labels: ArrayLike,
    fine_labels: ArrayLike | None = None,
    *,
    seed: int = 0,
) -> Health:
    """The same health with the modes each class keeps (`metrics.modes_per_class`): EPS §5.1.

    Without fine labels those of the 20 largest classes, on 800 rows in all; and none in a point
    or where neighbours say nothing about the labels: such classes have the modes of all rows, or of
    rounding.

    >>> z = np.array([[0.0], [0.1], [4.0], [4.1], [9.0], [9.1]])
    >>> labels, fine = np.array([0, 0, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 2, 2])
    >>> with_modes(measure(z, labels), z, labels, fine).modes_per_class
    {0: 2, 1: 1}
    """
    if not health.classes or (fine_labels is None and health.verdict in _WITHOUT_MODES):
        return health
    x = as_rows(embeddings).detach().cpu()
    ids, names = class_ids(labels, len(x))
    if fine_labels is None:
        largest = np.argsort(-np.bincount(ids), kind="stable")[:_MODE_CLASSES]
        rows = np.flatnonzero(np.isin(ids, largest))
        rows = rows[balanced_rows(ids[rows], _MODE_ROWS, np.random.default_rng(seed))]
        x, ids = x[rows], ids[rows]
    counted = metrics.modes_per_class(x, names[ids], fine_labels, seed=seed)
    counts = zip(counted.classes.tolist(), counted.modes.tolist(), strict=True)
    modes = {label: int(count) for label, count in counts if not math.isnan(count)}
    classes = (replace(entry, modes=modes.get(entry.label)) for entry in health.classes)
    return replace(health, classes=tuple(classes))


def balanced_rows(ids: Array, most: int, rng: np.random.Generator) -> Array:
    """At most `most` rows, ascending, with classes as even as their sizes allow.

    Where there are too many classes for two rows each, whole classes are left out at random.

    >>> ids = np.array([0] * 90 + [1] * 5 + [2] * 5)
    >>> rows = balanced_rows(ids, 12, np.random.default_rng(0))
    >>> np.bincount(ids[rows]).tolist()
    [4, 4, 4]
    """
    if len(ids) <= most:
        return np.arange(len(ids))
    shuffled = rng.permutation(len(ids))
    counts = np.bincount(ids)
    # Classes in random order: the last ones are those left out.
    turn = rng.permutation(len(counts))[ids[shuffled]]
    by_class = np.argsort(turn, kind="stable")
    starts = np.r_[0, np.cumsum(np.bincount(turn))[:-1]]
    rank = np.empty(len(ids), np.int64)
    rank[by_class] = np.arange(len(ids)) - starts[turn[by_class]]
    # Pairs first (rank // 2), so that a class that is in at all has two members if it can.
    return np.sort(shuffled[np.lexsort((rank, turn, rank // 2))[:most]])


def spread(x: Tensor) -> float:
    """Root mean square distance of two rows, in O(N d): sqrt(2N/(N - 1)) times the deviation.

    >>> spread(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    5.0
    """
    if len(x) < 2:
        return 0.0
    first = x[:1].detach().to(working_dtype(x))
    # About the first row: equal rows give exact zeros, which a rounded mean does not.
    mean, largest = torch.zeros_like(first), 0.0
    for chunk in _wide_chunks(x):
        mean += chunk.sub_(first).sum(0)
        largest = max(largest, float(torch.linalg.vector_norm(chunk, math.inf)))
    if largest == 0.0:
        return 0.0
    centre = first + mean / len(x)
    squares = (chunk.sub_(centre).div_(largest).square_().sum() for chunk in _wide_chunks(x))
    return largest * math.sqrt(2 * float(sum(squares)) / (len(x) - 1))


def row_norms(x: Tensor) -> Tensor:
    """Lengths of the rows, in the working dtype; also of rows whose squares it does not hold.

    >>> row_norms(torch.tensor([[3e300, 4e300]], dtype=torch.float64)).tolist()
    [5e+300]
    """
    norms = torch.cat([torch.linalg.vector_norm(chunk, dim=1) for chunk in _wide_chunks(x)])
    largest = float(norms.max())
    if _SAFE[0] < largest < _SAFE[1] or not bool(torch.isfinite(x).all()):
        return norms
    scale = binary_scale(float(x.abs().max()))
    chunks = _wide_chunks(x)
    return scale * torch.cat([torch.linalg.vector_norm(chunk / scale, dim=1) for chunk in chunks])


def _wide_chunks(x: Tensor) -> Iterator[Tensor]:
    """The rows in float64, 8 MB at a time, each time in the same memory."""
    step = max(1, _VALUES // x.shape[1])
    buffer = x.new_empty(min(step, len(x)), x.shape[1], dtype=working_dtype(x))
    for part in torch.split(x.detach(), step):
        yield buffer[: len(part)].copy_(part)


def _scale(x: Tensor, few: Tensor, epsilon: float) -> dict[str, Any]:
    norms = row_norms(x)
    low, high = diameter_bracket(few, _WORK)
    sums = torch.stack([chunk.sum(0) for chunk in _wide_chunks(x)])
    return {
        "n": len(x),
        "diameter": low,
        "diameter_most": high if high > low else None,
        "spread": spread(x),
        "centre_norm": float(row_norms(sums.sum(0, keepdim=True) / len(x))),
        "norms": Norms(*torch.stack([norms.min(), norms.mean(), norms.max()]).tolist()),
        "resolution": epsilon * float(norms.max()),
    }


def thickness_bracket(x: Tensor, axes: Spectrum) -> Thickness:
    """Bracket of the smallest width, cheap in any dimension: HNM (9a).

    Exact up to three dimensions and 2048 rows, and when the set is flat. Otherwise from the
    principal axes: below 2·sqrt(λ_min) of the covariance, above the width along the flattest axis.

    `axes` is the spectrum of some or all of the rows: a subset is no wider than the set.
    """
    width = x.shape[1]
    if len(x) <= width:
        return Thickness(0.0, 0.0, True, np.eye(1, width)[0])
    if width <= _EXACT_DIM and len(x) <= _EXACT_ROWS:
        return thickness(x)
    if axes.axes is None:
        return Thickness(0.0, math.inf, False, np.eye(1, width)[0])
    lower = 2 * float(axes.values[-1]) / math.sqrt(axes.rows) * (1 - 1e-6)
    direction = axes.axes[:, -1]
    towards, first = torch.from_numpy(np.ascontiguousarray(direction)), x[0].double()
    along = torch.cat([chunk.sub_(first) @ towards for chunk in _wide_chunks(x)])
    upper = float(along.max() - along.min())
    return Thickness(min(lower, upper), upper, False, direction)


def _inner_figures(
    part: _Sample, n: int, fine_labels: ArrayLike | None, before: ArrayLike | None
) -> dict[str, Any]:
    """`fine_agreement`, `fine_chance`, `fine_rows` and `modes_kept` of sampled rows."""
    fields: dict[str, Any] = {}
    if fine_labels is not None:
        fine, _ = class_ids(fine_labels, n, "fine_labels")
        known = fine_neighbours(part.rows, part.ids, fine[part.chosen]) or (None, None, None)
        fields = dict(zip(("fine_agreement", "fine_chance", "fine_rows"), known, strict=True))
    if before is not None:
        start = as_rows(before, "before").detach().cpu()
        if len(start) != n:
            raise InputError("before", f"{len(start)} rows", f"{n}: those of `embeddings`")
        if bool(torch.isfinite(start).all()):
            fields["modes_kept"] = modes_kept(start[part.chosen], part.rows, part.ids)
    return fields


def fine_neighbours(
    embeddings: ArrayLike, labels: ArrayLike, fine_labels: ArrayLike
) -> tuple[float, float, int] | None:
    """How often a row's nearest neighbour inside its class shares its fine label; chance; rows.

    Rows count whose class has several fine labels, and whose fine label has another row; None if
    there are none. A tie counts as another fine label. A fine label names a fine class inside its
    class only. What is kept of a start is (agreement - chance) / (1 - chance), over the same then.

    >>> z = [[0.0], [0.1], [5.0], [5.1]]
    >>> fine_neighbours(z, [0, 0, 0, 0], ["a", "a", "b", "b"])
    (1.0, 0.3333333333333333, 4)
    """
    x = points(embeddings, "embeddings").detach().cpu()
    layout = ClassLayout.of(labels, len(x))
    fine, _ = class_ids(fine_labels, len(x), "fine_labels")
    hits, chances = [np.zeros(0, bool)], [np.zeros(0)]
    for c in range(len(layout.classes)):
        rows = layout.members(c)
        same = fine[rows][:, None] == fine[rows]
        counted = same.sum(axis=1) > 1
        if same.all() or not counted.any():
            continue
        distance = pairwise_distances(x[torch.from_numpy(rows)].double()).numpy()
        np.fill_diagonal(distance, np.inf)
        own, other = (np.where(mask, distance, np.inf).min(axis=1) for mask in (same, ~same))
        hits.append((own < (1 - _TIE) * other)[counted])
        chances.append((same.sum(axis=1)[counted] - 1) / (len(rows) - 1))
    hit, chance = np.concatenate(hits), np.concatenate(chances)
    return (float(hit.mean()), float(chance.mean()), len(hit)) if len(hit) else None


def modes_kept(
    before: ArrayLike, embeddings: ArrayLike, labels: ArrayLike, *, k: int = _NEIGHBOURS
) -> float | None:
    """How much of the neighbourhoods of the start is left inside classes: 1 all, 0 none.

    `before` are the embeddings of the same rows at the start. How often one of the `k` rows of its
    class that were nearest to a row **at the start** is nearer to it now than another row of the
    class (a tie is half), above the half that chance gives, over the same at the start. Where modes
    merge, old neighbours scatter over the class. Scale, rotation and neighbours that swap do not
    matter. None without a class of 3 (k + 1) rows that are not all equal at the start.

    **It cannot tell** merged modes from others that took their place: a network that saw little of
    the samples at the start loses those neighbourhoods by learning better ones.

    >>> rng = np.random.default_rng(0)
    >>> start = 9 * rng.normal(size=(4, 8))[np.arange(80) % 4] + rng.normal(size=(80, 8))
    >>> merged = rng.normal(size=(80, 8))
    >>> [modes_kept(start, now, [0] * 80) > 0.25 for now in (0.1 * start, merged)]
    [True, False]
    """
    then, now = (points(rows).detach().cpu() for rows in (before, embeddings))
    if len(then) != len(now):
        raise InputError("before", f"{len(then)} rows", f"{len(now)}: those of `embeddings`")
    layout = ClassLayout.of(labels, len(now))
    nearer: list[list[float]] = [[], []]  # at the start, now
    for c in np.flatnonzero(layout.counts >= _ROOM * (k + 1)):
        rows = torch.from_numpy(layout.members(int(c)))
        distances = [pairwise_distances(z[rows].double()).numpy() for z in (then, now)]
        if distances[0].max() > 0:
            others = np.where(np.eye(len(rows), dtype=bool), np.inf, distances[0])
            near = np.argsort(others, axis=1, kind="stable")[:, :k]
            for shares, distance in zip(nearer, distances, strict=True):
                shares += _share_farther(distance, near).tolist()
    if not nearer[0]:
        return None
    start, left = (2 * float(np.mean(shares)) - 1 for shares in nearer)
    return max(left, 0.0) / start


def _share_farther(distance: Array, near: Array) -> Array:
    """Of each row, the share of rows farther than its `near` ones, their mean; ties half."""
    shares: Array = np.zeros(len(near))
    for column in near.T:
        own = np.take_along_axis(distance, column[:, None], 1)
        farther = (distance > own).sum(axis=1)
        ties = (distance == own).sum(axis=1) - 1 - (own[:, 0] == 0)  # less itself and the row
        shares += (farther + ties / 2) / (len(distance) - 2)
    return np.asarray(shares / near.shape[1])


def nearest_labels(distance: Array, ids: Array) -> NearestLabels | None:
    """Share of rows whose nearest neighbour has their label; None where nothing can be shared.

    `distance` is square, `ids` are class numbers. Neighbours that tie share the vote. Rows that are
    alone in their class do not count, but may be neighbours.

    `deviation` is exact for shuffled labels, dependent votes included: rows nearest to each other,
    hubs, duplicates (the join-count statistic of Cliff & Ord 1981, for several classes).

    >>> x = np.array([0.0, 1.0, 5.0, 6.5])
    >>> nearest_labels(np.abs(x[:, None] - x), np.array([0, 0, 1, 1])).share
    1.0
    """
    n, counts = len(ids), np.bincount(ids).astype(np.float64)
    rows = int(counts[counts > 1].sum())
    if rows == 0 or counts.max() == n:
        return None
    others = ~np.eye(n, dtype=bool)
    least = distance.min(axis=1, keepdims=True, where=others, initial=np.inf)
    voter, chosen = np.nonzero(others & (distance <= least * (1 + _VOTES_TIE)))
    vote = 1 / np.bincount(voter, minlength=n)[voter]  # each row divides one vote
    # What a pair joins: the votes of one row for the other, and back where that is mutual.
    key, back = voter * n + chosen, chosen * n + voter
    place = np.minimum(np.searchsorted(key, back), len(key) - 1)
    returned = np.where(key[place] == back, vote[place], 0.0)
    share = float(vote[ids[voter] == ids[chosen]].sum())
    same = [float(_ordered_choices(counts, k).sum()) / _falling(n, k) for k in (2, 3, 4)]
    pairs, triples = same[0], same[1]
    # Two pairs without a row in common: both of one class, or of two.
    two = _ordered_choices(counts, 2)
    apart = same[2] + float(two.sum() ** 2 - (two**2).sum()) / _falling(n, 4)
    alike = float((vote**2 + vote * returned).sum())
    meeting = float(((1 + np.bincount(chosen, vote, n)) ** 2).sum()) - 2 * alike
    second = alike * pairs + meeting * triples + (n**2 - alike - meeting) * apart
    variance = max(0.0, second - (n * pairs) ** 2)
    return NearestLabels(share / rows, n * pairs / rows, math.sqrt(variance) / rows, rows)


def _ordered_choices(counts: Array, k: int) -> Array:
    """Ways to take k different members of each class, in order."""
    return np.asarray(np.prod([np.maximum(counts - i, 0.0) for i in range(k)], axis=0))


def _falling(n: int, k: int) -> float:
    return float(max(math.prod(range(n - k + 1, n + 1)), 1))


@dataclass(frozen=True)
class _Sample:
    """The rows that stand for all in what costs N², with their distances."""

    chosen: Array
    rows: Tensor
    ids: Array
    distance: Array
    same: Array

    @classmethod
    def of(cls, x: Tensor, layout: ClassLayout, most: int, seed: int) -> _Sample:
        chosen = balanced_rows(layout.ids, most, np.random.default_rng(check_int("seed", seed, 0)))
        rows, ids = x[torch.from_numpy(chosen)], layout.ids[chosen]
        distance = pairwise_distances(rows.double()).numpy()
        return cls(chosen, rows, ids, distance, ids[:, None] == ids)

    @property
    def between(self) -> Array:
        return self.distance[np.triu(~self.same, 1)]


def _class_figures(
    x: Tensor, layout: ClassLayout, part: _Sample, whole: float, margin: float
) -> dict[str, Any]:
    several = len(np.unique(part.ids)) > 1
    apart = float(np.median(part.between)) if several else 0.0
    # Of each row the distance to its nearest of the class, and to its nearest other.
    mates = part.same & ~np.eye(len(part.ids), dtype=bool)
    own = part.distance.min(axis=1, where=mates, initial=np.inf)
    other = part.distance.min(axis=1, where=~part.same, initial=np.inf)
    usable = np.isfinite(own) & np.isfinite(other)
    fields: dict[str, Any] = {
        "classes": _classes(x, layout, part, whole, apart),
        "within_share": _within_share(part),
        "within": _histogram(part.distance[np.triu(part.same, 1)], whole),
        "nearest": nearest_labels(part.distance, part.ids),
    }
    if usable.any():
        same = (part.same.sum(axis=1)[usable] - 1) / (len(part.ids) - 1)
        fields |= {"agreement": float((own < other)[usable].mean()), "chance": float(same.mean())}
    if several:
        # HNM (5): the anchor may be its own positive, at distance 0.
        farthest = part.distance.max(axis=1, where=mates, initial=0.0)
        separation = float((other - farthest).min())
        fields |= {"separation": separation, "hard_mined_loss": max(0.0, margin - separation)}
        nc1, cdnv = (figure(part.rows, part.ids) for figure in (metrics.nc1, metrics.cdnv))
        fields |= {"nc1": nc1, "cdnv": cdnv}
    return fields


def _classes(
    x: Tensor, layout: ClassLayout, part: _Sample, whole: float, apart: float
) -> tuple[ClassHealth, ...]:
    tightness = np.full(len(layout.classes), np.nan)
    sizes = np.zeros(len(layout.classes))
    order = np.argsort(part.ids, kind="stable")
    numbers, starts = np.unique(part.ids[order], return_index=True)
    for number, members in zip(numbers, np.split(order, starts[1:]), strict=True):
        if len(members) > 1:
            inside = part.distance[np.ix_(members, members)]
            pairs = np.sort(inside[np.tri(len(members), k=-1, dtype=bool)])
            far = float(np.interp(0.75 * (len(pairs) - 1), np.arange(len(pairs)), pairs))
            tightness[number] = far / apart if apart > 0 else (0.0 if far == 0 else np.inf)
            sizes[number] = pairs[-1]
    if len(layout.classes) == 1:
        sizes[0] = whole
    elif len(part.ids) < len(x):  # some rows have no distances yet
        each = (torch.from_numpy(layout.members(c)) for c in range(len(layout.classes)))
        sizes[:] = [diameter_bracket(x[rows], _WORK * len(rows) / len(x))[0] for rows in each]
    ratios = sizes / whole if whole > 0 else np.zeros_like(sizes)
    columns = (layout.classes, layout.counts, sizes, ratios, tightness)
    rows_of_classes = zip(*(column.tolist() for column in columns), strict=True)
    return tuple(ClassHealth(*row) for row in rows_of_classes)


def _within_share(part: _Sample) -> float:
    """Share of the variance that lies inside the classes, from squared distances alone."""
    squares = part.distance / (part.distance.max() or 1.0)
    squares *= squares
    inside = squares.sum(axis=1, where=part.same) / part.same.sum(axis=1)
    total = float(squares.sum()) / len(part.ids)
    return float(inside.sum()) / total if total > 0 else 0.0


def _histogram(distances: Array, largest: float) -> Histogram:
    counts, edges = np.histogram(distances, _BINS, (0.0, (largest or 1.0) * (1 + 1e-9)))
    return Histogram(tuple(edges.tolist()), tuple(counts.tolist()))


def _unknown(n: int, dim: int) -> Health:
    """The health of rows that are not numbers."""
    nan = math.nan
    nothing = Thickness(nan, nan, False, np.zeros(dim))
    norms = Norms(nan, nan, nan)
    empty = Histogram((0.0, 1.0), (0,))
    return Health(n, dim, nan, nan, nan, norms, nan, nan, 0, 0, nothing, empty, 0)
