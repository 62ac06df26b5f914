"""Rows that spoil the figures of all others: not finite, zero, copies of others, far out, hubs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, as_rows
from uncollapse._base.check import InputError, check_bool, percent
from uncollapse._base.progress import ProgressOption
from uncollapse.metrics.nearest_rows import nearest
from uncollapse.metrics.ranking import equal_rows, sample_queries

FEW_INVALID = 0.05  # rows that are NaN or infinite are left out without asking up to this share
DROPPED = ("invalid", "zero", "duplicates", "far", "hubs")  # what a user may leave out
_VALUES = 1 << 20  # looked at together
_NEAR = 10  # neighbours among which a hub is counted
_HUB_SHARE, _HUB_TIMES = 0.05, 20  # a hub is near this share of rows, and so often the average
_SAME = 0.01  # of the median distance to the nearest row: nearer ones are nearly copies
_QUERIES = 2_000  # rows whose neighbours are looked at
_NAMED = 5  # rows of a kind that a sentence names
# A row is far out at so many times the median distance to the middle, if it is alone there and such
# rows are few. What is nearer, 2 % of rows at 20 times, makes the spread at most three times as
# large and never holds 99 % of the variance.
FAR_SHARE, _FAR_TIMES = 0.02, 20
_WORDS = {
    "invalid": ("is NaN or infinite", "are NaN or infinite"),
    "zero": ("is zero", "are zero"),
    "duplicates": ("is a copy of an earlier one", "are copies of earlier ones"),
    "near_duplicates": ("is nearly a copy of another", "are nearly copies of others"),
    "far": ("is far from all others", "are far from all others"),
}


@dataclass(frozen=True, eq=False)
class SpoiledRows:
    """Row numbers of `n` rows, by what is wrong with them.

    `invalid`: NaN or infinite. `zero`: zeros only. `duplicates`: equal to an earlier row; `equal`
    are all that are the most frequent row. `far`: alone, at more than 20 times the median distance
    to the middle, at most 2 % of the rows. `hubs`: among the 10 nearest of many rows, each of the
    share `reach` of them, largest first; `near_duplicates`: rows whose nearest neighbour is at less
    than a hundredth of the median distance to a nearest neighbour. Both are found by `queries`
    sampled rows that look for their neighbours among all different ones; 0 where none were asked.
    `constant_dims` is how many dimensions are the same in all rows.
    """

    n: int
    invalid: Array
    zero: Array
    duplicates: Array
    equal: Array
    far: Array
    hubs: Array
    reach: Array
    near_duplicates: Array
    queries: int
    constant_dims: int

    def kept(self, kinds: Collection[str] = DROPPED) -> Array:
        """The rows that are of none of these kinds, ascending."""
        keep = np.ones(self.n, np.bool_)
        for kind in kinds:
            if kind not in DROPPED:
                allowed = f"one or several of {', '.join(DROPPED)}"
                raise InputError("drop", repr(kind), allowed)
            keep[getattr(self, kind)] = False
        return np.flatnonzero(keep)

    def figures(self) -> dict[str, float]:
        """How many there are, by name; what was not looked for is left out."""
        counts: dict[str, float] = {
            "invalid_rows": len(self.invalid),
            "zero_rows": len(self.zero),
            "duplicate_rows": len(self.duplicates),
            "most_equal": len(self.equal),
            "far_rows": len(self.far),
            "constant_dims": self.constant_dims,
        }
        if self.queries:
            counts |= {"hubs": len(self.hubs), "near_duplicates": len(self.near_duplicates)}
        return counts

    def sentences(self, names: Sequence[object] | Array | None = None) -> dict[str, str]:
        """One for each kind there is, with the names of the first rows.

        >>> spoiled = find_spoiled([[0.0, 0.0], [1.0, 2.0], [1.0, 2.0]])
        >>> list(spoiled.sentences(["a", "b", "c"]).values())
        ['1 of 3 rows is zero (a)', '1 of 3 rows is a copy of an earlier one (c)']
        """
        lines = {}
        for kind, words in _WORDS.items():
            rows = getattr(self, kind)
            looked = self.queries if kind == "near_duplicates" else self.n
            sampled = " that were looked at" * (looked < self.n)
            if len(rows):
                line = f"{len(rows):,} of {looked:,} rows{sampled} {words[len(rows) > 1]}"
                lines[kind] = f"{line} ({_listed(rows, names)})"
        if len(self.hubs):
            noun = "row is a hub" if len(self.hubs) == 1 else "rows are hubs"
            most = f"the worst is among the {_NEAR} nearest of {percent(self.reach[0], 2)} of rows"
            lines["hubs"] = f"{len(self.hubs):,} {noun} ({_listed(self.hubs, names)}): {most}"
        if self.constant_dims and len(self.equal) < self.n:
            lines["dims"] = f"{self.constant_dims:,} dimensions are the same in all rows"
        return lines


def find_spoiled(
    embeddings: ArrayLike,
    *,
    duplicates: bool = True,
    neighbours: bool = True,
    progress: ProgressOption = False,
) -> SpoiledRows:
    """Look for rows that spoil figures; `neighbours=False` leaves out hubs and near duplicates.

    Without either, and with `duplicates=False`, only invalid rows and zeros are looked for.

    >>> rows = [[0.0, 0.0], [1.0, 2.0], [float("nan"), 1.0], [1.0, 2.0], [4.0, 5.0]]
    >>> spoiled = find_spoiled(rows)
    >>> [spoiled.invalid.tolist(), spoiled.zero.tolist(), spoiled.duplicates.tolist()]
    [[2], [0], [3]]
    >>> spoiled.kept().tolist(), len(spoiled.equal)
    ([1, 4], 2)
    """
    z = as_rows(embeddings, "embeddings").detach().cpu()
    z = z.float() if z.dtype is torch.bfloat16 else z  # NumPy has no such type
    finite, zero = np.empty(len(z), np.bool_), np.empty(len(z), np.bool_)
    same = np.ones(z.shape[1], np.bool_)
    step = max(1, _VALUES // z.shape[1])
    for low in range(0, len(z), step):
        part = z[low : low + step]
        finite[low : low + step] = torch.isfinite(part).all(dim=1).numpy()
        zero[low : low + step] = ~part.any(dim=1).numpy()
        same &= ((part == z[:1]) | ~torch.isfinite(part)).all(dim=0).numpy()
    grouped = check_bool("duplicates", duplicates) or neighbours
    number = equal_rows(z)[0] if grouped else np.arange(len(z))
    _, first, group = np.unique(number, return_index=True, return_inverse=True)
    plain = finite & ~zero
    copies = plain & (first[group] != np.arange(len(z)))
    equal = plain & (group == np.bincount(group[plain]).argmax()) if plain.any() else plain
    different = np.flatnonzero(finite & (first[group] == np.arange(len(z))))
    none = np.zeros(0, np.int64)
    hubs, reach, near, asked = none, np.zeros(0), none, 0
    if check_bool("neighbours", neighbours) and len(different) > 2:
        some = z if len(different) == len(z) else z[torch.from_numpy(different)]
        hubs, reach, near, asked = _by_neighbours(some, progress)
    invalid, zeros, repeated, most = map(np.flatnonzero, (~finite, zero, copies, equal))
    # Where nearly all rows are zero, zero is what the others are far from.
    usual = plain if plain.sum() > FAR_SHARE * finite.sum() else finite
    far, by_search = _far_out(z, np.flatnonzero(usual), group), (reach, different[near], asked)
    counts = invalid, zeros, repeated, most, far, different[hubs], *by_search
    return SpoiledRows(len(z), *counts, int(same.sum()))


def _far_out(z: Tensor, rows: Array, group: Array) -> Array:
    """Those of the rows that are far from all others but copies of themselves, one `group`."""
    few = FAR_SHARE * len(rows)
    if few < 1:
        return rows[:0]
    centre = z[rows[sample_queries(len(rows), _QUERIES)]].double().median(0)[0]
    parts = torch.split(torch.from_numpy(rows), max(1, _VALUES // z.shape[1]))
    gaps = [torch.linalg.vector_norm(z[part].double() - centre, dim=1) for part in parts]
    distance = torch.cat(gaps).numpy()
    limit = _FAR_TIMES * np.median(distance)
    far: Array = rows[distance > limit]
    different = far[np.unique(group[far], return_index=True)[1]]
    if len(far) > few or len(different) < 2:
        return far[: len(far) * (len(far) <= few)]
    others = z[different]
    apart = nearest(others, others, 1, torch.arange(len(others))).distances[:, 0].numpy()
    alone: Array = far[np.isin(group[far], group[different[apart > limit]])]
    return alone


def _by_neighbours(z: Tensor, progress: ProgressOption) -> tuple[Array, Array, Array, int]:
    """Hubs, the share of rows each is near, rows that are nearly copies; how many rows asked."""
    rows, k = sample_queries(len(z), _QUERIES), min(_NEAR, len(z) - 1)
    asked = torch.from_numpy(rows)
    hits = nearest(z[asked], z, k, asked, progress=progress)
    share = np.bincount(hits.rows.numpy().ravel(), minlength=len(z)) / len(rows)
    hubs = np.flatnonzero(share >= max(_HUB_SHARE, _HUB_TIMES * k / len(z)))
    hubs = hubs[np.argsort(-share[hubs], kind="stable")]
    closest = hits.distances[:, 0].numpy()
    return hubs, share[hubs], rows[closest <= _SAME * np.median(closest)], len(rows)


def _listed(rows: Array, names: Sequence[object] | Array | None) -> str:
    some = [f"row {row}" if names is None else str(names[row])[:60] for row in rows[:_NAMED]]
    more = f" and {len(rows) - _NAMED:,} more" * (len(rows) > _NAMED)
    return ", ".join(some) + more
