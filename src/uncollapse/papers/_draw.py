"""Drawing of labelled points in the plane, shared by the figures."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse._base.extras import import_extra
from uncollapse.distances import pairwise_distances

__all__ = [
    "COLOURS",
    "INK",
    "MARKERS",
    "arrows",
    "boundary",
    "caption",
    "edge",
    "frame",
    "panels",
    "reach",
    "save",
    "scatter",
]


# Okabe and Ito's palette: told apart with every common colour vision. Markers differ as well.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
MARKERS = ("o", "s", "^", "D")
INK = "#222222"


def panels(count: int, width: float) -> tuple[Any, list[Any]]:
    """A figure with `count` panels in a row, drawn without a display; `caption` sets its height."""
    figure_module = import_extra("matplotlib.figure", "plots")
    agg = import_extra("matplotlib.backends.backend_agg", "plots")
    figure = figure_module.Figure(figsize=(width, width), layout="constrained")
    agg.FigureCanvasAgg(figure)
    figure.get_layout_engine().set(h_pad=0.09)
    axes = figure.subplots(1, count, squeeze=False)[0]
    return figure, list(axes)


def frame(axis: Any, clouds: Sequence[Array], pad: float = 0.08) -> tuple[Array, Array]:
    """Same scale on both axes, everything inside, no ticks; returns the corners."""
    everything = np.vstack(clouds)
    low, high = everything.min(axis=0), everything.max(axis=0)
    room = pad * float((high - low).max())
    corners = low - room, high + room
    axis.set_xlim(corners[0][0], corners[1][0])
    axis.set_ylim(corners[0][1], corners[1][1])
    axis.set_aspect("equal")
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set_color("#BBBBBB")
    return corners


def scatter(axis: Any, x: Array, ids: Array, names: Sequence[str], *, star: str = "") -> None:
    """One colour and one marker a class; stars, with a word for the legend, for where they go."""
    for c, name in enumerate(names):
        mine = x[ids == c]
        label = f"{name}, {star}" if star else name
        axis.scatter(
            mine[:, 0],
            mine[:, 1],
            s=150 if star else 46,
            marker="*" if star else MARKERS[c],
            facecolor=COLOURS[c],
            edgecolor="white" if not star else INK,
            linewidth=0.7,
            zorder=5 if star else 4,
            label=label,
        )


def arrows(axis: Any, x: Array, z: Array, ids: Array) -> None:
    """From each point to where it goes; the longest moves in black."""
    length = np.linalg.norm(z - x, axis=1)
    for k in range(len(x)):
        far = length[k] >= 0.999 * length.max()
        axis.annotate(
            "",
            xy=z[k],
            xytext=x[k],
            arrowprops={
                "arrowstyle": "-|>",
                "color": "black" if far else COLOURS[ids[k]],
                "alpha": 1.0 if far else 0.55,
                "linewidth": 2.0 if far else 1.0,
                "shrinkA": 3,
                "shrinkB": 5,
            },
            zorder=3,
        )


def reach(points: Array, alpha: float = 0.0) -> Array:
    """Corners of the box around the triplet-separated boundary of a class."""
    radius = (pairwise_distances(points).numpy().max(axis=1) + alpha)[:, None]
    return np.vstack([points - radius, points + radius])


def edge(points: Array, alpha: float = 0.0) -> Array:
    """Points along the triplet-separated boundary of a class: arcs about its members."""
    radius = pairwise_distances(points).numpy().max(axis=1) + alpha
    turn = np.linspace(0.0, 2.0 * np.pi, 120, endpoint=False)
    circle = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    arcs = (points[:, None] + radius[:, None, None] * circle).reshape(-1, 2)
    room = (pairwise_distances(arcs, points).numpy() - radius).min(axis=1)
    outer: Array = arcs[room >= -1e-9 * radius.max()]
    return outer


def boundary(
    axis: Any, points: Array, colour: str, corners: tuple[Array, Array], alpha: float = 0.0
) -> None:
    """Dashed edge of where a point z of another class may be: HNM (5) for all x, y of the class."""
    across = [np.linspace(corners[0][k], corners[1][k], 600) for k in (0, 1)]
    grid = np.stack(np.meshgrid(*across), axis=-1)
    radius = pairwise_distances(points).numpy().max(axis=1) + alpha
    away = pairwise_distances(grid.reshape(-1, 2), points).numpy()
    room = (away - radius).min(axis=1).reshape(grid.shape[:2])
    axis.contour(*across, room, levels=[0.0], colors=[colour], linestyles="dashed", linewidths=1.4)
    axis.contourf(*across, room, levels=[-np.inf, 0.0], colors=[colour], alpha=0.07)


def save(figure: Any, out: Path, name: str) -> list[Path]:
    """Write PNG and SVG, each aside and then renamed, so that no half-written file is ever seen."""
    matplotlib = import_extra("matplotlib", "plots")
    made = []
    for kind in ("png", "svg"):
        path, aside = out / f"{name}.{kind}", out / f".{name}.{kind}.part"
        # No date and no random ids: the same figure is the same file.
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        with matplotlib.rc_context({"svg.hashsalt": name}):
            figure.savefig(aside, format=kind, dpi=200, metadata=metadata)
        os.replace(aside, path)
        made.append(path)
    return made


def caption(figure: Any, text: str, width: int) -> None:
    """The legend above the panels and a wrapped caption below them."""
    handles, labels = [], []
    for axis in figure.axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            if label not in labels:
                handles.append(handle)
                labels.append(label)
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    lines = textwrap.wrap(text, width)
    figure.supxlabel("\n".join(lines), fontsize=9, x=0.5, color=INK, linespacing=1.35)
    # As high as the panels need at their full width.
    (left, right), (bottom, top) = figure.axes[0].get_xlim(), figure.axes[0].get_ylim()
    panel = figure.get_figwidth() / len(figure.axes) * (top - bottom) / (right - left)
    titles = max(axis.get_title().count("\n") + bool(axis.get_title()) for axis in figure.axes)
    figure.set_figheight(panel + 0.65 + 0.22 * titles + 0.18 * len(lines))
