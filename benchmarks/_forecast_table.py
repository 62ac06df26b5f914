"""Forecasts beside outcomes: tables of AUC and of alarms, a file of all runs, a picture."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from _forecast_scores import OUTCOMES, SCORES, Outcome, Score, auc, interval
from _study import Setting
from uncollapse.charts import Axes, Chart, Entry, Scale, area, panels, save
from uncollapse.charts.marks import Points


def summary(runs: Sequence[Outcome]) -> str:
    """The tables, as Markdown."""
    lines = [
        f"{len(runs)} runs, {sum(r.collapsed for r in runs)} collapsed (verdict at the end "
        f"`network-collapse` {sum(r.to_a_point for r in runs)}, the others `shrinking`), "
        f"{sum(r.collapsed and r.setting.has_batch_norm for r in runs)} of them with batch norm; "
        f"{sum(r.harmed for r in runs)} ended with less than 90 % of the R@1 before training.",
        "",
        "| data | runs | collapsed | " + " | ".join(f"{s.name}: AUC" for s in SCORES) + " |",
        "|---" * (3 + len(SCORES)) + "|",
    ]
    for name, members in _groups(runs).items():
        truth = [one.collapsed for one in members]
        cells = [_auc(members, truth, score) for score in SCORES]
        lines.append(f"| {name} | {len(members)} | {sum(truth)} | " + " | ".join(cells) + " |")
    lines += ["", "| outcome | " + " | ".join(f"{s.name}: AUC" for s in SCORES) + " |"]
    lines.append("|---" * (1 + len(SCORES)) + "|")
    for name, outcome in OUTCOMES.items():
        truth = [outcome(one) for one in runs]
        cells = [_auc(runs, truth, score) for score in SCORES]
        lines.append(f"| {name} ({sum(truth)}) | " + " | ".join(cells) + " |")
    lines += ["", "| alarm | runs | hit | missed | false alarm | rightly quiet |", "|---" * 6 + "|"]
    for name in ("all", "adam", "sgd", "adamw"):
        some = _groups(runs).get(name, [])
        lines += [_counts(name, some, score) for score in SCORES if some]
    return "\n".join([*lines, "", *_bound(runs)])


def _groups(runs: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """The runs together, and by what may matter."""
    kinds: dict[str, Callable[[Setting], bool]] = {
        "all": lambda s: True,
        "only hard x hard": lambda s: s.is_batch_hard,
        "batch norm": lambda s: s.has_batch_norm,
        "batch norm, only hard x hard": lambda s: s.has_batch_norm and s.is_batch_hard,
        "no batch norm": lambda s: not s.has_batch_norm,
        "free": lambda s: not s.unit,
        "unit": lambda s: s.unit,
    } | {name: partial(_has, name) for name in ("adam", "sgd", "adamw")}
    groups = {name: [one for one in runs if kind(one.setting)] for name, kind in kinds.items()}
    for one in sorted(runs, key=lambda one: (one.setting.data, one.setting.backbone)):
        groups.setdefault(f"{one.setting.data}, {one.setting.backbone}", []).append(one)
    return {name: members for name, members in groups.items() if members}


def _has(optimizer: str, setting: Setting) -> bool:
    return setting.optimizer == optimizer


def _auc(runs: Sequence[Outcome], truth: list[bool], score: Score) -> str:
    values = [score.of(one) for one in runs]
    if len(set(truth)) < 2:
        return "-"
    low, high = interval(runs, truth, values)
    return f"{auc(truth, values):.3f} ({low:.3f} to {high:.3f})"


def _counts(name: str, runs: Sequence[Outcome], score: Score) -> str:
    pairs = [(one.collapsed, score.of(one) > score.alarm) for one in runs]
    cells = (pairs.count(key) for key in ((True, True), (True, False), (False, True)))
    quiet = pairs.count((False, False))
    said = f"{score.name} > {score.alarm:.3g} | {name}"
    return f"| {said} | " + " | ".join(map(str, (*cells, quiet))) + " |"


def _bound(runs: Sequence[Outcome]) -> list[str]:
    """How often (17) held; where it is not positive it says nothing and cannot fail."""
    said = [one for one in runs if one.result["bound"] > 0]
    lines = []
    for name, members in (
        ("collapsed", [one for one in said if one.collapsed]),
        ("did not", [one for one in said if not one.collapsed]),
    ):
        held = sum(one.held for one in members)
        lines.append(f"{held} of {len(members)} runs that {name}")
    return [
        f"The bound was positive, and so said something, for {len(said)} of {len(runs)} runs; "
        f"it held in {' and in '.join(lines)}."
    ]


def write_csv(runs: Iterable[Outcome], path: Path) -> None:
    """One line a run."""
    rows = []
    for one in runs:
        kept = {k: v for k, v in one.result.items() if k not in _NOT_IN_CSV}
        rows.append(
            asdict(one.setting)
            | {key: f"{v:.5g}" if isinstance(v, float) else v for key, v in kept.items()}
            | {
                "probe_scale": f"{one.probe.scale_factor:.5g}",
                "predicted_scale": f"{one.probe.predicted:.5g}",
                "first_alarm": next((s for s, v in one.result["changes"] if v != "healthy"), ""),
                "collapsed": one.collapsed,
            }
        )
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def picture(runs: Sequence[Outcome], path: Path) -> None:
    """Each score against the scale that was left; its alarm as a line."""
    kinds = {True: ("collapsed", "cross", "bad"), False: ("did not collapse", "circle", "s0")}
    across, up = area(400.0, 300.0, y_label=True)
    y = Scale.around([_left(one) for one in runs], *up, log=True)
    plots = []
    for score in SCORES:
        values = [score.of(one) for one in runs]
        # Some are predicted to keep nothing at all: they stand at the right edge.
        drawn = [min(value, _FARTHEST) for value in values]
        axes = Axes(Scale.around([*drawn, score.alarm], *across), y)
        marks = [*axes.frame(_WORDS[score.name], "diameter at the end / at the start")]
        marks.append(axes.upright(score.alarm, "soft", (6, 4)))
        for fell, (_, kind, colour) in kinds.items():
            mine = [one for one in runs if one.collapsed == fell]
            left = [_left(one) for one in mine]
            places = [min(score.of(one), _FARTHEST) for one in mine]
            marks.append(Points(axes.places(places, left), kind, colour, size=0.9, opacity=0.6))
        found = f"AUC {auc([one.collapsed for one in runs], values):.3f}"
        plots.append(Chart(f"{score.name}: {found}", found, marks, 400.0, 300.0))
    legend = [
        Entry(name, (Points(((15, 7),), kind, colour),)) for name, kind, colour in kinds.values()
    ]
    title = "Each score against the scale that was left; dashed: its alarm"
    save(panels(title, plots, columns=2, legend=legend), path)


def _left(one: Outcome) -> float:
    """The share of the scale at the end, above 0 for a logarithmic axis."""
    return max(one.result["scale"] or 0.0, 1e-5)


_FARTHEST = 100.0  # of a score in the picture
_WORDS = {
    "drift at init": "radial drift before training",
    "drift + probe": "-log of the predicted share of the scale",
    "bound (17), c = 2": "(c · loss - diameter) / diameter",
    "batch size P x K": "P x K",
}
_NOT_IN_CSV = ("probe", "changes", "events", "final_strategy", "path", "recommended")
