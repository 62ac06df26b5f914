"""Which checkpoint of a run a command uses, and what a user is told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uncollapse.cli.errors import warn

if TYPE_CHECKING:
    from uncollapse.training import Run
    from uncollapse.training.run import Chosen

__all__ = ["choose", "said"]


def choose(run: Run, best: bool) -> Chosen:
    """The last checkpoint or the best; a warning says where another one stands in for it."""
    found = run.choose("best" if best else "last")
    for text in found.warnings:
        warn(text)
    return found


def said(chosen: Chosen) -> str:
    """The step that is used, in words."""
    return f"network of step {chosen.step:,}"
