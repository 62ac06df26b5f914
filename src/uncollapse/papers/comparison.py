"""A paper's numbers beside ours: scores over seeds, claims, and whether the direction is the same.

The tables read forwards: paper, ours, difference (ours − paper), reproduced?
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from uncollapse import charts
from uncollapse._base.arrays import Array
from uncollapse._base.files import write_csv, write_text
from uncollapse._base.table import Table
from uncollapse.metrics import over_seeds
from uncollapse.papers.items import ItemPage, Made, Request
from uncollapse.papers.plane import save
from uncollapse.papers.study import Trained, about

BEFORE = "before training"
_DIFFERENCE = "ours − paper"
_AT_SMOKE = "not judged at smoke"


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation over seeds; NaN where there are too few for it.

    A value that a run does not have is NaN, and so is the mean.

    >>> spread([1.0, 3.0]), spread([math.nan, math.nan])
    ((2.0, 1.4142135623730951), (nan, nan))
    """
    if len(values) == 1:
        return float(values[0]), math.nan
    if not values or not all(map(math.isfinite, values)):
        return math.nan, math.nan
    summary = over_seeds(list(values))
    return summary.mean, summary.std


def with_std(values: Sequence[float], decimals: int = 1) -> str:
    """The mean and, of several seeds, the standard deviation; `nan` of none.

    >>> with_std([1.0, 3.0]), with_std([2.0])
    ('2.0 ± 1.4', '2.0')
    """
    mean, std = (f"{value:.{decimals}f}" for value in spread(values))
    return mean if std == "nan" else f"{mean} ± {std}"


def change(before: float, after: float) -> str:
    """From one number to another, and by how much.

    >>> change(35.2, 42.3)
    '35.2 → 42.3 (+7.1)'
    """
    return f"{before:.1f} → {after:.1f} ({after - before:+z.1f})"


def line(name: str, x: Sequence[float], by_seed: Array, mean: Array | None = None) -> charts.Series:
    """The mean over the rows of `by_seed`, one per seed; a band from the least to the largest."""
    mean = by_seed.mean(axis=0) if mean is None else mean
    if len(by_seed) < 2:
        return charts.Series(name, x, mean.tolist())
    low, high = by_seed.min(axis=0).tolist(), by_seed.max(axis=0).tolist()
    return charts.Series(name, x, mean.tolist(), low, high)


@dataclass(frozen=True)
class Score:
    """One number of a paper (None: it has none) and ours, one per seed.

    `than` names the method that the paper compares it with in the same metric; the direction is
    the sign of the difference, seed by seed. `before` is what the network had before training, one
    per seed; empty where that is not shown.

    >>> Score("Trip. + SH", "R@1", None, [37.0, 38.0], before=[49.7, 49.9]).ends_below
    'Trip. + SH ends below the network before training in R@1: 37.5 against 49.8, 2 of 2 seeds.'
    """

    method: str
    metric: str
    paper: float | None
    ours: Sequence[float]
    than: str | None = None
    before: Sequence[float] = ()

    @property
    def mean(self) -> float:
        """Our mean over the seeds."""
        return spread(self.ours)[0]

    @property
    def ends_below(self) -> str:
        """A sentence if the mean or a seed ends below its start; otherwise empty."""
        below = sum(end < start for start, end in zip(self.before, self.ours, strict=True))
        start = spread(self.before)[0]
        if not below and not self.mean < start:
            return ""
        seeds = f"{below} of {len(self.ours)} seed{'s' * (len(self.ours) != 1)}"
        means = f"{self.mean:.1f} against {start:.1f}"
        where = (
            f": {means}, {seeds}" if self.mean < start else f" with {seeds}; the mean is {means}"
        )
        return f"{self.method} ends below the network before training in {self.metric}{where}."


@dataclass(frozen=True)
class Finding:
    """A claim of a paper that is not a score, what we found, and whether the two agree."""

    what: str
    paper: str
    ours: str
    holds: bool | None

    @property
    def verdict(self) -> str:
        """The verdict in the words of the tables."""
        return "not judged" if self.holds is None else "yes" if self.holds else "NO"


@dataclass(frozen=True)
class Scorecard:
    """Scores and claims; `decimals` are those of our scores. Nothing is judged at `smoke`.

    >>> comparison = Scorecard([Score("a", "R@1", 40.0, [39.0, 41.0]),
    ...                          Score("b", "R@1", 60.0, [50.0, 52.0], than="a")])
    >>> comparison.direction(comparison.scores[1])
    'yes (2 of 2 seeds)'
    >>> comparison.tables()[1].rows
    [['R@1: a → b', '40.0 → 60.0 (+20.0)', '40.0 → 51.0 (+11.0)', '-9.0', 'yes (2 of 2 seeds)']]
    """

    scores: Sequence[Score] = ()
    claims: Sequence[Finding] = ()
    decimals: int = 1
    smoke: bool = False

    def direction(self, score: Score) -> str:
        """`yes`, `NO`, or `partly` (the mean agrees, not every seed); empty if nothing to compare.

        Where the paper has no number for one of the two, its claim is taken to be an improvement.
        """
        other = self._other(score)
        gaps = (
            [] if other is None else [a - b for a, b in zip(score.ours, other.ours, strict=False)]
        )
        if other is None or not gaps or any(map(math.isnan, gaps)):
            return ""
        if self.smoke:
            return _AT_SMOKE
        known = score.paper is not None and other.paper is not None
        sign = -1.0 if known and score.paper < other.paper else 1.0  # type: ignore[operator]
        agree = sum(sign * gap > 0 for gap in gaps)
        mean = sign * sum(gaps) > 0
        word = "NO" if not mean else "yes" if agree == len(gaps) else "partly"
        return f"{word} ({agree} of {len(gaps)} seed{'s' * (len(gaps) != 1)})"

    def tables(self) -> list[Table]:
        """Scores in the paper's form, then what changes between methods, then claims."""
        tables = [self._grid()] if self.scores else []
        changes = [self._change(score) for score in self.scores if self.direction(score)]
        if changes:
            heading = ["change", "paper", "ours", f"difference ({_DIFFERENCE})", "reproduced?"]
            tables.append(Table(heading, changes, verdict=4))
        if self.claims:
            rows = [[c.what, c.paper, c.ours, self.verdict(c)] for c in self.claims]
            tables.append(Table(["what", "paper", "ours", "reproduced?"], rows, verdict=3))
        return tables

    def rows(self) -> list[list[object]]:
        """Every number of every seed, for a CSV."""
        rows: list[list[object]] = []
        for score in self.scores:
            mean, std = spread(score.ours)
            paper = "" if score.paper is None else score.paper
            by_seed, before = (
                " ".join(f"{value:.4f}" for value in values)
                for values in (score.ours, score.before)
            )
            rounded = [f"{mean:.4f}", "" if math.isnan(std) else f"{std:.4f}"]
            judged = [self.direction(score), by_seed, before]
            rows.append([score.method, score.metric, paper, *rounded, *judged])
        return rows + [
            [c.what, "", c.paper, c.ours, "", self.verdict(c), "", ""] for c in self.claims
        ]

    def verdict(self, claim: Finding) -> str:
        """That of the claim, if anything is judged."""
        return _AT_SMOKE if self.smoke else claim.verdict

    def _other(self, score: Score) -> Score | None:
        same = (s for s in self.scores if (s.method, s.metric) == (score.than, score.metric))
        return next(same, None)

    def _change(self, score: Score) -> list[str]:
        other = self._other(score)
        assert other is not None  # it has a direction
        paper, difference = "-", "-"
        if score.paper is not None and other.paper is not None:
            paper = change(other.paper, score.paper)
            difference = f"{(score.mean - other.mean) - (score.paper - other.paper):+z.1f}"
        what = f"{score.metric}: {other.method} → {score.method}"
        return [what, paper, change(other.mean, score.mean), difference, self.direction(score)]

    def _grid(self) -> Table:
        """One row per method, one column per metric: the paper's, ours, and the difference.

        The network before training comes first where all methods begin alike, else with each.
        """
        metrics = list(dict.fromkeys(score.metric for score in self.scores))
        methods = list(dict.fromkeys(score.method for score in self.scores))
        by_cell = {(score.method, score.metric): score for score in self.scores}

        def cells(method: str, text: Callable[[Score], str]) -> list[str]:
            scores = (by_cell.get((method, metric)) for metric in metrics)
            return ["" if score is None else text(score) for score in scores]

        def untrained(score: Score) -> str:
            return with_std(score.before, self.decimals) if score.before else ""

        starts = [cells(method, untrained) for method in methods]
        alike = any(starts[0]) and all(start == starts[0] for start in starts)
        rows = [[BEFORE, "ours", *starts[0]]] if alike else []
        strong = list(range(len(rows)))
        for method, start in zip(methods, starts, strict=True):
            theirs = cells(method, lambda s: "" if s.paper is None else f"{s.paper:g}")
            rows += [[method, "paper", *theirs]] if any(theirs) else []
            rows += [[method, BEFORE, *start]] if any(start) and not alike else []
            strong.append(len(rows))
            ours = cells(method, lambda s: with_std(s.ours, self.decimals))
            rows.append([method, "ours", *ours])
            gaps = cells(method, self._gap)
            rows += [[method, _DIFFERENCE, *gaps]] if any(gaps) else []
        # Who ends below the network before training, by R@1.
        judged = [s.ends_below for s in self.scores if s.before and s.metric.endswith("R@1")]
        notes = [*filter(None, judged)]
        return Table(["method", "", *metrics], rows, strong=strong, notes=notes)

    def _gap(self, score: Score) -> str:
        if score.paper is None or math.isnan(score.mean):
            return ""
        return f"{score.mean - score.paper:+z.{self.decimals}f}"


def before_table(scores: Sequence[Score], title: str = "") -> Table:
    """One row per method and score; under it, those that end below their start."""
    rows = [
        [
            *(score.method, score.metric, with_std(score.before), with_std(score.ours)),
            f"{score.mean - spread(score.before)[0]:+z.1f}",
        ]
        for score in scores
    ]
    head = ["method", "score", BEFORE, "at the end", "end − before"]
    notes = [*filter(None, (score.ends_below for score in scores))]
    return Table(head, rows, title, notes=notes)


def publish(
    request: Request,
    title: str,
    comparison: Scorecard,
    trained: Sequence[Trained] = (),
    *,
    notes: Sequence[str] = (),
    more: Sequence[Table] = (),
    runs: Sequence[Mapping[str, object]] = (),
    figure: charts.Chart | None = None,
    photos: bool = False,
    file: str = "",
) -> Made:
    """The page, the CSV and the picture of a comparison, as `file` (the item's name by default).

    `runs` are the rows of a CSV of their own, by column. A picture with `photos` in it is
    written once, as PNG, and is not to be published.
    """
    stem = request.folder / (file or request.item)
    comparison = replace(comparison, smoke=request.scale == "smoke")
    every = dict.fromkeys([*(note for study in trained for note in study.notes), *notes])
    picture = "" if figure is None else f"{stem.name}.png"
    tables = [*comparison.tables(), *more]
    page = ItemPage(title, tables, about(trained, request), [*every], picture)
    files = [Path(f"{stem}.md"), Path(f"{stem}.csv")]
    write_text(files[0], page.markdown())
    header = ["what", "metric", "paper", "ours", "std", "reproduced", "by seed", BEFORE]
    write_csv(files[1], header, comparison.rows())
    if runs:
        files.append(Path(f"{stem}-runs.csv"))
        write_csv(files[2], list(runs[0]), [list(run.values()) for run in runs])
    if figure is None:
        return Made(files, [page])
    if photos:
        shown = charts.save(figure, stem.with_name(picture))
        return Made([*files, shown], [page], private=[shown])
    return Made(files + save(figure, stem.parent, stem.name), [page])
