"""A line a method with its spread over seeds, markers and line styles told apart without colour."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from uncollapse._base.arrays import Array
from uncollapse.papers.eps._maps import PALETTE

__all__ = ["draw_line", "finish"]

_STYLES = (("o", "-"), ("s", "--"), ("^", "-."), ("D", ":"))


def draw_line(axis: Any, x: Sequence[float], by_seed: Array, label: str, place: int) -> None:
    """The mean over the rows of `by_seed`, one a seed, and a band from the least to the largest."""
    marker, style = _STYLES[place % len(_STYLES)]
    colour = PALETTE[place % len(PALETTE)]
    axis.plot(x, by_seed.mean(axis=0), style, marker=marker, color=colour, label=label, ms=5)
    if len(by_seed) > 1:
        axis.fill_between(x, by_seed.min(0), by_seed.max(0), color=colour, alpha=0.15, linewidth=0)


def finish(axis: Any, title: str, words: str, xlabel: str, ylabel: str) -> None:
    """Title and, below it, how it was trained; axes, a light grid and the legend."""
    axis.set_title(f"{title}\n{textwrap.fill(words, 84)}", fontsize=10)
    axis.set_xlabel(xlabel)
    axis.set_ylabel(ylabel)
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, fontsize=9)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
