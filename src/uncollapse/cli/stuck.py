"""`uncollapse stuck`: what the number means at which a loss sits, without any data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer

from uncollapse.cli.options import grouped
from uncollapse.cli.printing import say

NUMBERS = {"ignore_unknown_options": True}  # -1 is a loss, not an option
_MOST = 6  # explanations shown
_option = partial(typer.Option, rich_help_panel="What you know of the run")


@dataclass(frozen=True)
class Settings:
    """What is known of the run."""

    batch: Annotated[int | None, _option(help="Samples, or pairs, in a batch.", min=1)] = None
    views: Annotated[int | None, _option(help="Views of each sample.", min=1)] = None
    classes: Annotated[int | None, _option(help="Classes, or speakers.", min=1)] = None
    temperature: Annotated[float | None, _option(help="Of a softmax of similarities.")] = None
    base_temperature: Annotated[float | None, _option(help="As in SupContrast.")] = None
    margin: Annotated[float | None, _option(help="Of a triplet, pair or face loss.")] = None
    queue: Annotated[int | None, _option(help="Keys in MoCo's queue.", min=1)] = None
    scale: Annotated[float | None, _option(help="Of ArcFace or CosFace.")] = None
    dim: Annotated[int | None, _option(help="Dimension of the embedding.", min=1)] = None


@grouped
def command(
    loss: Annotated[str, typer.Argument(metavar="LOSS", help="The number as printed: 6.920.")],
    settings: Settings,
) -> None:
    """Say what a loss that does not move means: collapsed, not learning, or normal.

    Losses have a value of their own where all rows or similarities of a batch are equal.

    Usual settings are tried for those that are not given.
    """
    from uncollapse.health.advice import NEXT_CHECKS
    from uncollapse.health.resting import STATES, explain_loss

    levels = explain_loss(loss, **{k: v for k, v in vars(settings).items() if v is not None})
    more = "give what you know of the run (--batch, --views, ...: see --help)"
    if not levels:
        say(f"{loss} is no value at which a loss is known to rest; {more}")
    elif not levels[0].exact:
        say(f"no known value agrees with {loss} in every digit; near it:")
    for level in levels[:_MOST]:
        value = f"{level.value:.5g}"
        formula = f" = {level.formula}" * (level.formula != value)
        say(f"{value}{formula}: {STATES[level.state]}")
        say(f"  {level.loss}" + f", with {level.settings}" * bool(level.settings))
    if len(levels) > _MOST:
        say(f"{len(levels) - _MOST} more agree; {more}")
    for check in dict.fromkeys(NEXT_CHECKS[level.state] for level in levels[:_MOST]):
        say(f"next: {check}")
