"""`uncollapse demo`: a network collapses and is rescued, classes collapse and are cured."""

from __future__ import annotations

import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import uncollapse as uc
from uncollapse._base.check import InputError
from uncollapse._base.table import wrapped_for
from uncollapse.cli.printing import INTERRUPTED, say, show

_PAGE = "demo.html"
_STYLES = {"healthy": "green", "shrinking": "yellow"}
_WIDTH = 78  # columns that text takes


@dataclass(frozen=True, eq=False)
class Part:
    """A run: its name, a line about it, and its config."""

    name: str
    line: str
    sections: dict[str, Any]

    @property
    def folder(self) -> str:
        """The name of its folder in the demo's."""
        return self.name.replace(",", "").replace(" ", "-")

    def config(self, seed: int, steps: int | None = None) -> uc.Config:
        """Its config, with at most `steps` training steps."""
        full = self.sections["train"]
        length = full["steps"] if steps is None else min(full["steps"], steps)
        every = min(full["evaluate_every"], length)
        train = {
            "steps": length,
            "log_every": min(5, every),
            "evaluate_every": every,
            "checkpoint_every": length,
            "threads": 1,  # the same figures everywhere, and no slower beside other work
        }
        return uc.training.parse_config({**self.sections, "seed": seed, "train": train})


@dataclass(frozen=True, eq=False)
class Act:
    """Runs that differ in one thing; `score` is the R@1 that they are judged by."""

    title: str
    text: str
    score: str
    parts: tuple[Part, ...]


_FILE = Path(__file__).with_name("demo.toml")
ACTS = tuple(
    Act(
        act["title"],
        act["text"],
        act["score"],
        tuple(Part(p["name"], p["line"], act["config"] | p["config"]) for p in act["parts"]),
    )
    for act in tomllib.loads(_FILE.read_text("utf-8"))["acts"]
)


def command(
    out: Annotated[Path, typer.Option(help="Folder for the runs and the page.")] = Path("out/demo"),
    seed: Annotated[int, typer.Option(help="Random seed.", min=0)] = 0,
    steps: Annotated[
        int | None,
        typer.Option(help="At most this many training steps per run, for a quick look.", min=1),
    ] = None,
) -> None:
    """Watch an embedding collapse and be rescued: four short runs, about a minute, one page."""
    from uncollapse.report.demo_page import act_table, make_demo_page

    plans = {act: {part: part.config(seed, steps) for part in act.parts} for act in ACTS}
    page = out / _PAGE
    _make_room(out, plans)
    stories = []
    for number, (act, configs) in enumerate(plans.items(), 1):
        show(f"\n[bold]Act {number}: {act.title}[/bold]")
        say(wrapped_for(_WIDTH, act.text))
        stories.append(_play(act, configs, out))
        show("", act_table(stories[-1]))
        say("of 48 letters never trained on")
    make_demo_page(stories, seed).save(page)
    say(f"\nThe same with pictures, to keep or to send: {page}")


def _play(act: Act, configs: dict[Part, uc.Config], out: Path) -> uc.report.demo_page.Story:
    """The runs of an act, one after the other, with what the guard did and the verdict."""
    from uncollapse.report.demo_page import Story

    runs = {}
    for part, config in configs.items():
        show(f"\n[bold]{part.name}[/bold]: {part.line}")
        run = uc.train(config, out / part.folder)
        if run.summary["status"] == "interrupted":
            say("interrupted: no page was written")
            raise typer.Exit(INTERRUPTED)
        runs[part.name] = run
        for line in run.metrics():
            if "event" in line:
                say(wrapped_for(_WIDTH, f"  step {line['step']}: {line['event']}"))
        health = Story(act.title, act.text, act.score, runs).ends[part.name].snapshot.health
        verdict = f"On letters never trained on: {health.verdict} ({health.reasons[0]})"
        say(wrapped_for(_WIDTH, f"  {verdict}"), style=_STYLES.get(health.verdict, "red"))
    return Story(act.title, act.text, act.score, runs)


def _make_room(out: Path, plans: dict[Act, dict[Part, uc.Config]]) -> None:
    """Remove what an earlier demo wrote; refuse anything else in its place, before any work."""
    allowed = "a new folder, or one that an earlier demo wrote"
    configs = {out / p.folder: c for configs in plans.values() for p, c in configs.items()}
    old = [folder for folder in configs if folder.exists()]
    for folder in old:
        if not _is_ours(uc.Run(folder), configs[folder]):
            raise InputError("--out", f"{folder}, which no demo wrote", allowed)
    page = out / _PAGE
    if page.exists() and "Made by uncollapse" not in page.read_text("utf-8", errors="replace"):
        raise InputError("--out", f"{page}, which no demo wrote", allowed)
    page.unlink(missing_ok=True)
    for folder in old:
        shutil.rmtree(folder)


def _is_ours(run: uc.Run, config: uc.Config) -> bool:
    """Whether a folder is empty or holds this run of the demo, whatever its seed and length."""
    if not run.config_file.is_file():
        return not any(run.path.iterdir()) if run.path.is_dir() else False
    kept = {"seed", "train"}
    return run.config.model_dump(exclude=kept) == config.model_dump(exclude=kept)
