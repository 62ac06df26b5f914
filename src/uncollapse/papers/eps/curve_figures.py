"""EPS Figs. 3a, 3b and 6: Recall@1 of Omniglot's letters by epoch, positives and share trimmed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse.charts import Series, curves
from uncollapse.data.registry import list_split
from uncollapse.papers._compare import (
    Claim,
    Comparison,
    Score,
    before_table,
    change,
    publish,
)
from uncollapse.papers._item import SCALES, Item, Made, Request
from uncollapse.papers._study import Sections, Trained
from uncollapse.papers.eps._scores import METHODS, STUDIES, Column, some_methods, start_and_end
from uncollapse.training import Run

__all__ = ["CURVE_FIGURES"]

_OMNIGLOT = STUDIES["omniglot"]
_LETTERS = Column("letters R@1", "test", fine=True, k=1)
_LOGGED = "test/fine/recall@1"


@dataclass(frozen=True)
class _Cell:
    """One point of a line: where it stands, and the method trained for it."""

    x: float
    name: str
    method: Sections


@dataclass(frozen=True)
class _Lines:
    """A figure: its lines by scale, what the paper says of each, and how that is judged.

    Without `cells` the lines are methods, followed through training.
    """

    name: str
    title: str
    xlabel: str
    judge: Callable[[str, Sequence[float], Mapping[str, Array]], Claim]
    cells: Mapping[str, Mapping[str, Sequence[_Cell]]] | None = None
    methods: Sequence[str] = ()
    judged: Sequence[str] = ()
    notes: Sequence[str] = ()


def _make(figure: _Lines, request: Request) -> Made:
    scores: list[Score] = []
    if figure.cells is None:
        trained = _OMNIGLOT.train(request, {name: METHODS[name] for name in figure.methods})
        x, lines = _through_training(trained)
        ends = [
            Score(
                method, _LETTERS.title, None, by_seed[:, -1].tolist(), before=by_seed[:, 0].tolist()
            )
            for method, by_seed in lines.items()
        ]
        more = [before_table(ends, "Before training and at the end")]
    else:
        wanted = figure.cells[request.scale]
        cells = {cell.name: cell.method for line in wanted.values() for cell in line}
        trained = _OMNIGLOT.train(request, cells)
        ends, more = start_and_end(trained, _LETTERS), []
        found = {score.method: score.ours for score in ends}
        scores = ends
        x = [cell.x for cell in next(iter(wanted.values()))]
        lines = {
            label: np.array([found[cell.name] for cell in line]).T for label, line in wanted.items()
        }
    plot = curves(
        figure.title,
        [_line(label, x, by_seed) for label, by_seed in lines.items()],
        # A line alone has no legend: its name stands below the title.
        note="; ".join([*(lines if len(lines) == 1 else ()), trained.setup.words]),
        x_label=figure.xlabel,
        y_label="R@1 (%), by letter",
        log=False,
        zero=False,
        width=540.0,
        height=340.0,
    )
    claims = [figure.judge(label, x, lines) for label in figure.judged or lines]
    return publish(
        request,
        figure.title,
        Comparison(scores, claims),
        about=trained.about(request),
        notes=[*trained.notes, *figure.notes],
        more=more,
        figure=plot,
    )


def _line(label: str, x: Sequence[float], by_seed: Array) -> Series:
    """The mean over the rows of `by_seed`, one a seed, and a band from the least to the largest."""
    mean = by_seed.mean(axis=0).tolist()
    if len(by_seed) < 2:
        return Series(label, x, mean)
    return Series(label, x, mean, by_seed.min(axis=0).tolist(), by_seed.max(axis=0).tolist())


def _through_training(trained: Trained) -> tuple[list[float], dict[str, Array]]:
    """Epochs, and R@1 as it was logged at each evaluation: one row per seed."""
    first = next(iter(trained.runs.values()))[0]
    data, batch = first.config.data, first.config.batch
    images = len(list_split(data.name, data.root, data.train_split).labels)
    epochs = [step * batch.p * batch.k / images for step, _ in _logged(first)]
    lines = {
        method: np.array([[value for _, value in _logged(run)] for run in runs])
        for method, runs in trained.runs.items()
    }
    return epochs, lines


def _logged(run: Run) -> list[tuple[int, float]]:
    return [(line["step"], 100.0 * line[_LOGGED]) for line in run.metrics() if _LOGGED in line]


def _stays_above(method: str, _: Sequence[float], lines: Mapping[str, Array]) -> Claim:
    """What the curves of Fig. 3a show: with EPS R@1 stays above the same loss without it."""
    loss = method.removeprefix("EPS + ")
    mine, theirs = lines[method].mean(0)[1:], lines[loss].mean(0)[1:]
    above = int((mine > theirs).sum())
    ours = f"above at {above} of {len(mine)} evaluations; at the end {change(theirs[-1], mine[-1])}"
    ours += f"; at its best {change(theirs.max(), mine.max())}"
    what = f"R@1 throughout training: {loss} → {method}"
    return Claim(what, "above from the first epochs on", ours, above == len(mine))


def _rises(label: str, x: Sequence[float], lines: Mapping[str, Array]) -> Claim:
    """Fig. 3b."""
    mean = lines[label].mean(axis=0)
    said = ", ".join(f"{k:g}: {value:.1f}" for k, value in zip(x, mean, strict=True))
    paper = "R@1 rises with their number"
    return Claim("more positives to choose from", paper, said, bool((np.diff(mean) > 0).all()))


def _trimming_adds(label: str, x: Sequence[float], lines: Mapping[str, Array]) -> Claim:
    """Fig. 6: nothing (less than a point of R@1) to random triplets, a little to Dist-Margin."""
    mean = lines[label].mean(axis=0)
    gain = float(mean[1:].max() - mean[0])
    said = ", ".join(f"{share:g} %: {value:.1f}" for share, value in zip(x, mean, strict=True))
    paper, holds = ("a small improvement on Omniglot", gain > 0)
    if label == _RANDOM:
        paper, holds = ("no improvement", gain < 1.0)
    return Claim(f"{label}: what trimming adds to R@1", paper, f"{said} ({gain:+.1f})", holds)


def _positives(scale: str) -> list[_Cell]:
    """P × K of one batch size: more of a class, fewer classes. Digits have two classes only."""
    batches = {
        "smoke": ((2, 4), (2, 16)),
        "laptop": ((20, 8), (10, 16), (4, 40)),
        "paper": ((20, 8), (10, 16), (8, 20), (5, 32), (4, 40)),
    }
    eps, own = "EPS + Dist-Margin", _OMNIGLOT.setups[scale][0].config["batch"]
    found = [_Cell(0, "Dist-Margin", METHODS["Dist-Margin"])]
    for p, k in batches[scale]:
        # Table 3's own runs where the batch is the same, others named by their K.
        if (p, k) == (own["p"], own["k"]):
            found.append(_Cell(k, eps, METHODS[eps]))
        else:
            method = {**METHODS[eps], "batch": {"p": p, "k": k}}
            found.append(_Cell(k, f"{eps}, {k} of a class", method))
    return found


def _trimmed(loss: str, method: Any, shares: Sequence[int]) -> list[_Cell]:
    found = [_Cell(0, loss, method)]
    for share in shares:
        section = {**method["loss"], "trim": 1.0 - share / 100}
        found.append(_Cell(share, f"{loss}, {share} % trimmed", {**method, "loss": section}))
    return found


# EPS trims randomly sampled triplets; pairs of distance sampling for the margin loss.
_RANDOM = "Triplet, random"
_TRIM_LOSSES = some_methods(_RANDOM, "Dist-Margin")
_TRIM = {"smoke": (50,), "laptop": (25, 50), "paper": (10, 20, 30, 40, 50, 60, 70)}

_FIG3A = _Lines(
    "eps-fig3a",
    "EPS Fig. 3a: R@1 by letter on unseen alphabets while training",
    "epoch",
    _stays_above,
    methods=("EPS + Dist-Margin", "EPS + Trip. + SH", "Trip. + SH", "Dist-Margin"),
    judged=("EPS + Trip. + SH", "EPS + Dist-Margin"),
)
_FIG3B = _Lines(
    "eps-fig3b",
    "EPS Fig. 3b: R@1 by letter against the number of positives in the batch",
    "images of the anchor's alphabet in the batch",
    _rises,
    cells={
        scale: {"EPS + Dist-Margin (at 0: random positives)": _positives(scale)} for scale in SCALES
    },
    notes=[
        "All batches are of one size, so more images of an alphabet mean fewer alphabets, as the "
        "paper's fixed batch of 160 implies."
    ],
)
_FIG6 = _Lines(
    "eps-fig6",
    "EPS Fig. 6: R@1 by letter with trimmed losses",
    "tuples trimmed (%)",
    _trimming_adds,
    cells={
        scale: {loss: _trimmed(loss, method, shares) for loss, method in _TRIM_LOSSES.items()}
        for scale, shares in _TRIM.items()
    },
)
CURVE_FIGURES = tuple(
    Item.of(figure.name, partial(_make, figure)) for figure in (_FIG3A, _FIG3B, _FIG6)
)
