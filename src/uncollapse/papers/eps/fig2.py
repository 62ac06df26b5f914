"""EPS Fig. 2: the plane that a network trained by odd and even puts the digits in."""

from __future__ import annotations

import textwrap
from pathlib import Path

from uncollapse.papers._beside import Beside, Claim, publish, spread
from uncollapse.papers._item import Item, Request
from uncollapse.papers.eps._maps import figure_grid, look, scatter_classes
from uncollapse.papers.eps._scores import Column, measure
from uncollapse.papers.eps._study import Trained
from uncollapse.papers.eps.protocols import TIMES
from uncollapse.papers.eps.table1 import train_parity

__all__ = ["EPS_FIG2"]

_SPLITS = {"val": ("digits 0-5, seen", range(6)), "test": ("digits 6-9, unseen", range(6, 10))}
_ROWS = 2500


def _make(request: Request) -> list[Path]:
    trained = train_parity(request)
    figure, axes = figure_grid(2, 2, (9.0, 9.4))
    for column, (method, runs) in enumerate(trained.runs.items()):
        for row, (split, (words, digits)) in enumerate(_SPLITS.items()):
            seen = look(runs[0], split, _ROWS)
            labels = seen.data.by_fine_labels().labels[seen.rows].numpy()
            names = {digit: str(digit) for digit in digits}
            axis = axes[row][column]
            scatter_classes(axis, seen.embeddings.numpy(), labels, names, first=digits[0])
            score = measure(runs[0], [Column("R@1", split, fine=True, k=1)])["R@1"]
            axis.set_title(f"{method}: {words}\nR@1 by digit {score:.1f} %", fontsize=11)
    how = f"held-out images, seed {trained.seeds[0]}; {trained.setup.words}"
    figure.suptitle(
        "EPS Fig. 2: embeddings in the plane after training with no label but odd or even\n"
        + textwrap.fill(how, 92),
        fontsize=10,
    )
    table = Beside(
        "EPS Fig. 2: the digits in the plane, trained by odd and even",
        claims=[_apart(trained, split, words) for split, (words, _) in _SPLITS.items()],
        about=trained.about(request, "eps-fig2"),
        notes=trained.notes,
        picture="eps-fig2.png",
    )
    return publish(request, "eps-fig2", table, figure=figure)


def _apart(trained: Trained, split: str, words: str) -> Claim:
    """Whether clusters are digits: NMI of k-means with as many clusters as there are digits."""
    column = Column("NMI", split, fine=True)
    without, with_eps = (
        spread([measure(run, [column])["NMI"] for run in runs])[0] for runs in trained.runs.values()
    )
    return Claim(
        f"{words}: NMI of clusters and digits, without and with EPS",
        "clusters overlap; they are separate",
        f"{without:.1f}; {with_eps:.1f}",
        with_eps > without,
    )


EPS_FIG2 = Item(
    name="eps-fig2",
    summary="EPS Fig. 2: the digits in the plane, with random and with easy positives",
    needs="MNIST (smoke: nothing); the extra 'plots'",
    time=TIMES | {"laptop": "seconds after table1", "paper": "hours"},
    make=_make,
    scales=("laptop", "smoke", "paper"),
)
