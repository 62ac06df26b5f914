"""Direction drift beside other early figures: AUC by outcome, the rule's hits, runs, a picture."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from _forecast_scores import auc, interval
from uncollapse.charts import Axes, Chart, Entry, Scale, area, panels, save
from uncollapse.charts.marks import Points
from uncollapse.health.drifts import predict_scale

CHOSEN_ON = "mnist"  # outcomes, rule and thresholds were fixed on it; the other sets judge them
SPREAD_LOST = 0.5  # of the spread at the start is left at the end, or less
RECALL_LOST, RANK_LOST = 0.9, 0.25  # the same of R@1 and of the rank of held-out rows
GONE, GOING, DRIFT_ALARM = 0.5, 0.75, 0.1  # the rule: see `Outcome.alarm`
COSINE_ALARM = 0.05  # of the drift's cosine, which does not depend on the scale of a loss
BROKEN = (
    "SimSiam without stop-gradient",
    "SimSiam without predictor",
    "alignment alone",
    "BYOL without predictor",
    "VICReg without variance term",
)
EARLY = ("30", "60")
SHORT = 250  # steps of most runs
FEWEST = 3  # runs of either kind that an AUC takes


@dataclass(frozen=True)
class Outcome:
    """A finished run: its setting and what was seen."""

    setting: Any
    result: Mapping[str, Any]

    def seen(self, step: str, name: str) -> float:
        """A figure; NaN where it was not finite."""
        value = self.result[step][name]
        return math.nan if value is None else float(value)

    def left(self, step: str) -> float:
        """The share of the spread at the start that is left; 0 for a run that diverged."""
        share = self.seen(step, "spread") / self.seen("0", "spread")
        return share if math.isfinite(share) else 0.0

    def kept(self, name: str) -> float:
        """The share of R@1 or rank of held-out rows that is left at the end."""
        return float(self.result["after"][name] / self.result["before"][name])

    def predicted(self, step: str) -> float:
        """The share that would be left in the end, if the drift falls on: as in a forecast."""
        before = {"30": "0", "60": "30"}[step]
        drifts = [_or_worst(self.seen(when, "drift")) for when in (before, step)]
        return predict_scale(self.left(step), *drifts)

    def pulled(self, step: str) -> bool:
        """Whether the loss pulls directions together."""
        return not self.seen(step, "drift") <= DRIFT_ALARM

    def alarm(self, step: str) -> bool:
        """The rule: half of the spread is gone; or a quarter, and the loss pulls on."""
        left = self.left(step)
        return left < GONE or (left < GOING and self.pulled(step))

    @property
    def broken(self) -> bool:
        """Whether all directions equal is the best that its loss, as it is, can do."""
        return self.setting.method in BROKEN


OUTCOMES: dict[str, Callable[[Outcome], bool]] = {
    "spread lost": lambda run: run.left("end") <= SPREAD_LOST,
    "R@1 lost": lambda run: run.kept("recall") <= RECALL_LOST,
    "rank lost": lambda run: run.kept("rank") <= RANK_LOST,
    "information lost": lambda run: (
        run.kept("recall") <= RECALL_LOST or run.kept("rank") <= RANK_LOST
    ),
}
OUTCOMES["the loss is broken"] = lambda run: run.broken  # no outcome, but what to change
# Larger the surer a loss is.
SCORES: dict[str, Callable[[Outcome, str], float]] = {
    "direction drift": lambda run, step: _or_worst(run.seen(step, "drift")),
    "its cosine": lambda run, step: _or_worst(run.seen(step, "pull")),
    "drift and spread": lambda run, step: -run.predicted(step),
    "share of the spread left": lambda run, step: -run.left(step),
    "RankMe": lambda run, step: _or_worst(-run.seen(step, "rankme")),
    "mean cosine": lambda run, step: _or_worst(run.seen(step, "cosine")),
}


def _or_worst(value: float) -> float:
    return math.inf if math.isnan(value) else value


def summary(found: Sequence[tuple[Any, Mapping[str, Any]]]) -> str:
    """All tables, as Markdown: those of the judging sets, then of the one it was chosen on."""
    every = [Outcome(*pair) for pair in found]
    runs = [run for run in every if run.setting.steps <= SHORT]
    judging = [run for run in runs if run.setting.data != CHOSEN_ON]
    chosen = [run for run in runs if run.setting.data == CHOSEN_ON]
    parts = []
    for title, members in (("Judging sets", judging), (f"Chosen on {CHOSEN_ON}", chosen)):
        if members:
            seconds = [run.result["seconds"] for run in members]
            words = f"{len(members)} runs, {min(seconds):.0f} to {max(seconds):.0f} s each, "
            words += f"{sum(seconds) / 60:.0f} min of one core together."
            tables = [table(members) for table in (_aucs, _alarms, _causes, _settings)]
            parts += [f"## {title}", words, *tables]
    if longer := [run for run in every if run.setting.steps > SHORT]:
        setting = longer[0].setting
        title = f"## {setting.steps} steps on {setting.data} without batch norm"
        parts += [title, _longer(longer, runs)]
    return "\n\n".join(parts)


def _longer(runs: Sequence[Outcome], short: Sequence[Outcome]) -> str:
    """Long runs beside short ones, which are their first steps."""
    ends = {run.setting: run.left("end") for run in short}
    head = "method | broken | drift at 60 | spread left at 60 | at 250 | at the end"
    lines = [f"| {head} | R@1 kept | rank kept |", "|---" * 8 + "|"]
    for run in sorted(runs, key=lambda run: not run.broken):
        same = ends.get(replace(run.setting, steps=SHORT), math.nan)
        shares = [run.left("60"), same, run.left("end"), run.kept("recall"), run.kept("rank")]
        cells = [run.setting.name, "yes" if run.broken else "no"]
        cells += [f"{run.seen('60', 'drift'):+.2f}", *[f"{share:.2f}" for share in shares]]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _groups(runs: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """With and without batch norm; and the losses that see directions only, and others."""
    kinds: dict[str, Callable[[Any], bool]] = {
        "all": lambda run: True,
        "batch norm": lambda run: run.batch_norm,
        "no batch norm": lambda run: not run.batch_norm,
        "directions only": _sees_directions,
        "directions only, batch norm": lambda run: _sees_directions(run) and run.batch_norm,
        "directions only, no batch norm": lambda run: _sees_directions(run) and not run.batch_norm,
        "VICReg, Barlow Twins": lambda run: not _sees_directions(run),
    }
    for name in dict.fromkeys(run.setting.data for run in runs):
        kinds[name] = lambda run, name=name: run.data == name
    return {name: [r for r in runs if kind(r.setting)] for name, kind in kinds.items()}


def _sees_directions(setting: Any) -> bool:
    """VICReg and Barlow Twins see more."""
    return not setting.method.startswith(("VICReg", "Barlow"))


def _aucs(runs: Sequence[Outcome]) -> str:
    """After 30 / 60 steps; of the second its 95 % interval."""
    lines = ["| outcome | runs | lost | " + " | ".join(SCORES) + " |"]
    lines.append("|---" * (3 + len(SCORES)) + "|")
    for outcome, lost in OUTCOMES.items():
        for name, members in _groups(runs).items():
            truth = [lost(run) for run in members]
            if min(sum(truth), len(truth) - sum(truth)) < FEWEST:
                continue
            cells = [_auc(members, truth, score) for score in SCORES.values()]
            counts = f"{len(members)} | {sum(truth)}"
            lines.append(f"| {outcome}, {name} | {counts} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _auc(runs: Sequence[Outcome], truth: list[bool], score: Callable[[Outcome, str], float]) -> str:
    early, late = ([score(run, step) for run in runs] for step in EARLY)
    low, high = interval(runs, truth, late)  # type: ignore[arg-type]
    return f"{auc(truth, early):.2f} / {auc(truth, late):.2f} ({low:.2f} to {high:.2f})"


def _alarms(runs: Sequence[Outcome]) -> str:
    rules: dict[str, Callable[[Outcome, str], bool]] = {
        "the rule": Outcome.alarm,
        f"left < {GONE:g}": lambda run, step: run.left(step) < GONE,
        f"left < {GOING:g}": lambda run, step: run.left(step) < GOING,
        f"drift > {DRIFT_ALARM:g}": Outcome.pulled,
        "predicted left < 0.5": lambda run, step: run.predicted(step) < SPREAD_LOST,
    }
    lines = [
        "| spread lost | runs | hit | missed | false alarm | rightly quiet |",
        "|---" * 6 + "|",
    ]
    groups = _groups(runs)
    for step in EARLY:
        for rule, alarm in rules.items():
            for name in ("all", "batch norm", "no batch norm"):
                pairs = [(OUTCOMES["spread lost"](r), alarm(r, step)) for r in groups[name]]
                lines.append(f"| {rule} at {step} | {name} | {_counted(pairs)} |")
    return "\n".join(lines)


def _causes(runs: Sequence[Outcome]) -> str:
    """Does the drift say whether the loss is to blame: of all runs, and where spread was lost?"""
    rules: dict[str, Callable[[Outcome, str], bool]] = {
        f"drift > {DRIFT_ALARM:g}": Outcome.pulled,
        f"its cosine > {COSINE_ALARM:g}": lambda run, step: (
            not run.seen(step, "pull") <= COSINE_ALARM
        ),
    }
    lines = ["| loss is broken | runs | hit | missed | false alarm | rightly quiet |"]
    lines.append("|---" * 6 + "|")
    for name in ("all", "batch norm", "no batch norm", "directions only", "VICReg, Barlow Twins"):
        members = _groups(runs)[name]
        lost = [run for run in members if OUTCOMES["spread lost"](run)]
        for step in EARLY:
            for rule, alarm in rules.items():
                for words, chosen in (("", members), (", spread lost", lost)):
                    pairs = [(run.broken, alarm(run, step)) for run in chosen]
                    lines.append(f"| {rule} at {step} | {name}{words} | {_counted(pairs)} |")
    return "\n".join(lines)


def _counted(pairs: list[tuple[bool, bool]]) -> str:
    keys = ((True, True), (True, False), (False, True), (False, False))
    return " | ".join(str(pairs.count(key)) for key in keys)


def _settings(runs: Sequence[Outcome]) -> str:
    """Each setting: ranges over its seeds and sets."""
    head = "method | batch norm | runs | drift at 0 | at 30 | at 60 | spread left at 60 | at end"
    lines = [f"| {head} | R@1 kept | rank kept |", "|---" * 10 + "|"]
    settings: dict[tuple[str, bool], list[Outcome]] = {}
    for run in sorted(runs, key=lambda run: not run.setting.batch_norm):
        settings.setdefault((run.setting.name, run.setting.batch_norm), []).append(run)
    for (name, norm), members in settings.items():
        drifts = [_range([run.seen(step, "drift") for run in members]) for step in ("0", *EARLY)]
        left = [_range([run.left(step) for run in members], "") for step in ("60", "end")]
        kept = [_range([run.kept(figure) for run in members], "") for figure in ("recall", "rank")]
        cells = [name, "yes" if norm else "no", str(len(members)), *drifts, *left, *kept]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _range(values: Sequence[float], sign: str = "+") -> str:
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return "-"
    low, high = (f"{value:{sign}.2f}" for value in (min(finite), max(finite)))
    return low if low == high else f"{low} to {high}"


def write_csv(found: Sequence[tuple[Any, Mapping[str, Any]]], path: Path) -> None:
    """One line a run."""
    rows = []
    for setting, result in found:
        run = Outcome(setting, result)
        row = {**vars(setting), "seconds": result["seconds"]}
        for step in ("0", *EARLY, "end"):
            row |= {f"{name}_{step}": value for name, value in result[step].items()}
        for name in ("recall", "rank"):
            row |= {f"held_out_{name}_{when}": result[when][name] for when in ("before", "after")}
        row |= {name.replace(" ", "_"): true(run) for name, true in OUTCOMES.items()}
        rows.append(row | {f"alarm_{step}": run.alarm(step) for step in EARLY})
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def picture(found: Sequence[tuple[Any, Mapping[str, Any]]], path: Path) -> None:
    """Drift, and spread left, after 60 steps against the spread that is left at the end."""
    judging = [pair for pair in found if pair[0].data != CHOSEN_ON and pair[0].steps <= SHORT]
    runs = [Outcome(*pair) for pair in judging]
    kinds = {
        "broken": ("loss whose optimum is a point", "cross", "bad"),
        "rate": ("rate x 20", "diamond", "s1"),
        "directions": ("others that see directions only", "circle", "s0"),
        "more": ("others: VICReg, Barlow Twins", "square", "s2"),
    }
    across, up = area(400.0, 300.0, y_label=True)
    y = Scale.around([_shown(run.left("end")) for run in runs], *up, log=True)
    drifts = Scale.around([-_EDGE, _EDGE], *across)
    shares = Scale.around([_shown(run.left("60")) for run in runs], *across, log=True)
    plots = []
    for norm, words in ((True, "batch norm"), (False, "no batch norm")):
        own = [run for run in runs if run.setting.batch_norm == norm]
        for label, x, value, alarm in (
            ("direction drift after 60 steps", drifts, _edged, DRIFT_ALARM),
            ("share of the spread left after 60 steps", shares, _left_at_60, GONE),
        ):
            axes = Axes(x, y)
            marks = [*axes.frame(label, "share of the spread left at the end")]
            marks.append(axes.upright(alarm, "soft", (6, 4)))
            for cause, (_, kind, colour) in kinds.items():
                mine = [r for r in own if _cause(r) == cause]
                places = axes.places(
                    [value(r) for r in mine], [_shown(r.left("end")) for r in mine]
                )
                marks.append(Points(places, kind, colour, size=0.9, opacity=0.6))
            plots.append(Chart(f"{words}: {label}", label, marks, 400.0, 300.0))
    legend = [
        Entry(name, (Points(((15, 7),), kind, colour),)) for name, kind, colour in kinds.values()
    ]
    title = "Drift says why, the spread whether: after 60 of 250 steps, and at the end"
    save(panels(title, plots, columns=2, legend=legend), path)


_EDGE = 2.0  # drifts beyond it stand at the edge of the picture


def _cause(run: Outcome) -> str:
    if run.broken or run.setting.rate > 1:
        return "broken" if run.broken else "rate"
    return "directions" if _sees_directions(run.setting) else "more"


def _edged(run: Outcome) -> float:
    return min(max(_or_worst(run.seen("60", "drift")), -_EDGE), _EDGE)


def _left_at_60(run: Outcome) -> float:
    return _shown(run.left("60"))


def _shown(share: float) -> float:
    """Above 0, for a logarithmic axis."""
    return max(share, 1e-4)
