"""`uncollapse train`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uncollapse.cli import options
from uncollapse.cli.errors import INTERRUPTED
from uncollapse.cli.printing import say, show, split_tables, warn

if TYPE_CHECKING:
    from uncollapse.training import Run


def train_command(
    config: options.ConfigArgument,
    changes: options.SetOption = None,
    out: Annotated[
        Path | None, typer.Option(help="The run directory.  \\[default: runs/NAME of the file]")
    ] = None,
    data_root: options.DataRootOption = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the last checkpoint in the directory.")
    ] = False,
    trust: options.TrustOption = False,
) -> None:
    """Train an embedding into a run directory; Ctrl-C saves, --resume continues.

    Most runs set seed, data.name, data.root, data.eval_splits, data.size, data.augment,
    model.backbone, model.dim, model.normalize, model.weights, model.freeze, batch.p, batch.k,
    mining.positives, mining.negatives, loss.name, loss.margin, guard.action, optimizer.name,
    optimizer.lr, optimizer.schedule, evaluate.ks, train.steps, train.evaluate_every or
    train.device; docs/config.md lists every key.

    Large runs: torchrun --nproc-per-node N -m uncollapse train ... gives the same run on N ranks.
    """
    options.must_exist(config)
    from uncollapse.report import write_report
    from uncollapse.training import TrainingError, load_config
    from uncollapse.training import train as run_training
    from uncollapse.training.distributed import FirstRankError, is_first
    from uncollapse.training.run import check_trusted

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
        _show(run)
        say(f"report: {write_report(run, warn=warn)}")
    if run.summary["status"] == "interrupted":
        raise typer.Exit(INTERRUPTED)


def _show(run: Run) -> None:
    from uncollapse.training.run import ends_below, start_scores

    summary, start = run.summary, start_scores(run)
    scores = {k: v for k, v in summary["metrics"].items() if "/" in k}
    show(*split_tables(scores, start))
    for line in ends_below(start, scores):
        say(line)
    say(f"{summary['status']} at step {summary['step']}: {run.path}")
