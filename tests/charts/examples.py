"""A chart of each kind and a mark of each kind, for tests that hold for all of them."""

import io

import numpy as np
from PIL import Image

from uncollapse import charts as c
from uncollapse.charts import marks as m
from uncollapse.charts.plots import _names_on_map
from uncollapse.health.verdict import Histogram


def picture_bytes() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8), "#b3261e").save(file, "PNG")
    return file.getvalue()


MARKS = {
    "polyline": m.Polyline(((20, 20), (60, 70), (90, 25)), "s0"),
    "dashed polyline": m.Polyline(((20, 20), (90, 80)), "s1", 3.0, (9, 3, 2, 3)),
    "area": m.Polyline(
        ((20, 20), (90, 30), (50, 80)), "s2", closed=True, fill="s2", fill_opacity=0.4
    ),
    "line": m.Line((20, 20), (90, 80), "ink", 2.0),
    "arrow": m.Line((20, 80), (90, 20), "bad", 2.0, arrow=True),
    "rect": m.Rect(20, 20, 60, 40, "s3", 0.8, "ink", 5),
    "disc": m.Points(((50, 50),), "circle", "s4", 8.0, 0.7, edge="ink"),
    **{f"{kind} points": m.Points(((30, 30), (70, 30), (50, 50), (30, 70), (70, 70)), kind, "s5", 2)
       for kind in m.MARKERS},
    "points with tips": m.Points(((30, 30), (70, 70)), "diamond", "s6", 2, tips=("a", "b")),
    "edged points": m.Points(((50, 50),), "star", "s0", 4, edge="ink"),
    "text": m.Text(20, 55, "Words 0.25", 16),
    "text at its end": m.Text(90, 55, "bold", 18, "ink", "end", bold=True, halo=True),
    "turned text": m.Text(50, 50, "turned", 16, "ink", "middle", turn=-90),
    "picture": m.Picture(20, 20, 50, 60, picture_bytes(), "a red square"),
    "moved group": m.Group((m.Rect(0, 0, 20, 20, "s0"),), 40, 30),
    "clipped group": m.Group((m.Points(((50, 50),), "circle", "s1", 15),), clip=(20, 20, 40, 30)),
    "faint group": m.Group(
        (m.Points(((40, 50), (60, 50)), "circle", "bad", 6.0), m.Rect(45, 45, 10, 10, "bad")),
        opacity=0.4,
    ),
    "hatch": m.hatch(20, 20, 60, 60, "ink"),
    "brace": m.brace(20, 80, 60, 20),
}  # fmt: skip


def charts() -> dict[str, c.Chart]:
    rng = np.random.default_rng(0)
    steps = list(range(60))
    lines = [
        c.Series(f"run {i}", steps, (np.exp(-np.array(steps) / (9 + 4 * i)) + 0.1 * i).tolist())
        for i in range(4)
    ]
    banded = [
        c.Series(s.name, s.x, s.y, [v - 0.05 for v in s.y], [v + 0.05 for v in s.y])
        for s in lines[:2]
    ]
    events = [
        c.Event(20, "1", "shrinking"),
        c.Event(22, "2", "rolled back"),
        c.Event(45, "3", "healthy"),
    ]
    labels = np.repeat(np.arange(9), 30)
    plane = rng.normal(size=(9, 2))[labels] + 0.3 * rng.normal(size=(270, 2))
    axes = c.Axes(
        c.Scale(1.0, 1000.0, *c.area()[0], log=True), c.Scale(-100.0, 100.0, *c.area()[1])
    )
    own = c.Chart(
        "Own axes",
        "a hatched stripe, error bars and names",
        (
            axes.columns(10, 100, "bad"),
            m.hatch(axes.x(10), axes.y.end, axes.x(100) - axes.x(10), 166, "bad"),
            *axes.frame("batch size", x_ticks={2.0**i: str(2**i) for i in range(10)}),
            axes.inside(axes.line([1, 1000], [-300, 300], "s0", dash=(7, 4))),
            *(axes.error_bar(x, -10, 10, "s1") for x in (3, 30, 300)),
            m.Points(axes.places([3, 30, 300], [0, 0, 0]), "diamond", "s1", tips=["a", "b", "c"]),
            axes.across(-50),
            *_names_on_map(["left", "right"], [(150, 100), (152, 101)], (340, 220)),
        ),
        legend=(c.Entry("dashed", (m.Line((1, 7), (29, 7), "s0", 2, (7, 4)),)),),
    )  # fmt: skip
    loss = c.curves("Loss", lines, events=events, note="of each run")
    return {
        "curves": loss,
        "banded": c.curves("R@1", banded, y_label="R@1 (%)", x_label="epoch", log=False),
        "log": c.curves("Diameter", [c.Series("a", steps, [10.0 ** (-i / 9) for i in steps])]),
        "percent": c.curves("Recall", lines[:2], percent=True),
        "bars": c.bars("Spectrum", [0.7, 0.2, 0.08, 0.02], x_label="axis", split=(2, "90 % in 2")),
        "histogram": c.histogram(
            "Distances",
            {"within": Histogram((0.0, 1.0, 2.0, 3.0), (5, 9, 1)),
             "between": Histogram((0.0, 1.0, 2.0, 3.0), (1, 3, 9))},
            x_label="distance",
        ),
        "heatmap": c.heatmap(
            "Risk", [2, 4, 8], [4, 8, 16, 32], rng.random((3, 4)).tolist(), row_label="P",
            column_label="K", crossed=[[False, True] * 2] * 3,
        ),
        "scatter": c.scatter("Map", plane, labels, note="two principal axes"),
        "panels": c.panels("Both", [loss, own], columns=2, note="side by side", legend=loss.legend),
        "own": own,
        "empty": c.empty("Nothing", "There is nothing to draw."),
    }  # fmt: skip
