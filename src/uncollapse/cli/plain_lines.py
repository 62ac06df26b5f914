"""Lines with text of others in them (paths, names): printed as they are, never obeyed."""

from __future__ import annotations

from rich.console import Console

from uncollapse._base.plain_text import visible

__all__ = ["say"]


def say(console: Console, text: str) -> None:
    """Print a line without markup or wrapping; control characters and marks are shown."""
    console.print(visible(text), markup=False, highlight=False, soft_wrap=True)
