"""`uncollapse sweep`: many runs from one file, on this machine or on a cluster."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import uncollapse as uc
from uncollapse._base.check import InputError, check_choice
from uncollapse._base.table import Table
from uncollapse.cli.options import DataRootOption, must_exist
from uncollapse.cli.printing import duration, say, show, status


def command(
    sweep: Annotated[Path, typer.Argument(help="The sweep as a TOML file.")],
    out: Annotated[
        Path | None, typer.Option(help="The sweep's folder.  \\[default: runs/NAME of the file]")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="local: processes on this machine; ray: a Ray cluster.")
    ] = "local",
    jobs: Annotated[
        int | None, typer.Option(help="Parallel runs.  \\[default: the number of cores]", min=1)
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="An existing Ray cluster: auto, or host:port.")
    ] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Retry failures.")] = False,
    data_root: DataRootOption = None,
    plan: Annotated[bool, typer.Option("--plan", help="Show the cost and exit.")] = False,
) -> None:
    """Train every run of a sweep; run it again to continue."""
    must_exist(sweep)
    from uncollapse._base.lock import FolderOwner
    from uncollapse.report.sweep_page import sweep_report
    from uncollapse.sweep import grid

    check_choice("--engine", engine, ("local", "ray"))
    asked = uc.sweep.load_sweep(sweep, data_root=data_root)
    folder = out or Path("runs") / sweep.stem
    # A second sweep in this folder is refused; looking at the cost of one is not.
    with nullcontext() if plan else FolderOwner(folder):
        grid.check_kept(asked, folder)
        made = _engine(engine, folder / "runs", jobs, address)
        with status("trying a few steps of the largest run"):
            foreseen = grid.make_plan(asked, made.out, made.slots, retry_failed=retry_failed)
        show(_table(foreseen))
        if plan:
            made.close()
            return
        grid.keep_sweep(asked, folder)
        results = grid.run_sweep(asked, folder, made, retry_failed=retry_failed, console=Console())
        for path in [results.path, *sweep_report(folder)]:
            say(f"wrote {path}")


def _engine(name: str, out: Path, jobs: int | None, address: str | None) -> uc.sweep.jobs.Engine:
    from uncollapse.sweep.engines import LocalEngine, RayEngine

    if name == "ray":
        return RayEngine(out, jobs, address)
    if address is not None:
        raise InputError.conflict("--address needs --engine ray")
    return LocalEngine(out, jobs)


def _table(plan: uc.sweep.grid.Plan) -> Table:
    """The plan as a table."""
    table = Table(["", ""])
    table.add("runs", f"{plan.total}")
    table.add("done", f"{plan.done}" + f", {plan.failed} failed" * bool(plan.failed))
    table.add("to make now", f"{plan.left}, {plan.slots} at a time")
    if plan.left:
        unknown = f"not known: {plan.why}"
        time = unknown if plan.seconds is None else f"at most about {duration(plan.seconds)}"
        table.add("time", time)
        if plan.disk is not None:
            table.add("disk", f"at most about {plan.disk / 1e6:,.0f} MB of checkpoints")
    return table
