"""Two embeddings of the same rows, such as before and after an upgrade: what has changed?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, class_ids, points
from uncollapse._base.check import InputError, check_int, check_number, percent
from uncollapse.distances import unit_rows
from uncollapse.metrics.intervals import Interval, confidence
from uncollapse.metrics.nearest_rows import nearest_of
from uncollapse.metrics.ranking import QUERIES, check_directions, sample_queries
from uncollapse.metrics.retrieval_scores import RetrievalResult, retrieval
from uncollapse.metrics.verification_scores import listed_distances

_PAIRS = 200_000  # drawn to place a threshold
_FAR = 1e-3  # the false accept rate of the old threshold, where that is not given
_NAMES = "R@1 R@1_old R@1_drop R@1_drop_low R@1_drop_high kept_neighbours procrustes cka"
_NAMES += " threshold threshold_old far far_old tar tar_old different_pairs"


class PairedRecall(NamedTuple):
    """R@1 of the same queries before and after; `changes` has 1 for each gained, -1 for a lost one.

    Queries without a match are NaN; `difference` is the mean of the others.
    """

    old: RetrievalResult
    new: RetrievalResult
    changes: Array
    difference: Interval

    def __str__(self) -> str:
        old, new = (percent(side.recall[1]) for side in (self.old, self.new))
        return f"{old} → {new}, difference {self.difference.text}"


@dataclass(frozen=True)
class EmbeddingComparison:
    """What changed, of all `n` rows or the sampled rows `queries`, each of which searched all rows.

    `near` are the `k` nearest rows of each query, old and new; `kept` the share that both have.
    `figures` has, where the rows and labels allow it and None elsewhere:

    - `R@1`, the new one, `R@1_old`, and `R@1_drop` with its paired interval (`_low`, `_high`);
    - `kept_neighbours`, the mean;
    - `procrustes`: the share of the variance that centring, scaling and rotating one of the two
      does not map to the other (0: the same shape); `cka`: their linear CKA (1: the same);
    - `threshold`, the one that accepts as many pairs of different labels as `threshold_old`; `far`
      and `tar` are the shares of `different_pairs` that were drawn, and of pairs of one label, that
      it accepts.
    """

    n: int
    k: int
    queries: Array
    near: tuple[Array, Array]
    kept: Array
    figures: Mapping[str, float | None]
    recall: PairedRecall | None

    def most_changed(self) -> Array:
        """Positions in `queries`: first what lost R@1, then by the share of kept neighbours."""
        change = 0 * self.kept if self.recall is None else np.nan_to_num(self.recall.changes)
        return np.lexsort((self.kept, change))


def compare_embeddings(
    old: ArrayLike,
    new: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    k: int = 10,
    normalize: bool = False,
    threshold: float | None = None,
    max_queries: int = QUERIES,
) -> EmbeddingComparison:
    """Compare two embeddings of the same rows in the same order; their dimensions may differ.

    At most `max_queries` rows, sampled from more, are compared; they search all rows. `normalize`
    compares directions. `threshold` is the old limit for pairs to be taken for the same: a
    distance, with `normalize` a cosine; by default the one with a false accept rate of 0.1 %.

    >>> rows = np.random.default_rng(0).normal(size=(50, 4))
    >>> figures = compare_embeddings(rows, rows[:, ::-1] * 3).figures
    >>> figures["kept_neighbours"], round(figures["cka"], 9), round(figures["procrustes"], 9)
    (1.0, 1.0, 0.0)
    """
    x, y = points(old, "old", min_rows=3), points(new, "new", min_rows=3)
    if len(x) != len(y):
        raise InputError("new", f"{len(y)} rows", f"{len(x)}, those of old")
    if normalize:
        check_directions(x, y, names=("old", "new"))
    queries = sample_queries(len(x), check_int("max_queries", max_queries, 3))
    k, recall = min(check_int("k", k), len(x) - 1), None
    figures: dict[str, float | None] = dict.fromkeys(_NAMES.split())
    a, b = (unit_rows(x), unit_rows(y)) if normalize else (x, y)
    if labels is not None:
        ids = class_ids(labels, len(x))[0]
        figures |= _moved_threshold(a, b, ids, threshold, cosine=normalize)
        recall = paired_recall(x, y, labels, queries, normalize=normalize)
    near = nearest_of(a, queries, k), nearest_of(b, queries, k)
    kept = shares_in_common(*near)
    figures |= {"kept_neighbours": float(kept.mean())} | _shape_figures(a[queries], b[queries])
    if recall is not None:
        gain = recall.difference
        figures |= {"R@1": recall.new.recall[1], "R@1_old": recall.old.recall[1]}
        figures |= {"R@1_drop": 0.0 - gain.value}
        figures |= {"R@1_drop_low": 0.0 - gain.high, "R@1_drop_high": 0.0 - gain.low}
    return EmbeddingComparison(len(x), k, queries, near, kept, figures, recall)


def paired_recall(
    old: ArrayLike, new: ArrayLike, labels: ArrayLike, queries: Array, *, normalize: bool
) -> PairedRecall | None:
    """R@1 of both; None where no query has another row of its label."""
    before, after = (
        retrieval(z, labels, ks=(1,), rows=queries, normalize=normalize) for z in (old, new)
    )
    changes = after.per_query["recall@1"] - before.per_query["recall@1"]
    if np.isnan(changes).all():
        return None
    return PairedRecall(before, after, changes, confidence(changes))


def shares_in_common(before: Array, after: Array) -> Array:
    """For each row of two tables of row numbers, the share of the first that the second has.

    >>> shares_in_common(np.array([[1, 2]]), np.array([[3, 1]])).tolist()
    [0.5]
    """
    return np.asarray((before[:, :, None] == after[:, None, :]).any(axis=2).mean(axis=1))


def _shape_figures(x: Tensor, y: Tensor) -> dict[str, float | None]:
    """Procrustes' residual and linear CKA, unless all rows of one are equal."""
    sides = []
    for z in (x.double(), y.double()):
        rows = z - z.mean(dim=0)
        if float(rows.abs().max()) == 0.0:
            return {}
        if rows.shape[1] > len(rows):  # rotated into as many dimensions as there are rows
            rows = torch.linalg.qr(rows.T).R.T
        sides.append(rows / torch.linalg.matrix_norm(rows))
    a, b = sides
    cross = a.T @ b
    size = torch.linalg.matrix_norm(a.T @ a) * torch.linalg.matrix_norm(b.T @ b)
    fitted = float(torch.linalg.svdvals(cross).sum()) ** 2
    return {"procrustes": max(0.0, 1 - fitted), "cka": float(cross.square().sum() / size)}


def _moved_threshold(
    x: Tensor, y: Tensor, ids: Array, threshold: float | None, *, cosine: bool
) -> dict[str, float | None]:
    """Both thresholds and what they accept of pairs of one label and of two; {} without such."""
    if threshold is not None:
        check_number("threshold", threshold, *((-1, 1) if cosine else (0,)))
    n, rng = len(ids), np.random.default_rng(0)
    mixed = rng.permutation(n)
    order = mixed[np.argsort(ids[mixed], kind="stable")]  # in a class, neighbours by chance
    beside, i = rng.permutation(n - 1)[:_PAIRS], rng.integers(n, size=_PAIRS)
    pairs = np.r_[order[beside], i], np.r_[order[beside + 1], (i + rng.integers(1, n, _PAIRS)) % n]
    same = ids[pairs[0]] == ids[pairs[1]]
    if same.all() or not same.any():
        return {}
    old, new = (listed_distances(z, *pairs) for z in (x, y))
    far = np.sort(old[~same])
    limits = [far[max(int(_FAR * len(far)) - 1, 0)]]
    if threshold is not None:
        limits = [np.sqrt(2 - 2 * threshold) if cosine else threshold]
    accepted = int(np.searchsorted(far, limits[0], "right"))
    limits += [np.sort(new[~same])[accepted - 1]] if accepted else []
    moved: dict[str, float | None] = {"different_pairs": float(len(far))}
    for name, limit, distances in zip(("_old", ""), limits, (old, new), strict=False):
        moved[f"threshold{name}"] = float(1 - limit**2 / 2 if cosine else limit)
        moved[f"far{name}"] = float((distances[~same] <= limit).mean())
        moved[f"tar{name}"] = float((distances[same] <= limit).mean())
    return moved
