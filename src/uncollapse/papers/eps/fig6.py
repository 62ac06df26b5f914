"""EPS Fig. 6: trimming the costliest tuples does not do what easy positives do (appendix C)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse.papers._beside import Beside, Claim, Score, publish
from uncollapse.papers._item import Item, Request
from uncollapse.papers.eps._curves import draw_line, finish
from uncollapse.papers.eps._maps import figure_grid
from uncollapse.papers.eps._scores import Column, measure
from uncollapse.papers.eps._study import Methods
from uncollapse.papers.eps.methods import METHODS, with_mining
from uncollapse.papers.eps.protocols import OMNIGLOT, TIMES

__all__ = ["EPS_FIG6"]

# EPS trims randomly sampled triplets; pairs of distance sampling for the margin loss.
_LOSSES: Methods = {
    "Triplet, random": with_mining({"name": "triplet", "margin": 0.2}, "random", "random"),
    "Dist-Margin": METHODS["Dist-Margin"],
}
_TRIMMED = {"smoke": (0, 50), "laptop": (0, 25, 50), "paper": (0, 10, 20, 30, 40, 50, 60, 70)}
_PAPER = {
    "Triplet, random": ("no improvement", False),
    "Dist-Margin": ("a small improvement on Omniglot", True),
}
_CLEAR = 1.0  # percentage points of R@1


def _make(request: Request) -> list[Path]:
    shares = _TRIMMED[request.scale]
    names = {(loss, share): _name(loss, share) for loss in _LOSSES for share in shares}
    methods = {name: _trimmed(_LOSSES[loss], share) for (loss, share), name in names.items()}
    trained = OMNIGLOT.train(request, methods)
    column = Column("letters R@1", "test", fine=True, k=1)
    found = {m: [measure(r, [column])[column.title] for r in rs] for m, rs in trained.runs.items()}
    figure, axes = figure_grid(1, 1, (7.2, 4.8))
    claims = []
    for place, loss in enumerate(_LOSSES):
        values = np.array([found[names[loss, share]] for share in shares])
        draw_line(axes[0][0], shares, values.T, loss, place)
        claims.append(_claim(loss, shares, values.mean(axis=1)))
    title = "EPS Fig. 6: R@1 by letter with trimmed losses"
    words = trained.setup.words
    finish(axes[0][0], title, words, "tuples trimmed (%)", "R@1 (%), by letter")
    table = Beside(
        title,
        [Score(method, column.title, None, scores) for method, scores in found.items()],
        claims,
        trained.about(request, "eps-fig6"),
        trained.notes,
        "eps-fig6.png",
    )
    return publish(request, "eps-fig6", table, figure=figure)


def _name(loss: str, share: int) -> str:
    return loss if share == 0 else f"{loss}, {share} % trimmed"


def _trimmed(method: Any, share: int) -> dict[str, Any]:
    trim = {} if share == 0 else {"trim": 1.0 - share / 100}
    return {**method, "loss": {**method["loss"], **trim}}


def _claim(loss: str, shares: tuple[int, ...], mean: Array) -> Claim:
    paper, gains = _PAPER[loss]
    gain = float(mean[1:].max() - mean[0])
    said = ", ".join(f"{share} %: {value:.1f}" for share, value in zip(shares, mean, strict=True))
    holds = gain > 0 if gains else gain < _CLEAR
    return Claim(f"{loss}: what trimming adds to R@1", paper, f"{said} ({gain:+.1f})", holds)


EPS_FIG6 = Item(
    name="eps-fig6",
    summary="EPS Fig. 6: trimmed losses, R@1 of Omniglot's letters by share trimmed",
    needs="Omniglot (smoke: nothing); the extra 'plots'",
    time=TIMES | {"laptop": "half an hour"},
    make=_make,
    scales=("laptop", "smoke", "paper"),
)
