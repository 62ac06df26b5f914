"""Exact diameter and separation beside SciPy, torch.cdist and the bare product, in one run.

python benchmarks/geometry.py [--quick]      (--quick leaves out the sets of 100,000 and more)
"""

from __future__ import annotations

import sys

import torch
from scipy.spatial.distance import pdist
from torch.nn.functional import normalize

from _timing import Row, interleaved, one_thread, peak_megabytes, report
from uncollapse.geometry import diameter, separation

DIM = 128


def points(kind: str, n: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, DIM, generator=generator)
    decay = torch.arange(1, DIM + 1).float().reciprocal()
    if kind == "sphere":
        return normalize(x, dim=1)
    if kind == "power law":
        return x * decay
    if kind == "collapsed":
        return normalize(torch.randn(1, DIM, generator=generator) + 1e-3 * x * decay, dim=1)
    if kind == "rank 8":
        frame = torch.randn(8, DIM, generator=generator)
        return normalize(torch.randn(n, 8, generator=generator) @ frame + 0.02 * x, dim=1)
    return x


def half_product(x: torch.Tensor, block: int = 2048) -> None:
    """Every pair once, nothing but the product: what an exhaustive search cannot go below."""
    out = torch.empty(block, block)
    for i in range(0, len(x), block):
        for j in range(i, len(x), block):
            a, b = x[i : i + block], x[j : j + block]
            torch.mm(a, b.T, out=out.flatten()[: len(a) * len(b)].view(len(a), len(b)))


def main() -> None:
    quick = "--quick" in sys.argv
    one_thread()
    rows = []
    for kind in ("gaussian", "sphere", "power law", "collapsed", "rank 8"):
        x = points(kind, 10_000)
        wide = x.double().numpy()
        error = abs(diameter(x) / float(pdist(wide).max()) - 1)
        times = interleaved(
            {"ours": lambda x=x: diameter(x), "pdist": lambda w=wide: pdist(w).max()}, rounds=3
        )
        name = f"diameter, {kind} (err {error:.0e})"
        rows.append(Row(name, "10,000", times["ours"], times["pdist"], bar=5))
    ok = report("Diameter beside scipy.spatial.distance.pdist(...).max(), float64", rows, "pdist")

    labels = torch.randint(0, 100, (10_000,), generator=torch.Generator().manual_seed(1))
    x = points("gaussian", 10_000) + 3 * points("gaussian", 100, seed=2)[labels]
    wide = x.double()
    times = interleaved(
        {"ours": lambda: separation(x, labels), "cdist": lambda: torch.cdist(wide, wide)}, rounds=3
    )
    row = Row("separation, 100 classes", "10,000", times["ours"], times["cdist"], bar=5)
    ok &= report("Separation beside float64 torch.cdist (the distances alone)", [row], "cdist")
    if quick:
        sys.exit(not ok)

    rows = []
    for kind, bar in (("sphere", 1 / 1.5), ("gaussian", 1 / 1.5), ("rank 8", None)):
        x = points(kind, 100_000)
        times = interleaved(
            {"ours": lambda x=x: diameter(x), "half": lambda x=x: half_product(x)}, rounds=1, warm=0
        )
        memory = peak_megabytes(
            f"import torch\nfrom geometry import points, diameter\nx = points({kind!r}, 100_000)",
            "diameter(x)",
            warm="diameter(x[:2000])",
        )
        name = f"diameter, {kind}"
        rows.append(Row(name, "100,000", times["ours"], times["half"], bar, ours_mb=memory))
    ok &= report("Diameter beside half the product (bars: 1/1.5 and 300 MB)", rows, "half")
    ok &= all(row.ours_mb < 300 for row in rows)

    rows = []
    for kind in ("power law", "collapsed"):
        x = points(kind, 1_000_000)
        times = interleaved({"ours": lambda x=x: diameter(x)}, rounds=1, warm=0)
        rows.append(Row(f"diameter, {kind}", "1,000,000", times["ours"]))
    ok &= report("Diameter of a million points with a decaying spectrum (bar: 5,000 ms)", rows, "")
    ok &= all(row.ours < 5 for row in rows)
    sys.exit(not ok)


if __name__ == "__main__":
    main()
