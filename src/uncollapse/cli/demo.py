"""`uncollapse demo`: class collapse and its cure on real digits, EPS §5.1, in a few minutes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from uncollapse.cli.plain_lines import say

if TYPE_CHECKING:
    from rich.table import Table

    from uncollapse.health import Health
    from uncollapse.training import Run

__all__ = ["command"]

# EPS §5.1: digits 0-5 by odd and even. Its plane shows an untrained network nothing to lose; eight
# dimensions do. The margin is one that random positives can only meet by merging digits.
_RUN: dict[str, Any] = {
    "data": {"name": "mnist-parity", "eval_splits": ["val", "test"]},
    "model": {"backbone": "mlp", "dim": 8},
    "batch": {"p": 2, "k": 60},
    "loss": {"name": "triplet", "margin": 1.0},
    "optimiser": {"lr": 1e-3},
    "evaluate": {"ks": [1, 5, 10], "max_samples": 2000},
    "guard": {"action": "warn"},
}
_METHODS = {"regular triplet": "random", "easy positives": "easy"}
_TITLE = "Class collapse and its cure"
_TEXT = """Both networks were trained on the digits 0 to 5 with no label but odd or even, by the
same triplet loss with the same semi-hard negatives. They differ in the positive alone: any sample
of the anchor's class, or the nearest one. The first pulls all digits of a class to one place; the
second lets each digit keep its own, though it was never told which digit is which."""


def command(
    out: Annotated[Path, typer.Option(help="Folder for the runs and the page.")] = Path("out/demo"),
    steps: Annotated[int, typer.Option(help="Training steps of each run.", min=1)] = 600,
    seed: Annotated[int, typer.Option(help="Random seed.", min=0)] = 0,
) -> None:
    """See class collapse and its cure: trains two networks and compares them."""
    from rich.console import Console

    from uncollapse.report import compare
    from uncollapse.training import parse_config, train

    console = Console()
    console.print(
        "Training two networks on odd and even digits: one with regular positives, one with easy "
        "positives (EPS §5.1)."
    )
    runs = {}
    for name, positives in _METHODS.items():
        folder = out / name.replace(" ", "-")
        shutil.rmtree(folder, ignore_errors=True)
        length = {"steps": steps, "evaluate_every": steps, "checkpoint_every": steps}
        config = parse_config(
            _RUN
            | {"seed": seed, "train": length}
            | {"mining": {"positives": positives, "negatives": "semihard"}}
        )
        runs[name] = train(config, folder)
        health = _health(runs[name])
        told = health.reasons[0 if health.verdict == "class-collapse" else -1]
        console.print(f"  {name}: {health.verdict}: {told}", highlight=False)
    found = compare(runs)
    console.print(_table(found.numbers()))
    page = found.page(_TITLE, _TEXT).save(out / "report.html")
    say(console, f"The same with pictures: {page}")


def _health(run: Run) -> Health:
    """Of the digits that were trained on, as images that were not."""
    from uncollapse.training import NotMeasuredError

    measures = run.measures()
    if measures.after is None:
        raise NotMeasuredError(run.path, "measures after training: it has not ended")
    return measures.after.splits[measures.split].health


def _table(rows: list[dict[str, Any]]) -> Table:
    from rich.table import Table

    digits = {"val": "0-5", "test": "6-9 (new)"}
    table = Table(
        title="No label but odd or even was used in training",
        caption="start, end: how often the nearest image of its class shows the same digit, before "
        "and after training, on images that were not trained on",
    )
    for name in ("method", "digits", "verdict"):
        table.add_column(name, no_wrap=True)
    for name in ("start", "end", "R@1 digit", "R@1 parity"):
        table.add_column(name, justify="right")
    for row in rows:
        shares = (row[key] for key in ("fine_start", "fine_end", "fine/recall@1", "recall@1"))
        texts = (_number(share, ".0%") for share in shares)
        table.add_row(row["run"], digits[row["split"]], row["verdict"] or "-", *texts)
    return table


def _number(value: float, form: str) -> str:
    return "-" if value != value else format(value, form)  # NaN: not known
