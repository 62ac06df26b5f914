"""EPS Fig. 3b: Recall@1 of letters against the number of positives an anchor can choose from."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from uncollapse.papers._beside import Beside, Claim, Score, publish
from uncollapse.papers._item import Item, Request
from uncollapse.papers.eps._curves import draw_line, finish
from uncollapse.papers.eps._maps import figure_grid
from uncollapse.papers.eps._scores import Column, measure
from uncollapse.papers.eps._study import Methods
from uncollapse.papers.eps.methods import METHODS
from uncollapse.papers.eps.protocols import OMNIGLOT, TIMES

__all__ = ["EPS_FIG3B"]

_EPS, _NONE = "EPS + Dist-Margin", "Dist-Margin"
# P × K of one batch size: more of a class, fewer classes. Digits have two classes only.
_BATCHES = {
    "smoke": ((2, 4), (2, 16)),
    "laptop": ((20, 8), (10, 16), (4, 40)),
    "paper": ((20, 8), (10, 16), (8, 20), (5, 32), (4, 40)),
}


def _make(request: Request) -> list[Path]:
    methods = _methods(request.scale)
    trained = OMNIGLOT.train(request, methods)
    column = Column("letters R@1", "test", fine=True, k=1)
    found = {
        method: [measure(run, [column])[column.title] for run in runs]
        for method, runs in trained.runs.items()
    }
    counts = [0, *(k for _, k in _BATCHES[request.scale])]
    values = np.array(list(found.values()))
    figure, axes = figure_grid(1, 1, (7.2, 4.8))
    draw_line(axes[0][0], counts, values.T, "EPS + Dist-Margin (at 0: random positives)", 0)
    title = "EPS Fig. 3b: R@1 by letter against the number of positives in the batch"
    words = trained.setup.words
    finish(
        axes[0][0],
        title,
        words,
        "images of the anchor's alphabet in the batch",
        "R@1 (%), by letter",
    )
    mean = values.mean(axis=1)
    said = ", ".join(f"{k}: {value:.1f}" for k, value in zip(counts, mean, strict=True))
    rises = bool((np.diff(mean) > 0).all())
    table = Beside(
        title,
        [Score(method, column.title, None, scores) for method, scores in found.items()],
        [Claim("more positives to choose from", "R@1 rises with their number", said, rises)],
        trained.about(request, "eps-fig3b"),
        [
            *trained.notes,
            "All batches are of one size, so more images of an alphabet mean fewer alphabets, as "
            "the paper's fixed batch of 160 implies.",
        ],
        "eps-fig3b.png",
    )
    return publish(request, "eps-fig3b", table, figure=figure)


def _methods(scale: str) -> Methods:
    """Table 3's own runs where the batch is the same, others named by their K."""
    own = OMNIGLOT.setups[scale].config["batch"]
    found = {_NONE: METHODS[_NONE]}
    for p, k in _BATCHES[scale]:
        if (p, k) == (own["p"], own["k"]):
            found[_EPS] = METHODS[_EPS]
        else:
            found[f"{_EPS}, {k} of a class"] = {**METHODS[_EPS], "batch": {"p": p, "k": k}}
    return found


EPS_FIG3B = Item(
    name="eps-fig3b",
    summary="EPS Fig. 3b: R@1 of Omniglot's letters against the positives in the batch",
    needs="Omniglot (smoke: nothing); the extra 'plots'",
    time=TIMES | {"laptop": "half an hour"},
    make=_make,
    scales=("laptop", "smoke", "paper"),
)
