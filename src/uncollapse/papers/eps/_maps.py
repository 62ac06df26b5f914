"""Embeddings as dots in the plane, a colour and a number or name per class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse._base.extras import import_extra
from uncollapse.papers._draw import INK

__all__ = ["PALETTE", "figure_grid", "scatter_classes"]

# Okabe and Ito's eight and two between them; the names are written on the map as well.
PALETTE = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"),
    *("#56B4E9", "#7F3C8D", "#8C8C00", "#000000", "#B03060"),
)


def figure_grid(rows: int, columns: int, size: tuple[float, float]) -> tuple[Any, Any]:
    """A figure and its axes, drawn without a display."""
    figure_module = import_extra("matplotlib.figure", "plots")
    figure = figure_module.Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def scatter_classes(
    axis: Any,
    points: Array,
    ids: Array,
    names: Mapping[int, str],
    *,
    first: int = 0,
) -> None:
    """Dots of each class, in its own colour from number `first` on; its name near its median."""
    effects = import_extra("matplotlib.patheffects", "plots")
    shown = [number for number in sorted(names) if (ids == number).any()]
    colours = {n: PALETTE[(first + i) % len(PALETTE)] for i, n in enumerate(sorted(names))}
    for number in shown:
        mine = points[ids == number]
        axis.scatter(*mine.T, s=5, color=colours[number], alpha=0.55, linewidths=0)
    middles = np.array([np.median(points[ids == number], axis=0) for number in shown])
    extent = np.ptp(points, axis=0)
    for number, place in zip(shown, _apart(middles, 0.045 * extent), strict=True):
        axis.annotate(
            names[number],
            place,
            ha="center",
            va="center",
            fontsize=12,
            fontweight="bold",
            color=colours[number],
            path_effects=[effects.withStroke(linewidth=3, foreground="white")],
        )
    axis.set(xticks=[], yticks=[])
    axis.margins(0.04)
    for spine in axis.spines.values():
        spine.set_color("#BBBBBB")
    axis.title.set_color(INK)


def _apart(places: Array, room: Array) -> Array:
    """Places moved until any two are at least one `room` apart, so that names can be read."""
    places = places / room
    for _ in range(100):
        gap = places[:, None] - places[None]
        length = np.linalg.norm(gap, axis=2)
        np.fill_diagonal(length, np.inf)
        if length.min() >= 1.0:
            break
        # Places that coincide part along the order they came in.
        order = np.sign(np.subtract.outer(range(len(places)), range(len(places))))
        way = np.where(length[..., None] > 1e-6, gap, order[..., None])
        way = way / np.maximum(np.linalg.norm(way, axis=2, keepdims=True), 1e-12)
        places = places + (0.55 * np.maximum(1.0 - length, 0.0)[..., None] * way).sum(axis=1)
    return np.asarray(places * room)
