"""`uncollapse train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import uncollapse as uc
from uncollapse.cli import options
from uncollapse.cli.printing import INTERRUPTED, say, show, split_tables, warn


def command(
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
    from uncollapse.training.distributed import FirstRankError, is_first

    settings = uc.load_config(config, changes or []).with_root(data_root)
    # A config inside a run folder is the run's, whoever names it here.
    uc.training.run.check_trusted(config.parent, settings, trust=trust)
    try:
        run = uc.train(settings, out or Path("runs") / config.stem, resume=resume)
    except (FirstRankError, uc.training.TrainingError):
        if is_first():
            raise
        raise typer.Exit(1) from None  # rank 0 reports it
    if is_first():
        _show(run)
        say(f"report: {uc.report.write_report(run, warn=warn)}")
    if run.summary["status"] == "interrupted":
        raise typer.Exit(INTERRUPTED)


def _show(run: uc.Run) -> None:
    summary, start = run.summary, uc.training.measures.start_scores(run)
    scores = {k: v for k, v in summary["metrics"].items() if "/" in k}
    show(*split_tables(scores, start))
    for line in uc.training.measures.ends_below(start, scores):
        say(line)
    say(f"{summary['status']} at step {summary['step']}: {run.path}")
