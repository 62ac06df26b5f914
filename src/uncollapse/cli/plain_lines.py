"""Lines with text of others in them (paths, names): printed as they are, never obeyed."""

from __future__ import annotations

from rich.console import Console

from uncollapse._base.check import visible
from uncollapse._base.table import wrapped_for

__all__ = ["say"]


def say(console: Console, text: str, *, whole: bool = False, style: str = "") -> None:
    """Print a line without markup; control characters and marks are shown.

    On a terminal it is wrapped between words, for a person; elsewhere, and if it must stay `whole`
    because it will be copied, it is one line.
    """
    shown = visible(text)
    if console.is_terminal and not whole:
        shown = wrapped_for(console.width, shown)
    console.print(shown, markup=False, highlight=False, soft_wrap=True, style=style)
