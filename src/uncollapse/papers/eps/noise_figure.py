"""What label noise does to the best embedding, with and without easy positives: EPS §4, app. B."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from uncollapse._base.arrays import Array
from uncollapse._base.extras import import_extra
from uncollapse.distances import pairwise_distances
from uncollapse.noise import (
    Minimum,
    NoiseModel,
    blobs,
    expected_eps_margin,
    expected_eps_triplet,
    expected_triplet,
    minimise,
    smallest_m,
)
from uncollapse.papers._draw import COLOURS, INK, MARKERS, save
from uncollapse.papers._item import Item, Made, Request

__all__ = ["FIG_NOISE"]

LEVELS = (0.65, 0.8, 0.95)
# Starts and steps of the minimisation; samples per class.
SCALES = {"laptop": (6, 1000, 8), "smoke": (1, 60, 4), "paper": (24, 4000, 8)}


def _make(request: Request) -> Made:
    new_figure = import_extra("matplotlib.figure", "plots").Figure
    found = new_figure(figsize=(8.6, 11.6), layout="constrained")
    _minimisers(found, request.seed, *SCALES[request.scale])
    crossing = new_figure(figsize=(10, 7.6), layout="constrained")
    _crossings(crossing)
    out = request.out
    return Made(save(found, out, "noise-minimisers") + save(crossing, out, "noise-crossing"))


def _minimisers(figure: Any, seed: int, starts: int, steps: int, size: int) -> None:
    """Best embeddings found in the plane: a row a loss and a number of classes, a column a p."""
    rows = [(t, loss) for t in (2, 3) for loss in ("triplet", "eps-triplet")]
    axes = figure.subplots(len(rows), len(LEVELS))
    for axis_row, (t, loss) in zip(axes, rows, strict=True):
        for axis, p in zip(axis_row, LEVELS, strict=True):
            g = torch.Generator().manual_seed(seed)
            model = NoiseModel(t, p)
            best = minimise(loss, model, t * size, 2, starts=starts, steps=steps, generator=g)
            _scatter(axis, best)
            widest = float(best.class_diameters.max())
            axis.set_title(f"p = {p:g}, widest class {widest:.2f} α", fontsize=10)
        words = "easy positives" if loss == "eps-triplet" else "all positives"
        axis_row[0].set_ylabel(f"{t} classes, {words}", fontsize=11)
    handles, labels = axes[-1, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(
        f"The best embeddings found for the expected triplet loss, {size} samples a class\n"
        "A label is right with probability p. The bar is α long; ×k marks k samples on one point.",
        fontsize=11,
    )


def _scatter(axis: Any, best: Minimum) -> None:
    z = (best.embedding - best.embedding.mean(0)).numpy()
    reach = max(float(np.abs(z).max()) * 1.2, 0.9)
    for c in range(int(best.labels.max()) + 1):
        places, counts = _groups(torch.from_numpy(z[best.labels.numpy() == c]))
        axis.scatter(
            places[:, 0],
            places[:, 1],
            s=26 + 7 * (counts - 1),
            color=COLOURS[c],
            marker=MARKERS[c],
            label=f"class {c + 1}",
            alpha=0.85,
            edgecolors="white",
            linewidths=0.6,
        )
        for place, count in zip(places, counts, strict=True):
            if count > 1:
                axis.annotate(
                    f"×{count}",
                    place,
                    xytext=(6, 5),
                    textcoords="offset points",
                    fontsize=8,
                    color=COLOURS[c],
                )
    axis.plot([-0.95 * reach, -0.95 * reach + 1], [-0.92 * reach] * 2, color=INK, linewidth=2.5)
    axis.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])


def _groups(z: torch.Tensor) -> tuple[Array, Array]:
    """Places where samples stand (nearer than 3 % of α is one place), and how many on each."""
    near = pairwise_distances(z) < 0.03
    leader = near.to(torch.int64).argmax(1)  # first of those near
    chosen, counts = np.unique(leader.numpy(), return_counts=True)
    return z.numpy()[chosen], counts


def _crossings(figure: Any) -> None:
    """Expected loss of one blob and of two modes against n and p, with M marked."""
    axes = figure.subplots(2, 2)
    for axis, claim, name in ((axes[0, 0], 1, "triplet"), (axes[0, 1], 2, "margin, β = α")):
        _losses_against_n(axis, claim, name)
    _ratio_against_n(axes[1, 0])
    _ratio_against_p(axes[1, 1])
    for axis in axes.flat:
        axis.title.set_fontsize(11)
    figure.suptitle("One blob or two modes: which costs less under label noise?", fontsize=13)


def _losses_against_n(axis: Any, claim: int, name: str) -> None:
    noise = NoiseModel(2, 0.8)
    sizes = range(4, 29, 4)
    one, two = (np.array([_loss(claim, noise, n, modes) / n for n in sizes]) for modes in (1, 2))
    axis.plot(sizes, one, color=COLOURS[0], marker="o", label="one blob (collapsed)")
    axis.plot(sizes, two, color=COLOURS[1], marker="s", linestyle="--", label="two modes")
    m = smallest_m(claim, noise.p, 2)
    axis.axvline(m, color=INK, linestyle=":")
    axis.annotate(
        f"M = {m}", (m, axis.get_ylim()[1]), xytext=(5, -14), textcoords="offset points", color=INK
    )
    axis.set(
        title=f"Easy positives, {name}: t = 2, p = 0.8",
        xlabel="samples n",
        ylabel="expected loss an anchor",
        xticks=sizes,
    )
    axis.legend(frameon=False, loc="lower right")


def _ratio_against_n(axis: Any) -> None:
    for t, p, colour, mark in ((2, 0.8, 0, "o"), (3, 0.8, 2, "^"), (5, 0.8, 1, "s")):
        noise = NoiseModel(t, p)
        m = smallest_m(1, p, t)
        halves = np.unique(np.geomspace(1, 600 / (2 * t), 18).round().astype(int))
        sizes = np.union1d(2 * t * halves, [m]).tolist()
        ratios = [_loss(1, noise, n, 2) / _loss(1, noise, n, 1) for n in sizes]
        name = f"t = {t}: M = {m}"
        axis.plot(sizes, ratios, color=COLOURS[colour], marker=mark, markersize=4, label=name)
        at = ratios[int(np.searchsorted(sizes, m))]
        axis.plot(m, at, marker="*", markersize=15, color=COLOURS[colour], markeredgecolor="black")
    axis.axhline(1, color=INK, linestyle=":")
    axis.set_xscale("log")
    axis.set(
        title="Easy positives, triplet: M (star) grows with t; p = 0.8",
        xlabel="samples n (logarithmic)",
        ylabel="loss of two modes / loss of one blob",
    )
    axis.legend(frameon=False, loc="upper right")


def _ratio_against_p(axis: Any) -> None:
    levels, n = np.linspace(0.52, 0.98, 24), 24
    for name, easy, colour, style in (
        ("all positives", False, 0, "-"),
        ("easy positives", True, 1, "--"),
    ):
        ratios = []
        for p in levels:
            noise = NoiseModel(2, float(p))
            one, two = (_loss(1, noise, n, modes, easy=easy) for modes in (1, 2))
            ratios.append(two / one)
        axis.plot(levels, ratios, color=COLOURS[colour], linestyle=style, label=name)
    axis.axhline(1, color=INK, linestyle=":")
    axis.set(
        title=f"Triplet: only easy positives prefer modes; t = 2, n = {n}",
        xlabel="p, probability of a right label",
        ylabel="loss of two modes / loss of one blob",
    )
    axis.legend(frameon=False, loc="upper left")


def _loss(claim: int, noise: NoiseModel, n: int, modes: int, *, easy: bool = True) -> float:
    z, labels = blobs(noise, n, modes=modes)
    if not easy:
        return float(expected_triplet(z, labels, noise))
    if claim == 1:
        return float(expected_eps_triplet(z, labels, noise))
    return float(expected_eps_margin(z, labels, noise, beta=1.0))


FIG_NOISE = Item(
    name="fig-noise",
    summary="EPS §4: what label noise does to the best embedding, with and without easy positives",
    needs="the extra 'plots'",
    time="a minute",
    make=_make,
    scales=tuple(SCALES),
)
