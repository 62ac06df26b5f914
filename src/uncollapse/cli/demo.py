"""`uncollapse demo`: a network collapses and is rescued, classes collapse and are cured."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uncollapse.cli.demo_acts import ACTS, Act, Part
from uncollapse.cli.demo_rows import RunRows, verdict_style, wrapped
from uncollapse.cli.plain_lines import say

if TYPE_CHECKING:
    from rich.console import Console

    from uncollapse._base.table import Table
    from uncollapse.report.demo_page import Story
    from uncollapse.training import Config, Run

__all__ = ["command"]

_PAGE = "demo.html"


def command(
    out: Annotated[Path, typer.Option(help="Folder for the runs and the page.")] = Path("out/demo"),
    seed: Annotated[int, typer.Option(help="Random seed.", min=0)] = 0,
    steps: Annotated[
        int | None,
        typer.Option(help="At most so many training steps per run, for a shorter look.", min=1),
    ] = None,
) -> None:
    """Watch an embedding collapse and be rescued: four short runs, about a minute, one page."""
    from rich.console import Console

    from uncollapse.report.demo_page import make_demo_page

    console = Console(highlight=False)
    plans = {act: {p: act.config(p, seed, steps) for p in act.parts} for act in ACTS}
    page = out / _PAGE
    _make_room(out, plans)
    stories = []
    for number, (act, configs) in enumerate(plans.items(), 1):
        stories.append(_play(console, number, act, configs, out))
        say(console, "")
        console.print(_table(act, stories[-1]))
        say(console, "R@1 by letter; diameter: of the embedded letters, as a share of its start")
    make_demo_page(stories, seed).save(page)
    say(console, f"\nThe same with pictures, to keep or to send: {page}")


def _play(
    console: Console, number: int, act: Act, configs: Mapping[Part, Config], out: Path
) -> Story:
    """The runs of an act, one after the other, shown as they happen."""
    from uncollapse._base.progress import LiveTable, quiet_console
    from uncollapse.cli.errors import INTERRUPTED
    from uncollapse.report.demo_page import Story
    from uncollapse.training import train

    console.print(f"\n[bold]Act {number}: {act.title}[/bold]")
    for line in wrapped(act.text):
        say(console, line)
    runs = {}
    for part, config in configs.items():
        console.print(f"\n[bold]{part.name}[/bold]: {part.line}")
        with LiveTable(console) as table:
            rows = RunRows(table, act, out / part.folder, config.train.steps)
            run = train(config, out / part.folder, console=quiet_console(), watch=rows.watch)
        if run.summary["status"] == "interrupted":
            say(console, "interrupted: no page was written")
            raise typer.Exit(INTERRUPTED)
        runs[part.name] = run
        told = Story(act.title, act.text, act.score, runs)
        rows.ended(told.ends[part.name].health)
    return Story(act.title, act.text, act.score, runs)


def _table(act: Act, story: Story) -> Table:
    from uncollapse._base.table import Cell, Table

    heads = ["run", "R@1 untrained", "R@1 trained", "diameter", "verdict"]
    table = Table(heads, title=f"{act.title}: 48 letters never trained on")
    for name, end in story.ends.items():
        verdict, size = end.health.verdict, end.health.relative_diameter
        shown = "-" if size is None else f"{size:.1%}"
        figures_of = f"{end.before:.1%}", f"{end.after:.1%}", shown
        table.add(name, *figures_of, Cell(verdict, style=verdict_style(verdict)))
    return table


def _make_room(out: Path, plans: Mapping[Act, Mapping[Part, Config]]) -> None:
    """Remove what an earlier demo left; anything else in its place is refused, before any work."""
    from uncollapse._base.check import InputError
    from uncollapse.training import Run

    allowed = "a new folder, or one that an earlier demo wrote"
    configs = {out / p.folder: c for configs in plans.values() for p, c in configs.items()}
    old = [folder for folder in configs if folder.exists()]
    for folder in old:
        if not _is_ours(Run(folder), configs[folder]):
            raise InputError("--out", f"{folder}, which is not of a demo", allowed)
    page = out / _PAGE
    if page.exists() and "Made by uncollapse" not in page.read_text("utf-8", errors="replace"):
        raise InputError("--out", f"{page}, which is not of a demo", allowed)
    page.unlink(missing_ok=True)
    for folder in old:
        shutil.rmtree(folder)


def _is_ours(run: Run, config: Config) -> bool:
    """Whether a folder holds this run of the demo, of whatever seed and length, or nothing."""
    if not run.config_file.is_file():
        return not any(run.path.iterdir()) if run.path.is_dir() else False
    kept = {"seed", "train"}
    return run.config.model_dump(exclude=kept) == config.model_dump(exclude=kept)
