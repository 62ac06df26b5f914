"""The report of one run, or of several side by side: one page from their run directories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from uncollapse._check import InputError
from uncollapse.health import Health
from uncollapse.report.blocks import figures, grid, note, paragraph, table, unfold
from uncollapse.report.charts import scatter
from uncollapse.report.config_table import config_differences, config_table
from uncollapse.report.diagnosis_page import class_table, distance_chart, verdict_body
from uncollapse.report.history import History, read_history
from uncollapse.report.markup import Html, esc, join, percent
from uncollapse.report.neighbours import neighbour_pictures, neighbourhood, picture_key
from uncollapse.report.page import Page
from uncollapse.report.project import project, projection_name
from uncollapse.report.run_curves import curve_grid, event_table, numbered_events
from uncollapse.report.snapshot import Snapshot, take_snapshot
from uncollapse.report.words import badge, verdict_words
from uncollapse.training import Run

__all__ = ["run_report", "write_report"]


def run_report(
    runs: Sequence[Run | str | Path], path: str | Path, *, rows: int = 1500, seed: int = 0
) -> Path:
    """Write one page about the runs: verdicts, curves, config, maps before and after, pictures.

    Verdicts, maps and pictures come from at most `rows` samples of each run's first evaluation
    split, embedded again; where the data or the checkpoint is not there, a sentence says so.
    """
    found = [run if isinstance(run, Run) else Run.open(run) for run in runs]
    opened = list({run.path.resolve(): run for run in found}.values())  # one that is named twice
    if not opened:
        raise InputError("runs", "none", "at least one run directory")
    views = [_View(name, run, rows, seed) for name, run in zip(_names(opened), opened, strict=True)]
    return _page(views).save(path)


def write_report(run: Run | str | Path) -> Path:
    """Write `report.html` into a run's own directory."""
    found = run if isinstance(run, Run) else Run.open(run)
    return run_report([found], found.path / "report.html")


@dataclass(frozen=True, eq=False)
class _View:
    """A run, with what is read from it only once."""

    name: str
    run: Run
    rows: int
    seed: int

    @cached_property
    def history(self) -> History:
        return read_history(self.run)

    @cached_property
    def snapshot(self) -> Snapshot | str:
        return take_snapshot(
            self.run, self.run.config.data.eval_splits[0], rows=self.rows, seed=self.seed
        )

    @property
    def health(self) -> Health | None:
        return self.snapshot.health if isinstance(self.snapshot, Snapshot) else None

    @property
    def verdict(self) -> str | None:
        """Of the embedding now; where that is not to be had, the last one logged."""
        return self.history.verdict if self.health is None else self.health.verdict

    @property
    def recall(self) -> float | None:
        key = f"{self.run.config.data.eval_splits[0]}/recall@{min(self.run.config.evaluate.ks)}"
        return self.history.last(key)

    @property
    def status(self) -> str:
        summary = self.run.summary
        if summary:
            return f"{summary['status']} at step {summary['step']:,}"
        steps = self.run.checkpoints.steps()
        return f"not ended, saved at step {steps[-1]:,}" if steps else "not ended"


def _page(views: list[_View]) -> Page:
    first, several = views[0], len(views) > 1
    title = f"{len(views)} runs" if several else f"Run {first.name}"
    data = dict.fromkeys(view.run.config.data.name for view in views)
    page = Page(title, ", ".join(data) + ("" if several else f"; {first.status}"))
    if several:
        _add_verdicts(page, views)
    else:
        _add_verdict(page, first)
    events = numbered_events([view.history for view in views])
    named = {view.name: view.history for view in views}
    page.add("Curves", Html(curve_grid(named, events) + event_table(named, events)))
    page.add("Maps before and after training", _maps(views), anchor="maps")
    page.add("Distances and classes", _distances(views), anchor="classes")
    page.add("Nearest neighbours", _pictures(views), anchor="neighbours")
    configs = {view.name: view.run.config for view in views}
    page.add("Config", config_differences(configs) if several else config_table(first.run.config))
    page.add("How this was made", _made(views), anchor="made")
    return page


def _add_verdict(page: Page, view: _View) -> None:
    words = verdict_words(view.verdict)
    if isinstance(view.snapshot, Snapshot):
        body = Html(
            verdict_body(view.snapshot.health)
            + figures(_summary(view))
            + note(f"Measured on {view.snapshot.sampled}; the reference is the untrained network.")
        )
    else:
        logged = "This is the last verdict that was logged." if view.verdict else ""
        body = Html(paragraph(view.snapshot) + (note(logged) if logged else ""))
    page.add(words.headline, body, anchor="verdict", tone=words.tone, glyph=words.glyph)


def _add_verdicts(page: Page, views: list[_View]) -> None:
    healthy = sum(view.verdict == "healthy" for view in views)
    tone = "good" if healthy == len(views) else "bad" if healthy == 0 else "warn"
    names = list(dict.fromkeys(key for view in views for key in _summary(view)))
    rows = []
    for view in views:
        values = _summary(view)
        rows.append(
            [view.name, badge(view.verdict), view.status, *(values.get(n, "–") for n in names)]
        )
    reasons = [[v.name, v.health.reasons[0] if v.health else str(v.snapshot)] for v in views]
    body = table(["run", "verdict", "status", *names], rows) + table(["run", "why"], reasons)
    page.add(
        f"{healthy} of {len(views)} runs healthy",
        Html(body),
        anchor="verdict",
        tone=tone,
        glyph="✓" if tone == "good" else "✗",
    )


def _summary(view: _View) -> dict[str, object]:
    shown: dict[str, object] = {}
    if view.recall is not None:
        shown[f"R@{min(view.run.config.evaluate.ks)}"] = percent(view.recall)
    health = view.health
    if health is None:
        return shown
    shown["diameter"] = health.diameter
    if health.relative_diameter is not None:
        shown["diameter, of its start"] = percent(health.relative_diameter)
    ratios = [one.ratio for one in health.classes if one.count > 1]
    if ratios:
        shown["median class diameter, of the whole"] = percent(float(np.median(ratios)))
    modes = list(health.modes_per_class.values())
    if modes:
        shown["modes per class, mean"] = float(np.mean(modes))
    return shown


def _maps(views: list[_View]) -> Html:
    parts: list[Html] = []
    for view in views:
        found = view.snapshot
        if len(views) > 1:
            parts.append(Html(f"<h3>{esc(view.name)}</h3>"))
        if isinstance(found, str) or not found.finite:
            parts.append(note(found if isinstance(found, str) else "The embedding is not finite."))
            continue
        small = projection_name(found.after.shape[1])
        both = (("Before", found.before), ("After", found.after))
        parts.append(
            grid((scatter(t, project(z), found.finest, small=small) for t, z in both), wide=True)
        )
    return join(parts)


def _distances(views: list[_View]) -> Html:
    charts, tables = [], []
    for view in views:
        if isinstance(view.snapshot, Snapshot) and view.snapshot.finite:
            health, name = view.snapshot.health, f"{view.name}: d" if len(views) > 1 else "D"
            charts.append(distance_chart(health, f"{name}istances after training"))
            tables.append(unfold(f"{name}iameters of the classes", class_table(health)))
    return Html(grid(charts) + join(tables))


def _pictures(views: list[_View]) -> Html:
    parts, others = [], []
    key = Html("")
    for view in views:
        found = view.snapshot
        if not isinstance(found, Snapshot) or not found.finite:
            others.append(note(f"{view.name}: no embedding to search in."))
        elif len(found.data.shape) != 3:
            others.append(note(f"{view.name}: the samples of {found.data.name} are not pictures."))
        else:
            near = neighbourhood(found.after, found.finest, seed=view.seed)
            key = picture_key(near)
            kind = "label" if found.fine_labels is None else "fine label"
            pixels = found.data.pixels()
            title = view.name if len(views) > 1 else ""
            parts.append(neighbour_pictures(near, pixels, kind=kind, title=title))
    return Html(key + grid(parts, wide=True) + join(others))


def _made(views: list[_View]) -> Html:
    rows = []
    for view in views:
        summary = view.run.summary
        versions = summary.get("versions", {})
        rows.append(
            [
                view.name,
                Html(f"<code>{esc(view.run.path)}</code>"),
                view.run.config.seed,
                ", ".join(f"{k} {v}" for k, v in versions.items()) or "–",
            ]
        )
    return table(["run", "directory", "seed", "versions"], rows)


def _names(runs: list[Run]) -> list[str]:
    """Directory names, with the folder above where two are alike."""
    short = [run.path.resolve().name for run in runs]
    if len(set(short)) == len(short):
        return short
    long = ["/".join(run.path.resolve().parts[-2:]) for run in runs]
    return long if len(set(long)) == len(long) else [str(run.path) for run in runs]
