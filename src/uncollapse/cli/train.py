"""`uncollapse train` and `uncollapse evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uncollapse._base.plain_text import visible
from uncollapse.cli.embed import TrustOption
from uncollapse.cli.plain_lines import say

if TYPE_CHECKING:
    from rich.console import Console

    from uncollapse.training import Run

__all__ = ["evaluate_command", "train_command"]


def train_command(
    config: Annotated[Path, typer.Argument(help="The run as a TOML file.")],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a key: mining.positives=easy."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run directory.  [default: runs/NAME of the file]")
    ] = None,
    data_root: Annotated[
        Path | None, typer.Option(help="Where the dataset is (data.root).")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint in the directory.")
    ] = False,
    trust: TrustOption = False,
) -> None:
    """Train an embedding into a run directory; Ctrl-C saves (exit code 130), --resume goes on.

    Large runs: torchrun --nproc-per-node N -m uncollapse train ... gives the same run on N ranks.
    """
    from rich.console import Console

    from uncollapse.cli.errors import INTERRUPTED, warn
    from uncollapse.report import write_report
    from uncollapse.training import TrainingError, load_config
    from uncollapse.training import train as run_training
    from uncollapse.training.distributed import FirstRankError, is_first
    from uncollapse.training.trust import check_trusted

    settings = load_config(config, changes or []).with_root(data_root)
    # The config of a run folder, though it was typed here, is the run's.
    check_trusted(config.parent, settings, trust=trust)
    try:
        run = run_training(settings, out or Path("runs") / config.stem, resume=resume)
    except (FirstRankError, TrainingError):
        if is_first():
            raise
        raise typer.Exit(1) from None  # rank 0 says it
    if is_first():
        console = Console()
        _show(run, console)
        say(console, f"report: {write_report(run, warn=warn)}")
    if run.summary["status"] == "interrupted":
        raise typer.Exit(INTERRUPTED)


def evaluate_command(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    split: Annotated[
        list[str] | None, typer.Option(help="Splits to evaluate.  [default: the config's]")
    ] = None,
    data_root: Annotated[Path | None, typer.Option(help="Where the dataset is.")] = None,
    best: Annotated[bool, typer.Option("--best", help="Use the best checkpoint.")] = False,
    clustering: Annotated[bool, typer.Option("--clustering", help="NMI as well.")] = False,
    multiplier: Annotated[
        int, typer.Option(help="Clusters per class: NMI+ of the EPS paper is 10.", min=1)
    ] = 1,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure", help="Take the measures that a report reads, where the run has none."
        ),
    ] = False,
    trust: TrustOption = False,
) -> None:
    """Judge a trained run on any split, by coarse and fine labels."""
    from rich.console import Console

    from uncollapse import training
    from uncollapse.cli.errors import warn
    from uncollapse.cli.network_choice import choose, said
    from uncollapse.cli.skipped_files import tell_skipped
    from uncollapse.training.assemble import load_eval_data

    found = training.Run.open(run, trust=trust)
    console = Console()
    if measure:
        with console.status("measuring the network before and after training"):
            training.measure_run(found, data_root=data_root, warn=warn)
    config = found.config.with_root(data_root)
    wanted = {"clustering": clustering or multiplier > 1, "multiplier": multiplier}
    settings = config.evaluate.model_copy(update=wanted)
    chosen = choose(found, best)
    scores: dict[str, float] = {}
    for name in split or config.data.eval_splits:
        data = load_eval_data(config, name)
        tell_skipped(data, name)
        with console.status(f"embedding {len(data):,} samples of {name}"):
            z = training.embed(chosen.model, data, batch=settings.batch)
            result = training.evaluate(z, data, settings)
        scores |= {f"{name}/{key}": value for key, value in result.items()}
    console.print(_table(scores))
    say(console, f"{said(chosen)}: {found.path}")


def _show(run: Run, console: Console) -> None:
    summary = run.summary
    scores = {k: v for k, v in summary["metrics"].items() if "/" in k}
    console.print(_table(scores))
    said = f"{summary['status']} at step {summary['step']}: {run.path}"
    say(console, said)


def _table(scores: dict[str, float]) -> object:
    """Rows are split and kind of label, columns the metrics."""
    from rich.markup import escape
    from rich.table import Table

    rows: dict[str, dict[str, float]] = {}
    for key, value in scores.items():
        group, _, metric = key.rpartition("/")
        rows.setdefault(group, {})[metric] = value
    metrics = list(dict.fromkeys(m for row in rows.values() for m in row))
    table = Table("split", *metrics)
    for group, row in rows.items():
        table.add_row(
            escape(visible(group)), *(f"{100 * row[m]:.2f}" if m in row else "" for m in metrics)
        )
    return table
