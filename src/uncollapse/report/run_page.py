"""The page of one run, or of several side by side: verdicts, curves, maps, neighbours, config."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from uncollapse.charts import scatter
from uncollapse.charts.numbers import percent
from uncollapse.report.config_tables import config_content, config_differences
from uncollapse.report.health_tables import (
    class_figures,
    class_table,
    distance_chart,
    verdict_content,
)
from uncollapse.report.neighbours import sheet_picture, word_lists
from uncollapse.report.page import Page
from uncollapse.report.projection import project, projection_name
from uncollapse.report.race_charts import race_chart, race_table
from uncollapse.report.run_curves import curve_charts, event_table, numbered_events
from uncollapse.report.run_view import RunView
from uncollapse.report.snapshot import Snapshot
from uncollapse.report.tables import Cell, Table, shown
from uncollapse.report.verdict_texts import verdict_cell, verdict_text
from uncollapse.training.assemble import run_settings

__all__ = ["make_run_page", "run_content", "run_figures"]

_FOLDS = "verification accuracy"
_PAIRS = {
    _FOLDS: "fold_accuracy",
    "best verification accuracy": "accuracy",
    "EER": "eer",
    "TAR at FAR 1e-2": "tar@0.01",
    "TAR at FAR 1e-3": "tar@0.001",
}


def make_run_page(views: Sequence[RunView]) -> Page:
    """The page, to render, to add to or to save."""
    return Page("run.html.j2", run_content(views))


def run_content(views: Sequence[RunView]) -> dict[str, Any]:
    """What the template shows; `several` tells a page that compares runs from that of one."""
    first, several = views[0], len(views) > 1
    data = ", ".join(dict.fromkeys(view.run.config.data.name for view in views))
    histories = {view.name: view.history for view in views}
    events = numbered_events(list(histories.values()))
    configs = {view.name: view.run.config for view in views}
    return {
        "title": f"{len(views)} runs" if several else f"Run {first.name}",
        "lead": data if several else f"{data}; {first.status}",
        "several": several,
        "warnings": _warnings(views),
        "verdict": _verdicts(views) if several else _verdict(first),
        "below": [f"{v.name}: {s}" if several else s for v in views for s in v.ends_below],
        "skipped": [line for view in views for line in _skipped(view, several)],
        "curves": curve_charts(histories, events),
        "events": event_table(histories, events),
        "races": [shown for view in views for shown in _races(view, several)],
        "maps": [_maps(view) for view in views],
        "classes": [_classes(view, several) for view in views if _drawable(view)],
        "neighbours": _neighbours(views),
        "config": config_differences(configs) if several else config_content(first.run.config),
        "made": _made(views),
        "made_pairs": {} if several else _made_pairs(first),
    }


def run_figures(view: RunView) -> dict[str, object]:
    """The few numbers that say how a run went, by name; only those that are known."""
    figures: dict[str, object] = {}
    k = min(view.run.config.evaluate.ks)
    scores = {f"recall@{k}": f"R@{k}", f"fine/recall@{k}": f"R@{k} by fine labels"}
    for key, name in (scores | {"mAP": "mAP", "mINP": "mINP"}).items():  # the last of re-ID
        value, start = view.history.last(f"{view.split}/{key}"), f"{view.split}/{key}"
        if value is None:
            continue
        figures[f"{name} on {view.split}"] = percent(value)
        if start in view.start_scores:
            figures[f"{name} on {view.split}, before training"] = percent(view.start_scores[start])
    figures |= _pair_figures(view)
    health = view.health
    if health is None:
        return figures
    figures["diameter"] = health.diameter
    if health.relative_diameter is not None:
        figures["diameter, of its start"] = percent(health.relative_diameter)
    figures |= class_figures(health)
    modes = view.snapshot.modes if isinstance(view.snapshot, Snapshot) else ()
    for name, rate in zip(("start", "end"), modes, strict=False):
        if rate is not None:
            figures[f"mode drift at the {name}"] = f"{rate:+.2f}"
    return figures


def _pair_figures(view: RunView) -> dict[str, object]:
    """Of pairs that were verified: accuracy with its standard error, EER, TAR at FAR."""
    last = view.history.last
    of = f"{view.split}/verification"
    known = {name: last(f"{of}/{key}") for name, key in _PAIRS.items()}
    figures: dict[str, object] = {k: percent(v) for k, v in known.items() if v is not None}
    error = last(f"{of}/fold_standard_error")
    if error is not None and _FOLDS in figures:
        figures[_FOLDS] = f"{figures[_FOLDS]} ± {100 * error:.1f}"
    return {f"{name} on {view.split}": value for name, value in figures.items()}


def _warnings(views: Sequence[RunView]) -> list[str]:
    several = len(views) > 1
    return [f"{v.name}: {text}" if several else text for v in views for text in v.warnings]


def _verdict(view: RunView) -> dict[str, Any]:
    found = view.snapshot
    if isinstance(found, Snapshot):
        judged = verdict_content(found.health, run_settings(view.run.config))
        figures = {"figures": run_figures(view), "step": f"{found.step:,}"}
        return judged | figures | {"sampled": found.sampled, "missing": ""}
    text = verdict_text(view.verdict)._asdict()
    return text | {"missing": found, "logged": view.verdict is not None}


def _verdicts(views: Sequence[RunView]) -> dict[str, Any]:
    healthy = sum(view.verdict == "healthy" for view in views)
    tone = "good" if healthy == len(views) else "bad" if healthy == 0 else "warn"
    figures = [run_figures(view) for view in views]
    names = list(dict.fromkeys(name for one in figures for name in one))
    # A column per run: pages have room for few runs and many figures, not the other way round.
    rows: list[list[object]] = [
        ["verdict", *(verdict_cell(view.verdict) for view in views)],
        ["why", *(v.health.reasons[0] if v.health else str(v.snapshot) for v in views)],
        ["status", *(view.status for view in views)],
        *([name, *(shown(one.get(name)) for one in figures)] for name in names),
    ]
    return {
        "headline": f"{healthy} of {len(views)} runs healthy",
        "tone": tone,
        "glyph": "✓" if tone == "good" else "✗",
        "table": Table(["", *(view.name for view in views)], rows),
    }


def _skipped(view: RunView, several: bool) -> list[str]:
    """What was left out of each split, as the run's summary has it."""
    lines = []
    for split, kinds in view.summary.get("skipped", {}).items():
        said = []
        for kind, found in kinds.items():
            more = ", ..." if found["count"] > len(found["first"]) else ""
            said.append(f"{found['count']:,} {kind} ({', '.join(found['first'])}{more})")
        of = f"{view.name}, {split}" if several else split
        lines.append(f"Left out of {of}: {'; '.join(said)}.")
    return lines


def _races(view: RunView, several: bool) -> list[dict[str, Any]]:
    """The races of a run's rescues: a chart and a table for each."""
    of = f"{view.name}: race" if several else "Race"
    return [
        {
            "chart": race_chart(race, f"{of} at step {step:,}"),
            "table": race_table(race),
            "chosen": race.chosen,
        }
        for step, race in view.history.races
    ]


def _drawable(view: RunView) -> bool:
    return isinstance(view.snapshot, Snapshot) and view.snapshot.finite


def _maps(view: RunView) -> dict[str, Any]:
    found = view.snapshot
    if isinstance(found, str) or not found.finite:
        missing = found if isinstance(found, str) else "The embedding is not finite."
        return {"name": view.name, "charts": [], "missing": missing}
    small = projection_name(found.after.shape[1])
    both = {"Before": found.before, "After": found.after}
    charts = [scatter(title, project(z), found.finest, note=small) for title, z in both.items()]
    return {"name": view.name, "charts": charts, "missing": ""}


def _classes(view: RunView, several: bool) -> dict[str, Any]:
    assert view.health is not None  # drawable
    name = f"{view.name}: d" if several else "D"
    return {
        "title": f"{name}iameters of the classes",
        "chart": distance_chart(view.health, f"{name}istances after training"),
        "table": class_table(view.health, first=8),
    }


def _neighbours(views: Sequence[RunView]) -> dict[str, Any]:
    sheets, lists, missing = [], [], []
    for view in views:
        found = view.snapshot
        if not isinstance(found, Snapshot) or not found.finite:
            missing.append(f"{view.name}: no embedding to search in.")
            continue
        kind = "label" if found.fine_labels is None else "fine label"
        named = {"kind": kind, "title": view.name if len(views) > 1 else ""}
        if found.neighbours is not None and found.pictures is not None:
            sheets.append(sheet_picture(found.neighbours, found.pictures, **named))
        elif found.neighbours is not None and found.texts is not None:
            lists.append(word_lists(found.neighbours, found.texts, found.finest, **named))
        else:
            missing.append(f"{view.name}: the samples of {found.facts.data} are not pictures.")
    return {"sheets": sheets, "lists": lists, "missing": missing, "judged": True}


def _made(views: Sequence[RunView]) -> Table:
    rows = []
    for view in views:
        path = Cell(view.run.path, style="code")
        rows.append([view.name, path, view.run.config.seed, _versions(view)])
    return Table(["run", "directory", "seed", "versions"], rows)


def _made_pairs(view: RunView) -> dict[str, str]:
    made = {"directory": str(view.run.path), "seed": str(view.run.config.seed)}
    return made | {"versions": _versions(view)}


def _versions(view: RunView) -> str:
    versions = view.summary.get("versions", {})
    return ", ".join(f"{name} {version}" for name, version in versions.items()) or "–"
