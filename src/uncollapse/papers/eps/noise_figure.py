"""What label noise does to the best embedding, with and without easy positives: EPS §4, app. B."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace

import numpy as np
import torch

from uncollapse._base.arrays import Array
from uncollapse._base.table import Table
from uncollapse.charts import Axes, Chart, Entry, Event, Scale, Series, area, curves, panels
from uncollapse.charts.marks import DASHES, Line, Mark, Points, Text, line_look, marker_kind
from uncollapse.distances import pairwise_distances
from uncollapse.noise import (
    Minimum,
    NoiseModel,
    blobs,
    check_claims_eps,
    expected_loss,
    minimise,
    smallest_m,
)
from uncollapse.papers import plane
from uncollapse.papers.items import ItemPage, Made, Request, write_claims

LEVELS = (0.65, 0.8, 0.95)
# Starts and steps of the minimisation; samples per class.
SCALES = {"laptop": (6, 1000, 8), "smoke": (1, 60, 4), "paper": (24, 4000, 8)}
_SIDE, _WIDTH, _HEIGHT = 205.0, 400.0, 280.0
_RATIO = "loss of two modes / loss of one blob"


def make(request: Request) -> Made:
    """Two pictures: the best embeddings found, and when two modes cost less than one blob."""
    pictures = {
        "noise-minimisers": _minimisers(request.seed, *SCALES[request.scale]),
        "noise-crossing": _crossings(),
    }
    drawn = [plane.save(chart, request.out, name) for name, chart in pictures.items()]
    return Made([path for paths in drawn for path in paths])


def _minimisers(seed: int, starts: int, steps: int, size: int) -> Chart:
    """Best embeddings found in the plane: a row for a loss and a number of classes, p by column."""
    maps = []
    for t, loss in ((t, loss) for t in (2, 3) for loss in ("triplet", "eps-triplet")):
        words = "easy positives" if loss == "eps-triplet" else "all positives"
        for p in LEVELS:
            g = torch.Generator().manual_seed(seed)
            model = NoiseModel(t, p)
            best = minimise(loss, model, t * size, 2, starts=starts, steps=steps, generator=g)
            widest = float(best.class_diameters.max())
            note = f"p = {p:g}, widest class {widest:.2f} α"
            maps.append(_map(f"{t} classes, {words}", note, best))
    return panels(
        f"The best embeddings found for the expected triplet loss, {size} samples per class",
        maps,
        columns=len(LEVELS),
        note="A label is right with probability p. The bar is α long; ×k marks k samples on one "
        "point.",
        legend=plane.class_entries([f"class {c + 1}" for c in range(3)]),
    )


def _map(title: str, note: str, best: Minimum) -> Chart:
    z = (best.embedding - best.embedding.mean(0)).numpy()
    reach = max(float(np.abs(z).max()) * 1.2, 0.9)
    axes = plane.axes_around([np.array([[-reach, -reach], [reach, reach]])], _SIDE, pad=0.0)
    bar = [axes.at(-0.95 * reach + length, -0.92 * reach) for length in (0.0, 1.0)]
    marks: list[Mark] = [Line(bar[0], bar[1], "ink", 2.5)]
    for c in range(int(best.labels.max()) + 1):
        places, counts = _groups(torch.from_numpy(z[best.labels.numpy() == c]))
        for (x, y), count in zip((axes.at(*point) for point in places), counts, strict=True):
            size = 1.0 + 0.1 * min(int(count), 10)
            kind, color = plane.MARKERS[c], plane.COLORS[c]
            marks.append(Points(((x, y),), kind, color, size, 0.85, edge="card"))
            if count > 1:
                marks.append(Text(x + 6, y - 5, f"×{count}", 11, color, halo=True))
    return replace(plane.panel(axes, title, "the places of the samples", marks), note=note)


def _groups(z: torch.Tensor) -> tuple[Array, Array]:
    """Places where samples stand (nearer than 3 % of α is one place), and how many on each."""
    near = pairwise_distances(z) < 0.03
    leader = near.to(torch.int64).argmax(1)  # first of those near
    chosen, counts = np.unique(leader.numpy(), return_counts=True)
    return z.numpy()[chosen], counts


def _crossings() -> Chart:
    """Expected loss of one blob and of two modes against n and p, with M marked."""
    return panels(
        "One blob or two modes: which costs less under label noise?",
        [
            _losses_against_n(1, "triplet"),
            _losses_against_n(2, "margin, β = α"),
            _ratio_against_n(),
            _ratio_against_p(),
        ],
        columns=2,
    )


def _losses_against_n(claim: int, name: str) -> Chart:
    noise, sizes = NoiseModel(2, 0.8), list(range(4, 29, 4))
    blob, two = ([_loss(claim, noise, n, modes) / n for n in sizes] for modes in (1, 2))
    m = smallest_m(claim, noise.p, 2)
    lines = [Series("one blob (collapsed)", sizes, blob), Series("two modes", sizes, two)]
    return curves(
        f"Easy positives, {name}: t = 2, p = 0.8",
        lines,
        events=[Event(m, f"M = {m}", "from here on two modes cost less")],
        x_label="samples n",
        y_label="expected loss per anchor",
        x_ticks={float(n): str(n) for n in sizes},
        zero=False,
        log=False,
        width=_WIDTH,
        height=_HEIGHT,
    )


def _ratio_against_n() -> Chart:
    lines, stars = [], []
    for t in (2, 3, 5):
        noise = NoiseModel(t, 0.8)
        m = smallest_m(1, noise.p, t)
        halves = np.unique(np.geomspace(1, 600 / (2 * t), 18).round().astype(int))
        sizes = np.union1d(2 * t * halves, [m]).tolist()
        ratios = [_loss(1, noise, n, 2) / _loss(1, noise, n, 1) for n in sizes]
        lines.append(Series(f"t = {t}: M = {m}", sizes, ratios))
        stars.append((m, ratios[sizes.index(m)]))
    title = "Easy positives, triplet: M (star) grows with t; p = 0.8"
    return _ratios(title, "samples n (logarithmic)", lines, stars)


def _ratio_against_p() -> Chart:
    levels, n = np.linspace(0.52, 0.98, 24).tolist(), 24
    lines = []
    for name, easy in (("all positives", False), ("easy positives", True)):
        ratios = []
        for p in levels:
            blob, modes = (_loss(1, NoiseModel(2, p), n, count, easy=easy) for count in (1, 2))
            ratios.append(modes / blob)
        lines.append(Series(name, levels, ratios))
    title = f"Triplet: only easy positives prefer modes; t = 2, n = {n}"
    return _ratios(title, "p, probability of a right label", lines)


def _ratios(
    title: str, x_label: str, lines: Sequence[Series], stars: Sequence[tuple[float, float]] = ()
) -> Chart:
    """Ratios of two losses around 1; with `stars`, a star on each line, x is logarithmic."""
    across, up = area(_WIDTH, _HEIGHT, y_label=True)
    x = Scale.around([v for line in lines for v in line.x], *across, log=bool(stars))
    axes = Axes(x, Scale.around([1.0, *(v for line in lines for v in line.y)], *up))
    marks = [*axes.frame(x_label, _RATIO), axes.across(1.0, "ink")]
    drawn = [
        axes.line(line.x, line.y, f"s{i}", dash=DASHES[i], tip=line.name)
        for i, line in enumerate(lines)
    ]
    marks += drawn
    for i, star in enumerate(stars):
        marks.append(Points(drawn[i].points, marker_kind(i), f"s{i}", 0.8))
        marks.append(Points((axes.at(*star),), "star", f"s{i}", 1.9, edge="ink"))
    looks = [line_look(i) if stars else line_look(i)[:1] for i in range(len(lines))]
    legend = tuple(Entry(line.name, look) for line, look in zip(lines, looks, strict=True))
    words = "; ".join(f"{line.name}: from {line.y[0]:.2f} to {line.y[-1]:.2f}" for line in lines)
    return Chart(title, words, marks, _WIDTH, _HEIGHT, legend=legend)


def _loss(claim: int, noise: NoiseModel, n: int, modes: int, *, easy: bool = True) -> float:
    z, labels = blobs(noise, n, modes=modes)
    if not easy:
        return float(expected_loss("triplet", z, labels, noise))
    if claim == 1:
        return float(expected_loss("eps-triplet", z, labels, noise))
    return float(expected_loss("eps-margin", z, labels, noise, beta=1.0))


# The EPS paper's theory as a table: what it says, what is true, and the computed evidence.

_HEADING = ("where", "the paper says", "status", "what is true", "computed here")


def claims(request: Request) -> Made:
    """What the paper says, what is true, and the computed evidence."""
    rows = [astuple(row) for row in check_claims_eps()]
    table = Table(_HEADING, rows, verdict=2)
    files = write_claims(request, ItemPage("", [table]), _HEADING, rows)
    return Made(files, [ItemPage("EPS §3, §4 and appendices A and B", [table])])
