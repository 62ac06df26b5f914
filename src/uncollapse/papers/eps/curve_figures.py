"""EPS Figs. 3a, 3b and 6: Recall@1 of Omniglot's letters by epoch, positives and share trimmed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse._base.table import Table
from uncollapse.charts import curves
from uncollapse.data.registry import list_split
from uncollapse.papers.comparison import (
    Finding,
    Score,
    Scorecard,
    before_table,
    change,
    line,
    publish,
)
from uncollapse.papers.eps.scores import (
    METHODS,
    STUDIES,
    TABLES,
    Column,
    method_scores,
    paired_claim,
    paired_gain,
    some_methods,
)
from uncollapse.papers.items import Made, Request
from uncollapse.papers.study import Cells, Sections, Study, Trained
from uncollapse.training import Run

_OMNIGLOT = STUDIES["omniglot"]
_LETTERS = Column("letters R@1", "test", fine=True, k=1)
_EPS, _PLAIN, _RANDOM = "EPS + Dist-Margin", "Dist-Margin", "Triplet, random"


def by_epoch(request: Request) -> Made:
    """EPS Fig. 3a: with EPS R@1 stays above the same loss without it."""
    losses = ("Trip. + SH", _PLAIN)
    wanted = some_methods(_EPS, "EPS + Trip. + SH", *losses)
    trained = _OMNIGLOT.train(request, wanted)
    logged = {name: [_logged(run) for run in runs] for name, runs in trained.runs.items()}
    lines = {
        name: np.array([list(by_step.values()) for by_step in runs])
        for name, runs in logged.items()
    }
    first = trained.runs[_EPS][0].config
    data, batch = first.data, first.batch
    images = len(list_split(data.name, data.root, data.train_split).labels)
    epochs = [step * batch.p * batch.k / images for step in logged[_EPS][0]]
    claims = []
    for loss in losses:
        easy, plain = (lines[name].mean(0)[1:] for name in (f"EPS + {loss}", loss))
        above = int((easy > plain).sum())
        ours = f"above at {above} of {len(easy)} evaluations; "
        ours += f"at the end {change(plain[-1], easy[-1])}; "
        ours += f"at its best {change(plain.max(), easy.max())}"
        what = f"R@1 throughout training: {loss} → EPS + {loss}"
        claims.append(Finding(what, "above from the first epochs on", ours, above == len(easy)))
    ends = [
        Score(name, _LETTERS.title, None, by_seed[:, -1].tolist(), before=by_seed[:, 0].tolist())
        for name, by_seed in lines.items()
    ]
    title = "EPS Fig. 3a: R@1 by letter on unseen alphabets while training"
    more = [before_table(ends, "Before training and at the end")]
    return _publish(request, title, "epoch", trained, epochs, lines, Scorecard((), claims), more)


def _logged(run: Run) -> dict[int, float]:
    """R@1 as it was logged at each evaluation, by step."""
    return {
        entry["step"]: 100.0 * entry[_LETTERS.key]
        for entry in run.metrics()
        if _LETTERS.key in entry
    }


def by_positives(request: Request) -> Made:
    """EPS Fig. 3b: R@1 rises with the number of positives to choose from."""
    cells = {**some_methods(_PLAIN)} | _by_batch(request, _OMNIGLOT, _EPS, ", {} of a class")
    trained, scores = _scored(request, cells)
    positives = [0, *(k for _, k in TABLES["eps-fig3b"][request.scale])]
    by_seed = np.array([scores[name].ours for name in cells]).T
    mean = by_seed.mean(axis=0)
    ours = ", ".join(f"{k:g}: {value:.1f}" for k, value in zip(positives, mean, strict=True))
    says = "R@1 rises with their number"
    rises = bool((np.diff(mean) > 0).all())
    claim = Finding("more positives to choose from", says, ours, rises)
    return _publish(
        request,
        "EPS Fig. 3b: R@1 by letter against the number of positives in the batch",
        "images of the anchor's alphabet in the batch",
        trained,
        positives,
        {f"{_EPS} (at 0: random positives)": by_seed},
        Scorecard(list(scores.values()), [claim]),
        notes=[TABLES["eps-fig3b"]["note"]],
    )


def gain_by_positives(request: Request) -> Made:
    """Beyond EPS: whether the gain of easy positives on Cars196 grows with those in the batch."""
    study, sizes = STUDIES["cars196"], [k for _, k in TABLES["eps-positives"][request.scale]]
    easy, plain = (_by_batch(request, study, name, ", K {}") for name in (_EPS, _PLAIN))
    trained = study.train(request, easy | plain)
    recall = Column("R@1", "test", k=1)
    scores = {score.method: score for score in method_scores(trained, [recall])}
    gains = {
        k: paired_gain([(trained.runs[first], trained.runs[second])], recall)
        for k, first, second in zip(sizes, easy, plain, strict=True)
    }
    claims = [paired_claim(f"{k} images of a class", "", gain) for k, gain in gains.items()]
    values = [gain.value for gain in gains.values()]
    ours = ", ".join(f"{k}: {value:+.1f}" for k, value in zip(gains, values, strict=True))
    rises = bool((np.diff(values) > 0).all())
    claims.append(Finding("the gain, by images of a class", "it grows with them", ours, rises))
    lines = {
        method: np.array([scores[name].ours for name in cells]).T
        for method, cells in ((_EPS, easy), (_PLAIN, plain))
    }
    return _publish(
        request,
        "Beyond EPS: R@1 on Cars196 against the images of a class in the batch",
        "images of a class in the batch",
        trained,
        sizes,
        lines,
        Scorecard(list(scores.values()), claims),
        notes=[TABLES["eps-positives"]["note"]],
        y_label="R@1 (%), unseen classes",
    )


def by_share_trimmed(request: Request) -> Made:
    """EPS Fig. 6: trimming adds nothing to random triplets, a little to Dist-Margin.

    EPS trims randomly sampled triplets; pairs of distance sampling for the margin loss.
    """
    shares = (0, *TABLES["eps-fig6"][request.scale])
    names, cells = {}, {}
    for loss in (_RANDOM, _PLAIN):
        names[loss] = [loss, *(f"{loss}, {share} % trimmed" for share in shares[1:])]
        for name, share in zip(names[loss], shares, strict=True):
            trim = {"trim": 1.0 - share / 100} if share else {}
            cells[name] = {**METHODS[loss], "loss": {**METHODS[loss]["loss"], **trim}}
    trained, scores = _scored(request, cells)
    lines, claims = {}, []
    for loss in names:
        lines[loss] = np.array([scores[name].ours for name in names[loss]]).T
        mean = lines[loss].mean(axis=0)
        gain = float(mean[1:].max() - mean[0])
        by_share = zip(shares, mean, strict=True)
        ours = ", ".join(f"{share:g} %: {value:.1f}" for share, value in by_share)
        # Nothing is less than a point of R@1.
        says, holds = ("a small improvement on Omniglot", gain > 0)
        if loss == _RANDOM:
            says, holds = ("no improvement", gain < 1.0)
        what = f"{loss}: what trimming adds to R@1"
        claims.append(Finding(what, says, f"{ours} ({gain:+.1f})", holds))
    title = "EPS Fig. 6: R@1 by letter with trimmed losses"
    comparison = Scorecard(list(scores.values()), claims)
    return _publish(request, title, "tuples trimmed (%)", trained, shares, lines, comparison)


def _by_batch(request: Request, study: Study, method: str, suffix: str) -> dict[str, Sections]:
    """A method at the item's batches of P × K; the study's own batch has the method's name."""
    own = study.setups[request.scale][0].config["batch"]
    cells: dict[str, Sections] = {}
    for p, k in TABLES[request.item][request.scale]:
        if (p, k) == (own["p"], own["k"]):
            cells[method] = METHODS[method]
        else:
            cells[method + suffix.format(k)] = {**METHODS[method], "batch": {"p": p, "k": k}}
    return cells


def _scored(request: Request, cells: Cells) -> tuple[Trained, dict[str, Score]]:
    trained = _OMNIGLOT.train(request, cells)
    return trained, {score.method: score for score in method_scores(trained, [_LETTERS])}


def _publish(
    request: Request,
    title: str,
    x_label: str,
    trained: Trained,
    x: Sequence[float],
    lines: Mapping[str, Array],
    comparison: Scorecard,
    more: Sequence[Table] = (),
    notes: Sequence[str] = (),
    y_label: str = "R@1 (%), by letter",
) -> Made:
    """The page of a figure; `lines` have one row per seed, one column per value of `x`."""
    figure = curves(
        title,
        [line(name, x, by_seed) for name, by_seed in lines.items()],
        # A line alone has no legend: its name stands below the title.
        note="; ".join([*(lines if len(lines) == 1 else ()), trained.setup.words]),
        x_label=x_label,
        y_label=y_label,
        log=False,
        zero=False,
        width=540.0,
        height=340.0,
    )
    return publish(request, title, comparison, [trained], notes=notes, more=more, figure=figure)
