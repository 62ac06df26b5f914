"""What `uncollapse reproduce` can make: one item a figure, table or set of claims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from uncollapse._check import check_choice

__all__ = ["Item", "Request"]


@dataclass(frozen=True)
class Request:
    """What an item is asked for: where to, with which seed, how large, and where to tell of it."""

    out: Path
    seed: int
    console: Console
    scale: str


@dataclass(frozen=True)
class Item:
    """One thing that can be reproduced. `make` writes files into a folder and returns them."""

    name: str
    summary: str
    needs: str
    time: str
    make: Callable[[Request], list[Path]]
    scales: tuple[str, ...] = ("laptop",)

    def run(self, out: Path, seed: int, console: Console, scale: str | None = None) -> list[Path]:
        """Make the item at one of its scales (the first by default)."""
        scale = self.scales[0] if scale is None else scale
        check_choice("scale", scale, self.scales)
        out.mkdir(parents=True, exist_ok=True)
        return self.make(Request(out, seed, console, scale))
