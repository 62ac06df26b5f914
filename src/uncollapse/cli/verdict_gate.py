"""`--fail-on`: a verdict that ends the command with exit code 1, so that a build fails on it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from uncollapse._base.check import InputError, did_you_mean

__all__ = ["FAILED", "FailOnOption", "fail_if", "refused_verdicts"]

FAILED = 1
_ANY = "any"

FailOnOption = Annotated[
    str | None,
    typer.Option(
        metavar="VERDICTS",
        help="End with exit code 1 on these verdicts: 'network-collapse,cone', or any but healthy: "
        "'any'.",
    ),
]


def refused_verdicts(text: str | None) -> frozenset[str]:
    """The verdicts that `--fail-on` names; `InputError` for a word that is none.

    >>> sorted(refused_verdicts("cone, network-collapse"))
    ['cone', 'network-collapse']
    >>> "shrinking" in refused_verdicts("any"), "healthy" in refused_verdicts("any")
    (True, False)
    """
    if text is None:
        return frozenset()
    from uncollapse.health import VERDICTS

    bad = VERDICTS[1:]  # the first is healthy
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in (*bad, _ANY):
            allowed = f"any, or one or several of {', '.join(bad)} with commas between"
            raise InputError("--fail-on", repr(word) + did_you_mean(word, bad), allowed)
    return frozenset(bad if _ANY in words else words)


def fail_if(refused: frozenset[str], found: Mapping[Path, str]) -> None:
    """End the command with exit code 1, a line for each, where a verdict is one of the refused."""
    from rich.console import Console

    from uncollapse.cli.plain_lines import say

    console = Console(stderr=True, style="red")
    failed = {path: verdict for path, verdict in found.items() if verdict in refused}
    for path, verdict in failed.items():
        say(console, f"failed: {path} is judged {verdict}, which --fail-on refuses")
    if failed:
        raise typer.Exit(FAILED)
