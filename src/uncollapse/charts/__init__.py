"""One chart stack: data in, SVG out, PNG where a file is asked for.

A chart is data. Functions such as `curves`, `bars`, `histogram`, `heatmap` and `scatter` take
values and give a frozen `Chart`: a title, a description in words for readers who cannot see it, a
legend, and a tuple of marks (`charts.marks`: `Line`, `Polyline`, `Rect`, `Points`, `Text`,
`Picture`, `Group`) at places in the chart's own units. `charts.axes.Axes` turns values into marks
for drawings that no function makes; `panels` puts several charts on one sheet.

`svg` draws every mark (light and dark by the theme's variables, tooltips, described for screen
readers) and `png` turns that into pixels (resvg, the light theme). A chart prints itself in a
template (`Chart.__html__`: a figure with its caption and its legend as text), and `save` writes a
file.
"""

from uncollapse.charts.axes import Axes, Scale, area
from uncollapse.charts.chart import Chart, Entry, Legend, empty, panels, png, save, svg
from uncollapse.charts.plots import Event, Series, bars, curves, heatmap, histogram, scatter

__all__ = [
    "Axes",
    "Chart",
    "Entry",
    "Event",
    "Legend",
    "Scale",
    "Series",
    "area",
    "bars",
    "curves",
    "empty",
    "heatmap",
    "histogram",
    "panels",
    "png",
    "save",
    "scatter",
    "svg",
]
