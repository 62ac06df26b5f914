"""Approximate search for millions of items with faiss, and how much of the exact one it finds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array
from uncollapse._base.check import InputError, check_number
from uncollapse._base.extras import import_extra
from uncollapse.distances import Frame
from uncollapse.metrics.ranking import (
    BEYOND,
    Comparison,
    RankBlock,
    ranked_sets,
    tie_thresholds,
)

__all__ = ["neighbour_ranks"]

_SAMPLE = 500
_BLOCK = 1024
_DEEPEST = 2048


def neighbour_ranks(
    task: Comparison, *, normalize: bool, ties: str, target: float, seed: int
) -> tuple[Iterator[RankBlock], float]:
    """Ranks of the positives found in each query's approximate list, and the list's recall.

    The list is as long as the longest that a metric needs: the largest k or class. Its distances
    are taken again in float64. A positive that is not in the list has rank `BEYOND`. More cells
    are visited, twice as many each time, until the sample's recall reaches `target`.
    """
    faiss = import_extra("faiss", extra="faiss")
    check_number("target_recall", target, 0.0, 1.0)
    if task.queries.device.type != "cpu":
        raise InputError("index", f"'faiss' with points on {task.queries.device}", "'exact'")
    depth = int(task.limit.max())
    if depth > _DEEPEST:
        given = f"'faiss' for lists of {depth} (the largest k or class)"
        raise InputError("index", given, f"'exact' for lists over {_DEEPEST}")
    sets = ranked_sets(task, normalize=normalize, resident=True)
    x, y = sets[0].frame, sets[-1].frame
    # One more for the query itself, which may be in its own list.
    length = min(depth + bool((task.query_skip >= 0).any()), len(y))
    index = _build(faiss, y, seed)
    recall = _tune(faiss, index, x, y, length, target, seed)
    return _blocks(index, task, x, y, length, normalize, ties), recall


def _build(faiss: Any, y: Frame, seed: int) -> Any:
    """Inverted lists: about 4·sqrt(n) cells, trained on at most 64 points a cell."""
    values = _narrow(y)
    cells = max(1, min(int(4 * np.sqrt(len(y))), len(y) // 39))
    index = faiss.index_factory(values.shape[1], f"IVF{cells},Flat")
    index.cp.seed = seed
    index.cp.max_points_per_centroid = 64
    index.train(values)
    index.add(values)
    return index


def _tune(
    faiss: Any, index: Any, x: Frame, y: Frame, length: int, target: float, seed: int
) -> float:
    """Raise the number of cells visited until the sample's recall is reached; return it."""
    generator = np.random.default_rng(seed)
    sample = np.sort(generator.choice(len(x), min(_SAMPLE, len(x)), replace=False))
    values = _narrow(x, torch.from_numpy(sample))
    flat = faiss.IndexFlatL2(values.shape[1])
    flat.add(_narrow(y))
    _, exact = flat.search(values, length)
    index.nprobe = min(8, index.nlist)
    while True:
        _, near = index.search(values, length)
        shared = [len(np.intersect1d(a, b)) for a, b in zip(exact, near, strict=True)]
        recall = sum(shared) / int(exact.size)
        if recall >= target or index.nprobe >= index.nlist:
            return recall
        index.nprobe = min(2 * index.nprobe, index.nlist)


def _blocks(
    index: Any, task: Comparison, x: Frame, y: Frame, length: int, normalize: bool, ties: str
) -> Iterator[RankBlock]:
    for low in range(0, len(x), _BLOCK):
        high = min(low + _BLOCK, len(x))
        _, near = index.search(_narrow(x, slice(low, high)), length)
        missing, near = near < 0, np.maximum(near, 0)
        own = (near >= task.own_low[low:high, None]) & (near < task.own_high[low:high, None])
        skip = task.gallery_skip[near] == task.query_skip[low:high, None]
        wrong, right = ~own & ~missing, own & ~skip & ~missing
        values = x.squares(slice(low, high), torch.from_numpy(near), y)
        limits = tie_thresholds(values.clone(), x.zoom, normalize=normalize, ties=ties).numpy()
        distance = values.numpy()
        start = np.concatenate([[0], np.cumsum(task.counts[low:high])])
        ranks = np.full(start[-1], BEYOND, np.int64)
        for i in range(high - low):
            positives = np.sort(limits[i][right[i]])
            before = np.searchsorted(np.sort(distance[i][wrong[i]]), positives, side="right")
            ranks[start[i] : start[i] + len(positives)] = before + np.arange(len(positives))
        yield low, high, start, ranks


def _narrow(frame: Frame, rows: Tensor | slice = slice(None)) -> Array:
    return np.ascontiguousarray(frame.block(rows).float().numpy())
