"""`uncollapse forecast --race`: the race on the terminal, and the better config."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uncollapse.cli.plain_lines import say

if TYPE_CHECKING:
    from rich.console import Console

    from uncollapse._base.table import Table
    from uncollapse.training import Config
    from uncollapse.training.races import RaceResult

__all__ = ["check_race", "race_strategies", "tell_winner"]

_RECALL = "R@1 train"
_COLOURS = {"wins": "green", "shrinks": "red"}


def check_race(config: Path, settings: Config, steps: int | None) -> None:
    """Raise where there is no room for the race or its result, before anything is computed."""
    from uncollapse.training.config import better_path
    from uncollapse.training.races import race_budget

    better_path(config)
    race_budget(settings, steps)


def race_strategies(settings: Config, steps: int | None, console: Console) -> RaceResult:
    """Run the race and print its table."""
    from uncollapse._base.progress import progress_reporter
    from uncollapse.training.races import race_run

    with progress_reporter(True, "racing") as report:
        found = race_run(settings, steps=steps, progress=report)
    console.print(_table(found))
    console.print(
        f"{_RECALL}: of {found.race.rows} training samples, kept out of the batches where there "
        f"are enough; untrained {found.start:.1%}. left: their scale, over that of the untrained "
        f"network. The race cost {found.race.spent:.0f} training steps.",
        highlight=False,
    )
    return found


def tell_winner(
    found: RaceResult,
    config: Path,
    overrides: Sequence[str],
    data_root: Path | None,
    console: Console,
) -> None:
    """Write the config of the winner, and say what it changes and how to train it."""
    from uncollapse.training.config import save_better_config

    if not found.changes:
        console.print(f"[bold]{found.own} wins[/bold]: {config.name} can stay as it is")
        return
    console.print(f"[bold]{found.winner} beats {found.own}[/bold]", highlight=False)
    for key, value in found.changes.items():
        was = getattr(found.own, key.rpartition(".")[2])
        say(console, f"  {key} = {_toml(value)}  (was {_toml(was)})")
    better = save_better_config(config, found.changes, overrides)
    say(console, f"wrote {better}")
    words = ["uncollapse", "train", str(better), "--out", f"runs/{better.stem}"]
    words += [] if data_root is None else ["--data-root", str(data_root)]
    say(console, f"train it: {shlex.join(words)}", whole=True)


def _table(found: RaceResult) -> Table:
    from uncollapse._base.table import Cell, Table

    table = Table(
        ["strategy", "drift", "steps", _RECALL, "left", "result"],
        title=f"race from the untrained network, best first; own: {found.own}",
    )
    for one in found.by_place:
        table.add(
            str(one.strategy),
            f"{round(one.drift, 3) + 0.0:+.3f}",  # no -0.000
            "–" if one.steps is None else str(one.steps),
            "–" if one.recall is None else f"{one.recall:.1%}",
            "–" if one.scale is None else f"{one.scale:.2g}",
            Cell(one.result, style=_COLOURS.get(one.result, "")),
        )
    return table


def _toml(value: Any) -> str:
    return json.dumps(value)
