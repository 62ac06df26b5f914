"""EPS Fig. 3a: Recall@1 of Omniglot's letters while training by alphabet."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse.data.registry import list_split
from uncollapse.papers._beside import Beside, Claim, publish
from uncollapse.papers._item import Item, Request
from uncollapse.papers.eps._curves import draw_line, finish
from uncollapse.papers.eps._maps import figure_grid
from uncollapse.papers.eps._study import Trained
from uncollapse.papers.eps.methods import BASELINE, only
from uncollapse.papers.eps.protocols import OMNIGLOT, TIMES
from uncollapse.training import Run

__all__ = ["EPS_FIG3A"]

_METHODS = only("EPS + Dist-Margin", "EPS + Trip. + SH", "Trip. + SH", "Dist-Margin")
_KEY = "test/fine/recall@1"


def _make(request: Request) -> list[Path]:
    trained = OMNIGLOT.train(request, _METHODS)
    epoch = _epoch(trained)
    curves = {m: np.array([_curve(run) for run in runs]) for m, runs in trained.runs.items()}
    steps = [step for step, _ in _points(next(iter(trained.runs.values()))[0])]
    figure, axes = figure_grid(1, 1, (7.2, 4.8))
    for place, (method, curve) in enumerate(curves.items()):
        draw_line(axes[0][0], [step / epoch for step in steps], curve, method, place)
    title = "EPS Fig. 3a: R@1 by letter on unseen alphabets while training"
    finish(axes[0][0], title, trained.setup.words, "epoch", "R@1 (%), by letter")
    table = Beside(
        title,
        claims=_claims(curves),
        about=trained.about(request, "eps-fig3a"),
        notes=trained.notes,
        picture="eps-fig3a.png",
    )
    return publish(request, "eps-fig3a", table, figure=figure)


def _claims(curves: dict[str, Array]) -> list[Claim]:
    """What the paper's curves show: with EPS R@1 stays above the same loss without it."""
    found = []
    for method, baseline in BASELINE.items():
        if method not in curves:
            continue
        mine, theirs = curves[method].mean(0)[1:], curves[baseline].mean(0)[1:]
        above = int((mine > theirs).sum())
        ours = f"above at {above} of {len(mine)} looks; at the end {mine[-1]:.1f} to "
        ours += f"{theirs[-1]:.1f}; at its best {mine.max():.1f} to {theirs.max():.1f}"
        what = f"{method} over {baseline}, all through training"
        found.append(Claim(what, "above from the first epochs on", ours, above == len(mine)))
    return found


def _points(run: Run) -> list[tuple[int, float]]:
    return [(line["step"], 100.0 * line[_KEY]) for line in run.metrics() if _KEY in line]


def _curve(run: Run) -> list[float]:
    return [value for _, value in _points(run)]


def _epoch(trained: Trained) -> float:
    """Steps that see as many samples as the training split has."""
    config = next(iter(trained.runs.values()))[0].config
    count = len(list_split(config.data.name, config.data.root, config.data.train_split).labels)
    return count / (config.batch.p * config.batch.k)


EPS_FIG3A = Item(
    name="eps-fig3a",
    summary="EPS Fig. 3a: R@1 of Omniglot's letters by epoch, with and without EPS",
    needs="Omniglot (smoke: nothing); the extra 'plots'",
    time=TIMES | {"laptop": "seconds after table3"},
    make=_make,
    scales=("laptop", "smoke", "paper"),
)
