"""The report of one run, or of several side by side: one page from their run directories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from uncollapse.report.blocks import figures, grid, note, paragraph, table, unfold
from uncollapse.report.charts import scatter
from uncollapse.report.config_table import config_differences, config_table
from uncollapse.report.diagnosis_page import class_table, distance_chart, verdict_body
from uncollapse.report.markup import Html, esc, join
from uncollapse.report.neighbours import neighbour_pictures, picture_key
from uncollapse.report.page import Page
from uncollapse.report.project import project, projection_name
from uncollapse.report.run_curves import curve_grid, event_table, numbered_events
from uncollapse.report.run_view import RunView, view_runs
from uncollapse.report.snapshot import Snapshot
from uncollapse.report.words import badge, verdict_words
from uncollapse.training import Run

__all__ = ["run_report", "write_report"]


def run_report(runs: Sequence[Run | str | Path], path: str | Path) -> Path:
    """Write one page about the runs: verdicts, curves, config, maps before and after, pictures.

    Everything is read from the run directories; neither dataset nor network is needed. Verdicts,
    maps and pictures are of each run's first evaluation split as it was measured; where it was not,
    a sentence says so.
    """
    return _page(view_runs(runs)).save(path)


def write_report(run: Run | str | Path) -> Path:
    """Write `report.html` into a run's own directory."""
    found = run if isinstance(run, Run) else Run.open(run)
    return run_report([found], found.path / "report.html")


def _page(views: list[RunView]) -> Page:
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


def _add_verdict(page: Page, view: RunView) -> None:
    words = verdict_words(view.verdict)
    if isinstance(view.snapshot, Snapshot):
        body = Html(
            verdict_body(view.snapshot.health)
            + figures(view.figures())
            + note(f"Measured on {view.snapshot.sampled}; the reference is the untrained network.")
        )
    else:
        logged = "This is the last verdict that was logged." if view.verdict else ""
        body = Html(paragraph(view.snapshot) + (note(logged) if logged else ""))
    page.add(words.headline, body, anchor="verdict", tone=words.tone, glyph=words.glyph)


def _add_verdicts(page: Page, views: list[RunView]) -> None:
    healthy = sum(view.verdict == "healthy" for view in views)
    tone = "good" if healthy == len(views) else "bad" if healthy == 0 else "warn"
    names = list(dict.fromkeys(key for view in views for key in view.figures()))
    rows = []
    for view in views:
        values = view.figures()
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


def _maps(views: list[RunView]) -> Html:
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


def _distances(views: list[RunView]) -> Html:
    charts, tables = [], []
    for view in views:
        if isinstance(view.snapshot, Snapshot) and view.snapshot.finite:
            health, name = view.snapshot.health, f"{view.name}: d" if len(views) > 1 else "D"
            charts.append(distance_chart(health, f"{name}istances after training"))
            tables.append(unfold(f"{name}iameters of the classes", class_table(health)))
    return Html(grid(charts) + join(tables))


def _pictures(views: list[RunView]) -> Html:
    parts, others = [], []
    key = Html("")
    for view in views:
        found = view.snapshot
        if not isinstance(found, Snapshot) or not found.finite:
            others.append(note(f"{view.name}: no embedding to search in."))
        elif found.neighbours is None or found.pictures is None:
            others.append(note(f"{view.name}: the samples of {found.facts.data} are no pictures."))
        else:
            near = found.neighbours
            key = picture_key(near)
            kind = "label" if found.fine_labels is None else "fine label"
            title = view.name if len(views) > 1 else ""
            parts.append(neighbour_pictures(near, found.pictures, kind=kind, title=title))
    return Html(key + grid(parts, wide=True) + join(others))


def _made(views: list[RunView]) -> Html:
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
