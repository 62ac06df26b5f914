"""Re-ranking beside the same formulae on whole matrices, and its memory at Market-1501's size.

One thread and CPU time, on made-up people: clusters of 512 dimensions.

python benchmarks/re_ranking.py            3,368 x 19,732; the dense form at 500 x 4,000: a minute
python benchmarks/re_ranking.py --quick    500 x 4,000 only
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np
import torch

from _timing import Row, interleaved, one_thread, peak_megabytes, report
from uncollapse.metrics import rerank

MEMORY_BAR = 500.0  # MB at Market-1501's size
SPEED_BAR = 1.5  # times the dense form
SMALL, MARKET = (500, 4_000), (3_368, 19_732)
Array = np.ndarray[Any, Any]


def people(queries: int, gallery: int, dim: int = 512) -> tuple[Array, Array]:
    """About thirteen pictures a person in the gallery, as Market-1501 has, in float32."""
    rng = np.random.default_rng(0)
    middles = 0.35 * rng.standard_normal((gallery // 13, dim), np.float32)
    sides = (rng.integers(0, len(middles), n) for n in (queries, gallery))
    x, y = (middles[who] + rng.standard_normal((len(who), dim), np.float32) for who in sides)
    return x, y


def dense(x: Array, y: Array, k1: int = 20, k2: int = 6, weight: float = 0.3) -> Array:
    """Zhong et al. with every matrix whole, float32, a loop over rows: as their code has it."""
    points = np.concatenate([x, y])
    n, asked = len(points), len(x)
    norms = np.einsum("nd,nd->n", points, points)
    square = np.maximum(norms[:, None] + norms - 2 * (points @ points.T), 0)
    square /= square.max(axis=1, keepdims=True)
    order = np.argsort(square, axis=1).astype(np.int32)

    def mutual(i: int, k: int) -> Array:
        near = order[i, : k + 1]
        return near[(order[near, : k + 1] == i).any(axis=1)]

    v = np.zeros((n, n), np.float32)
    for i in range(n):
        mine = mutual(i, k1)
        members = [mine]
        for j in mine:
            theirs = mutual(j, round(k1 / 2))
            if 3 * len(np.intersect1d(theirs, mine)) > 2 * len(theirs):
                members.append(theirs)
        chosen = np.unique(np.concatenate(members))
        v[i, chosen] = np.exp(-square[i, chosen])
        v[i] /= v[i].sum()
    v = np.stack([v[order[i, :k2]].mean(axis=0) for i in range(n)])
    holders = [np.flatnonzero(v[:, c]) for c in range(n)]
    jaccard = np.empty((asked, n), np.float32)
    for q in range(asked):
        shared = np.zeros(n, np.float32)
        for c in np.flatnonzero(v[q]):
            shared[holders[c]] += np.minimum(v[q, c], v[holders[c], c])
        jaccard[q] = 1 - shared / (2 - shared)
    mixed: Array = (1 - weight) * jaccard + weight * square[:asked]
    return mixed[:, asked:]


def beside_dense() -> tuple[Row, bool]:
    x, y = people(*SMALL)
    ours, theirs = rerank(x, y, progress=False).distances().numpy(), dense(x, y)
    here, there = (np.argsort(found, axis=1, kind="stable") for found in (ours, theirs))
    same, gap = (here == there).mean(), np.abs(ours - theirs).max()
    # Where the orders differ, the values are equal to float32's rounding.
    apart = np.take_along_axis(ours, there, 1) - np.take_along_axis(ours, here, 1)
    good = bool(gap < 1e-5 and np.abs(apart).max() < 1e-5)
    print(
        f"{SMALL[0]:,} x {SMALL[1]:,}: distances differ from the dense form's (float32) by at most "
        f"{gap:.1e}; {same:.2%} of all places are the same, others {np.abs(apart).max():.1e} apart "
        f"{'pass' if good else 'MISS'}"
    )
    contenders = {
        "ours": lambda: rerank(x, y, progress=False).nearest(100),
        "dense": lambda: np.argsort(dense(x, y), axis=1)[:, :100],
    }
    times = interleaved(contenders, rounds=1, warm=0)  # both have run above
    memory = [
        peak_megabytes(_setup(*SMALL), call, _WARM)
        for call in ("rerank(x, y, progress=False).nearest(100)", "bench.dense(x, y)")
    ]
    size = f"{SMALL[0]:,}+{SMALL[1]:,}"
    return Row("first 100, k1 20", size, times["ours"], times["dense"], SPEED_BAR, float("nan"),
               *memory), good  # fmt: skip


def at_market_size() -> bool:
    """Peak memory beyond the embeddings, and CPU time."""
    x, y = people(*MARKET)
    begun = time.process_time()
    ranked = rerank(x, y, progress=False)
    encoded = time.process_time() - begun
    ranked.nearest(100)
    spent = time.process_time() - begun
    del ranked
    peak = peak_megabytes(_setup(*MARKET), "rerank(x, y, progress=False).nearest(100)", _WARM)
    matrix = 4 * sum(MARKET) ** 2 / 1e6
    good = peak <= MEMORY_BAR
    print(
        f"\n{MARKET[0]:,} queries x {MARKET[1]:,}, 512 dimensions: {spent:.1f} s of CPU time "
        f"({encoded:.1f} s to encode); peak extra memory {peak:.0f} MB (bar {MEMORY_BAR:g}) "
        f"{'pass' if good else 'MISS'}\none matrix of all rows by all rows: {matrix:,.0f} MB"
    )
    return good


_WARM = "rerank(x[:50], y[:600], progress=False).nearest(10)"


def _setup(queries: int, gallery: int) -> str:
    return (
        "import torch; torch.set_num_threads(1)\n"
        "import re_ranking as bench\n"
        "from uncollapse.metrics import rerank\n"
        f"x, y = bench.people({queries}, {gallery})\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="500 x 4,000 only")
    options = parser.parse_args()
    one_thread()
    torch.manual_seed(0)
    row, good = beside_dense()
    good &= report("k-reciprocal re-ranking", [row], peer="dense")
    if not options.quick:
        good &= at_market_size()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
