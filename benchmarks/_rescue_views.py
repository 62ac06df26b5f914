"""The cases of a rescue as a table and a picture, and which strategy is best where."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from _rescue_table import Case, Results, place_of, place_words
from _study import Setting
from _study_grid import BASES, BY_HAND, FAR_TOO_HIGH
from uncollapse.charts import Axes, Chart, Entry, Scale, area, panels, save
from uncollapse.charts.marks import Points

__all__ = ["best_where", "picture", "table"]


def table(cases: Sequence[Case]) -> str:
    """One line for each place and base strategy, the mean of its seeds, as Markdown."""
    groups: dict[tuple[Any, ...], list[Case]] = {}
    for case in cases:
        groups.setdefault((*place_of(case.setting), case.setting.strategy), []).append(case)
    lines = [
        "| place | strategy | collapsed | untrained | no guard | rescued | best by hand | ratio | "
        "smallest | goes on with | best was |",
        "|---" * 11 + "|",
    ]
    for members in groups.values():
        first = members[0].setting
        cells = [
            place_words(first),
            first.strategy,
            f"{sum(case.collapsed for case in members)} of {len(members)}",
            _mean([case.alone["recall_before"] for case in members]),
            _mean([case.alone["recall"] for case in members]),
            _mean([case.saved["recall"] for case in members]),
            _mean([case.best_recall for case in members]),
            _mean([case.ratio for case in members]),
            f"{min(case.ratio for case in members):.3f}",
            "; ".join(dict.fromkeys(str(case.saved["final_strategy"]) for case in members)),
            "; ".join(dict.fromkeys(c.best.strategy for c in members if c.best is not None)),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def best_where(found: Results) -> str:
    """Mean R@1 of each strategy on each data and network, free and on the sphere, as Markdown."""
    scores: dict[str, dict[str, list[float]]] = {}
    runs = {s: r for s, r in found.items() if s.guard == "warn" and s.lr < FAR_TOO_HIGH}
    runs = {s: r for s, r in runs.items() if (s.loss, s.loop) == ("triplet", "engine")}
    names = [Setting("", "", 2, 2, 1, **choice).strategy for choice in (*BASES, *BY_HAND)]
    for s, result in runs.items():
        row = f"{s.data}, {s.backbone}, {'unit' if s.unit else 'free'}"
        scores.setdefault(row, {}).setdefault(s.strategy, []).append(result["recall"])
    lines = [
        "| data, network | runs | " + " | ".join(names) + " |",
        "|---" * (2 + len(names)) + "|",
    ]
    for row in sorted(scores):
        means = {name: fmean(values) for name, values in scores[row].items()}
        top = max(means.values())
        cells = [_bold(means[name], top) if name in means else "-" for name in names]
        count = sum(len(values) for values in scores[row].values())
        lines.append(f"| {row} | {count} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def picture(cases: Sequence[Case], path: Path) -> None:
    """R@1 with a rescue, and without a guard, against the best by hand; on the line: as good."""
    bad = [case for case in cases if case.collapsed and not case.diverges]
    best = [case.best_recall for case in bad]
    kinds = {"rescued": ("circle", "s0"), "no guard": ("cross", "bad")}
    across, up = area(460.0, 400.0, y_label=True)
    x, y = Scale(0.0, 1.0, *across), Scale(0.0, 1.0, *up)
    axes = Axes(x, y)
    marks = [*axes.frame("best R@1 of six strategies chosen by hand", "R@1 of batch-hard")]
    marks.append(axes.line([0.0, 1.0], [0.0, 1.0], "soft"))
    for name, (kind, colour) in kinds.items():
        got = [(c.saved if name == "rescued" else c.alone)["recall"] for c in bad]
        marks.append(Points(axes.places(best, got), kind, colour, size=0.9, opacity=0.6))
    title = "R@1 with a rescue and without, against the best by hand"
    said = f"{len(bad)} runs that collapse without a guard"
    legend = [Entry(n, (Points(((15, 7),), kind, c),)) for n, (kind, c) in kinds.items()]
    save(panels(title, [Chart(said, said, marks, 460.0, 400.0)], columns=1, legend=legend), path)


def _mean(values: Sequence[float]) -> str:
    return f"{fmean(values):.3f}"


def _bold(value: float, top: float) -> str:
    return f"**{value:.3f}**" if value == top else f"{value:.3f}"
