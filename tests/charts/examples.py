"""A chart of each kind and a mark of each kind, for tests that hold for all of them."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from uncollapse.charts import (
    Axes,
    Chart,
    Entry,
    Event,
    Scale,
    Series,
    area,
    bars,
    curves,
    empty,
    heatmap,
    histogram,
    panels,
    scatter,
)  # fmt: skip
from uncollapse.charts.marks import (
    MARKERS,
    Group,
    Line,
    Picture,
    Points,
    Polyline,
    Rect,
    Text,
    brace,
    hatch,
)  # fmt: skip
from uncollapse.charts.plots import _names_on_map
from uncollapse.health.verdict import Histogram


def picture_bytes() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8), "#b3261e").save(file, "PNG")
    return file.getvalue()


MARKS = {
    "polyline": Polyline(((20, 20), (60, 70), (90, 25)), "s0"),
    "dashed polyline": Polyline(((20, 20), (90, 80)), "s1", 3.0, (9, 3, 2, 3)),
    "area": Polyline(
        ((20, 20), (90, 30), (50, 80)), "s2", closed=True, fill="s2", fill_opacity=0.4
    ),
    "line": Line((20, 20), (90, 80), "ink", 2.0),
    "arrow": Line((20, 80), (90, 20), "bad", 2.0, arrow=True),
    "rect": Rect(20, 20, 60, 40, "s3", 0.8, "ink", 5),
    "disc": Points(((50, 50),), "circle", "s4", 8.0, 0.7, edge="ink"),
    **{f"{kind} points": Points(((30, 30), (70, 30), (50, 50), (30, 70), (70, 70)), kind, "s5", 2)
       for kind in MARKERS},
    "points with tips": Points(((30, 30), (70, 70)), "diamond", "s6", 2, tips=("a", "b")),
    "edged points": Points(((50, 50),), "star", "s0", 4, edge="ink"),
    "text": Text(20, 55, "Words 0.25", 16),
    "text at its end": Text(90, 55, "bold", 18, "ink", "end", bold=True, halo=True),
    "turned text": Text(50, 50, "turned", 16, "ink", "middle", turn=-90),
    "picture": Picture(20, 20, 50, 60, picture_bytes(), "a red square"),
    "moved group": Group((Rect(0, 0, 20, 20, "s0"),), 40, 30),
    "clipped group": Group((Points(((50, 50),), "circle", "s1", 15),), clip=(20, 20, 40, 30)),
    "faint group": Group(
        (Points(((40, 50), (60, 50)), "circle", "bad", 6.0), Rect(45, 45, 10, 10, "bad")),
        opacity=0.4,
    ),
    "hatch": hatch(20, 20, 60, 60, "ink"),
    "brace": brace(20, 80, 60, 20),
}  # fmt: skip


def charts() -> dict[str, Chart]:
    rng = np.random.default_rng(0)
    steps = list(range(60))
    lines = [
        Series(f"run {i}", steps, (np.exp(-np.array(steps) / (9 + 4 * i)) + 0.1 * i).tolist())
        for i in range(4)
    ]
    banded = [
        Series(one.name, one.x, one.y, [v - 0.05 for v in one.y], [v + 0.05 for v in one.y])
        for one in lines[:2]
    ]
    events = [Event(20, "1", "shrinking"), Event(22, "2", "rolled back"), Event(45, "3", "healthy")]
    labels = np.repeat(np.arange(9), 30)
    plane = rng.normal(size=(9, 2))[labels] + 0.3 * rng.normal(size=(270, 2))
    axes = Axes(Scale(1.0, 1000.0, *area()[0], log=True), Scale(-100.0, 100.0, *area()[1]))
    own = Chart(
        "Own axes",
        "a hatched stripe, error bars and names",
        (
            axes.columns(10, 100, "bad"),
            hatch(axes.x(10), axes.y.end, axes.x(100) - axes.x(10), 166, "bad"),
            *axes.frame("batch size", x_ticks={2.0**i: str(2**i) for i in range(10)}),
            axes.inside(axes.line([1, 1000], [-300, 300], "s0", dash=(7, 4))),
            *(axes.error_bar(x, -10, 10, "s1") for x in (3, 30, 300)),
            Points(axes.places([3, 30, 300], [0, 0, 0]), "diamond", "s1", tips=["a", "b", "c"]),
            axes.across(-50),
            *_names_on_map(["left", "right"], [(150, 100), (152, 101)], (340, 220)),
        ),
        legend=(Entry("dashed", (Line((1, 7), (29, 7), "s0", 2, (7, 4)),)),),
    )  # fmt: skip
    one = curves("Loss", lines, events=events, note="of each run")
    return {
        "curves": one,
        "banded": curves("R@1", banded, y_label="R@1 (%)", x_label="epoch", log=False),
        "log": curves("Diameter", [Series("a", steps, [10.0 ** (-i / 9) for i in steps])]),
        "percent": curves("Recall", lines[:2], percent=True),
        "bars": bars("Spectrum", [0.7, 0.2, 0.08, 0.02], x_label="axis", split=(2, "90 % in 2")),
        "histogram": histogram(
            "Distances",
            {"within": Histogram((0.0, 1.0, 2.0, 3.0), (5, 9, 1)),
             "between": Histogram((0.0, 1.0, 2.0, 3.0), (1, 3, 9))},
            x_label="distance",
        ),
        "heatmap": heatmap(
            "Risk", [2, 4, 8], [4, 8, 16, 32], rng.random((3, 4)).tolist(), row_label="P",
            column_label="K", crossed=[[False, True] * 2] * 3,
        ),
        "scatter": scatter("Map", plane, labels, note="two principal axes"),
        "panels": panels("Both", [one, own], columns=2, note="side by side", legend=one.legend),
        "own": own,
        "empty": empty("Nothing", "There is nothing to draw."),
    }  # fmt: skip
