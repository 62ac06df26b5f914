"""A paper's numbers beside ours: scores over seeds, claims, and whether the direction is the same.

The tables read forwards: paper, ours, difference (ours − paper), reproduced?
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from uncollapse import charts
from uncollapse._base.files import write_csv, write_text
from uncollapse.charts import Chart
from uncollapse.metrics import over_seeds
from uncollapse.papers._draw import save
from uncollapse.papers._item import Made, Page, Request, Table

__all__ = [
    "BEFORE",
    "Claim",
    "Comparison",
    "Score",
    "before_table",
    "change",
    "publish",
    "spread",
    "with_std",
]


BEFORE = "before training"


def before_table(scores: Sequence[Score], title: str = "") -> Table:
    """One row per method and score; under it, those that end below their start."""
    rows = []
    for score in scores:
        gap = f"{spread(score.ours)[0] - spread(score.before)[0]:+z.1f}"
        means = [with_std(score.before), with_std(score.ours)]
        rows.append([score.method, score.metric, *means, gap])
    head = ["method", "score", BEFORE, "at the end", "end − before"]
    return Table(head, rows, title, notes=[*filter(None, (s.ends_below for s in scores))])


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation over seeds; NaN where there are too few for it.

    >>> spread([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    if len(values) < 2:
        return (float(values[0]) if values else math.nan), math.nan
    found = over_seeds(list(values))
    return found.mean, found.std


def with_std(values: Sequence[float], decimals: int = 1) -> str:
    """The mean and, of several seeds, the standard deviation.

    >>> with_std([1.0, 3.0]), with_std([2.0])
    ('2.0 ± 1.4', '2.0')
    """
    mean, std = (f"{value:.{decimals}f}" for value in spread(values))
    return mean if std == "nan" else f"{mean} ± {std}"


_DIFFERENCE = "ours − paper"


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
    def ends_below(self) -> str:
        """A sentence where the mean or a seed ends below its start; else nothing."""
        below = sum(end < start for start, end in zip(self.before, self.ours, strict=True))
        start, end = spread(self.before)[0], spread(self.ours)[0]
        if not below and not end < start:
            return ""
        seeds = f"{below} of {len(self.ours)} seed{'s' * (len(self.ours) != 1)}"
        means = f"{end:.1f} against {start:.1f}"
        told = f": {means}, {seeds}" if end < start else f" with {seeds}; the mean is {means}"
        return f"{self.method} ends below the network before training in {self.metric}{told}."


@dataclass(frozen=True)
class Claim:
    """What a paper says that is no score, what is so here, and whether the two agree."""

    what: str
    paper: str
    ours: str
    holds: bool | None

    @property
    def verdict(self) -> str:
        """In the words of the tables."""
        return "not judged" if self.holds is None else "yes" if self.holds else "NO"


@dataclass(frozen=True)
class Comparison:
    """Scores and claims; `decimals` are those of our scores.

    >>> found = Comparison([Score("a", "R@1", 40.0, [39.0, 41.0]),
    ...                     Score("b", "R@1", 60.0, [50.0, 52.0], than="a")])
    >>> found.direction(found.scores[1])
    'yes (2 of 2 seeds)'
    >>> found.tables()[1].rows
    [['R@1: a → b', '40.0 → 60.0 (+20.0)', '40.0 → 51.0 (+11.0)', '-9.0', 'yes (2 of 2 seeds)']]
    """

    scores: Sequence[Score] = ()
    claims: Sequence[Claim] = ()
    decimals: int = 1

    def direction(self, score: Score) -> str:
        """`yes`, `NO`, or `partly` (the mean agrees, not every seed); empty if nothing to compare.

        Where the paper has no number for one of the two, its claim is taken to be an improvement.
        """
        other = self._other(score)
        if other is None:
            return ""
        gaps = [mine - theirs for mine, theirs in zip(score.ours, other.ours, strict=False)]
        if not gaps or any(math.isnan(gap) for gap in gaps):
            return ""
        known = score.paper is not None and other.paper is not None
        sign = -1.0 if known and score.paper < other.paper else 1.0  # type: ignore[operator]
        agree = sum(sign * gap > 0 for gap in gaps)
        mean = sign * sum(gaps) > 0
        word = "NO" if not mean else "yes" if agree == len(gaps) else "partly"
        return f"{word} ({agree} of {len(gaps)} seed{'s' * (len(gaps) != 1)})"

    def tables(self) -> list[Table]:
        """Scores in the paper's form, then what changes between methods, then claims."""
        found = [self._grid()] if self.scores else []
        changes = [self._change(score) for score in self.scores if self.direction(score)]
        if changes:
            heading = ["change", "paper", "ours", f"difference ({_DIFFERENCE})", "reproduced?"]
            found.append(Table(heading, changes, verdict=4))
        if self.claims:
            rows = [[c.what, c.paper, c.ours, c.verdict] for c in self.claims]
            found.append(Table(["what", "paper", "ours", "reproduced?"], rows, verdict=3))
        return found

    def save(self, request: Request, file: str) -> None:
        """`file.csv`: every number of every seed."""
        rows: list[list[object]] = []
        for score in self.scores:
            mean, std = spread(score.ours)
            paper = "" if score.paper is None else score.paper
            each = " ".join(f"{value:.4f}" for value in score.ours)
            rounded = [f"{mean:.4f}", "" if math.isnan(std) else f"{std:.4f}"]
            before = " ".join(f"{value:.4f}" for value in score.before)
            judged = [self.direction(score), each, before]
            rows.append([score.method, score.metric, paper, *rounded, *judged])
        rows += [[c.what, "", c.paper, c.ours, "", c.verdict, "", ""] for c in self.claims]
        header = ["what", "metric", "paper", "ours", "std", "reproduced", "by seed", BEFORE]
        write_csv(request.folder / f"{file}.csv", header, rows)

    def _other(self, score: Score) -> Score | None:
        same = (s for s in self.scores if (s.method, s.metric) == (score.than, score.metric))
        return next(same, None)

    def _change(self, score: Score) -> list[str]:
        other = self._other(score)
        assert other is not None  # it has a direction
        ours = spread(other.ours)[0], spread(score.ours)[0]
        paper, difference = "-", "-"
        if score.paper is not None and other.paper is not None:
            paper = change(other.paper, score.paper)
            difference = f"{(ours[1] - ours[0]) - (score.paper - other.paper):+z.1f}"
        what = f"{score.metric}: {other.method} → {score.method}"
        return [what, paper, change(*ours), difference, self.direction(score)]

    def _grid(self) -> Table:
        """One row per method, one column per metric: the paper's, ours, and the difference.

        The network before training comes first where all methods begin alike, else with each.
        """
        metrics = list(dict.fromkeys(score.metric for score in self.scores))
        by = {(score.method, score.metric): score for score in self.scores}
        methods = list(dict.fromkeys(score.method for score in self.scores))
        starts = [
            [self._start(by.get((method, metric))) for metric in metrics] for method in methods
        ]
        alike = any(starts[0]) and all(one == starts[0] for one in starts)
        rows: list[list[str]] = [[BEFORE, "ours", *starts[0]]] if alike else []
        strong = list(range(len(rows)))
        for method, start in zip(methods, starts, strict=True):
            mine = [by.get((method, metric)) for metric in metrics]
            gaps = ["" if s is None else self._gap(s) for s in mine]
            if any(s and s.paper is not None for s in mine):
                theirs = ["" if s is None or s.paper is None else f"{s.paper:g}" for s in mine]
                rows.append([method, "paper", *theirs])
            rows += [[method, BEFORE, *start]] if any(start) and not alike else []
            strong.append(len(rows))
            ours = ("" if s is None else with_std(s.ours, self.decimals) for s in mine)
            rows.append([method, "ours", *ours])
            rows += [[method, _DIFFERENCE, *gaps]] if any(gaps) else []
        return Table(["method", "", *metrics], rows, strong=strong, notes=self._below())

    def _start(self, score: Score | None) -> str:
        return with_std(score.before, self.decimals) if score and score.before else ""

    def _below(self) -> list[str]:
        """Who ends below the network before training, by R@1."""
        judged = [s for s in self.scores if s.before and s.metric.endswith("R@1")]
        return [*filter(None, (score.ends_below for score in judged))]

    def _gap(self, score: Score) -> str:
        mean = spread(score.ours)[0]
        if score.paper is None or math.isnan(mean):
            return ""
        return f"{mean - score.paper:+z.{self.decimals}f}"


def publish(
    request: Request,
    title: str,
    comparison: Comparison,
    *,
    about: dict[str, str],
    notes: Sequence[str],
    more: Sequence[Table] = (),
    figure: Chart | None = None,
    photos: bool = False,
    file: str = "",
) -> Made:
    """The page, the CSV and the picture of a comparison, as `file` (the item's name by default).

    A picture with `photos` in it is written once, as PNG, and is not to be published.
    """
    folder, file = request.folder, file or request.item
    picture = "" if figure is None else f"{file}.png"
    page = Page(title, [*comparison.tables(), *more], about, notes, picture)
    write_text(folder / f"{file}.md", page.markdown())
    comparison.save(request, file)
    files = [folder / f"{file}.md", folder / f"{file}.csv"]
    if figure is None:
        return Made(files, [page])
    if photos:
        shown = charts.save(figure, folder / picture)
        return Made([*files, shown], [page], private=[shown])
    return Made(files + save(figure, folder, file), [page])


def change(before: float, after: float) -> str:
    """From one number to another, and by how much.

    >>> change(35.2, 42.3)
    '35.2 → 42.3 (+7.1)'
    """
    return f"{before:.1f} → {after:.1f} ({after - before:+z.1f})"
