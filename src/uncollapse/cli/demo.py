"""`uncollapse demo`: class collapse and its cure on real digits, EPS §5.1, in a few minutes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from uncollapse.cli.plain_lines import say

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["command"]

# EPS §5.1 and appendix C: digits 0-5 by odd and even, two dimensions, a shallow network.
_RUN: dict[str, Any] = {
    "data": {"name": "mnist-parity", "eval_splits": ["val", "test"]},
    "model": {"backbone": "mnist-cnn", "dim": 2},
    "batch": {"p": 2, "k": 60},
    "loss": {"name": "triplet", "margin": 0.2},
    "optimiser": {"lr": 3e-4},
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
    steps: Annotated[int, typer.Option(help="Training steps of each run.", min=1)] = 300,
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
        scores = runs[name].summary["metrics"]
        console.print(f"  {name}: R@1 by digit {scores['val/fine/recall@1']:.1%} on digits 0-5")
    found = compare(runs)
    console.print(_table(found.numbers()))
    page = found.page(_TITLE, _TEXT).save(out / "report.html")
    say(console, f"The same with pictures: {page}")


def _table(rows: list[dict[str, Any]]) -> Table:
    from rich.table import Table

    digits = {"val": "0-5 (seen)", "test": "6-9 (unseen)"}
    table = Table("method", "digits", title="No label but odd or even was used in training")
    for name in ("R@1 by digit", "R@1 odd/even", "class / whole diameter", "modes per class"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row["run"],
            digits[row["split"]],
            f"{row['fine/recall@1']:.1%}",
            f"{row['recall@1']:.1%}",
            _number(row["class_ratio"], ".2f"),
            _number(row["modes"], ".1f"),
        )
    return table


def _number(value: float, form: str) -> str:
    return "-" if value != value else format(value, form)  # NaN: not known
