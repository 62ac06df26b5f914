"""Diameter against batch size or dimension, as in HNM Figs. 5 to 12: every run is a mark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from uncollapse._base.extras import import_extra
from uncollapse.papers._draw import COLOURS, INK
from uncollapse.papers.hnm._point import Point

__all__ = ["draw"]

_BLUE, _ORANGE, _GREEN = COLOURS[:3]
_LEAST = 1e-4  # a diameter may be 0, which a logarithm does not show
_COLLAPSED = "1 %: collapsed below (0.01 % stands for less)"
_NAMES = {"batch": "batch size N", "dim": "embedding dimension d"}


def draw(panels: Sequence[tuple[str, str, Sequence[Point]]], title: str) -> Any:
    """A column a panel `(title, axis, points)`: above as in the paper, below the share left."""
    figure_module = import_extra("matplotlib.figure", "plots")
    width = 5.4 * len(panels)
    figure = figure_module.Figure(figsize=(width, 7.6), layout="constrained")
    axes = figure.subplots(2, len(panels), squeeze=False, sharex="col", height_ratios=(3, 2))
    for (heading, axis, points), upper, lower in zip(panels, *axes, strict=True):
        _regions((upper, lower), points, axis)
        _diameters(upper, points, axis)
        _shares(lower, points, axis)
        upper.set_title(heading, fontsize=11)
        lower.set_xlabel(_NAMES[axis])
    axes[0, 0].set_ylabel("diameter of the embedded images")
    axes[1, 0].set_ylabel("share of the first diameter left")
    handles: dict[str, Any] = {}
    for axis in figure.axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=3 if len(panels) > 1 else 2,
        frameon=False,
        fontsize=9,
    )
    figure.suptitle(title, fontsize=12)
    return figure


def _diameters(plot: Any, points: Sequence[Point], axis: str) -> None:
    at = _values(points, axis)
    _marks(plot, points, axis, lambda p: p.end)
    lines: tuple[tuple[str, str, str, Callable[[Point], float]], ...] = (
        ("mean diameter after training", INK, "-", lambda p: p.end),
        ("before training", "#888888", ":", lambda p: p.start),
        ("bound (17), hardest triplet, c = 2", _BLUE, "--", lambda p: p.bound),
        ("bound (17), batch-hard mean, c = 2", _BLUE, "-.", lambda p: p.mean_bound),
    )
    for label, colour, style, value in lines:
        means = [np.mean([value(p) for p in points if getattr(p, axis) == x]) for x in at]
        plot.plot(at, means, style, color=colour, linewidth=1.5, label=label, zorder=2)
    top = max(max(p.start, p.end) for p in points)
    plot.set_ylim(-0.06 * top, 1.08 * top)
    plot.axhline(0.0, color="#BBBBBB", linewidth=0.8, zorder=1)


def _shares(plot: Any, points: Sequence[Point], axis: str) -> None:
    at = _values(points, axis)
    _marks(plot, points, axis, lambda p: max(p.left, _LEAST))
    plot.axhline(0.01, color=_ORANGE, linestyle=":", linewidth=1.2, label=_COLLAPSED)
    plot.set_xscale("log", base=2)
    plot.set_yscale("log")
    plot.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g} %")
    plot.set_xticks(at, [str(x) for x in at], rotation=0 if len(at) < 9 else 45)
    plot.minorticks_off()
    plot.set_xlim(*(_edges(at)[end] for end in (0, -1)))


def _marks(plot: Any, points: Sequence[Point], axis: str, value: Callable[[Point], float]) -> None:
    """Runs of one cell stand side by side, so that none hides another."""
    at = _values(points, axis)
    seeds = sorted({p.seed for p in points})
    gap = 0.18 * min(1.0, *np.diff(np.log2(at)), 1.0)
    for fell, marker, colour, label in (
        (False, "o", _GREEN, "a run"),
        (True, "x", _ORANGE, "a run that collapsed"),
    ):
        mine = [p for p in points if p.collapsed == fell]
        shift = [gap * (seeds.index(p.seed) - (len(seeds) - 1) / 2) for p in mine]
        x = [getattr(p, axis) * 2.0**s for p, s in zip(mine, shift, strict=True)]
        y = [value(p) for p in mine]
        plot.scatter(x, y, s=26, marker=marker, color=colour, linewidths=1.4, label=label, zorder=4)


def _regions(plots: Sequence[Any], points: Sequence[Point], axis: str) -> None:
    """Red, hatched, where at least half the runs collapsed; green where none did."""
    at = _values(points, axis)
    edges = _edges(at)
    for left, right, x in zip(edges, edges[1:], at, strict=False):
        here = [p.collapsed for p in points if getattr(p, axis) == x]
        if 2 * sum(here) >= len(here):
            colour, hatch = _ORANGE, "////"
        elif not any(here):
            colour, hatch = _GREEN, None
        else:
            continue
        for plot in plots:
            plot.axvspan(left, right, color=colour, alpha=0.1, linewidth=0)
            if hatch:
                plot.axvspan(left, right, fill=False, hatch=hatch, edgecolor=colour, alpha=0.15)


def _values(points: Sequence[Point], axis: str) -> list[int]:
    return sorted({getattr(p, axis) for p in points})


def _edges(at: Sequence[int]) -> list[float]:
    """Half way, in doublings, between neighbours."""
    log = np.log2(np.asarray(at, dtype=float))
    steps = np.diff(log) if len(log) > 1 else np.array([1.0])
    inner = log[:-1] + steps / 2 if len(log) > 1 else np.array([])
    ends = [log[0] - steps[0] / 2], [log[-1] + steps[-1] / 2]
    return [float(2.0**e) for e in np.concatenate([ends[0], inner, ends[1]])]
