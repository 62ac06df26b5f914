"""Small charts as inline SVG: light and dark, readable without colour, described in words."""

from uncollapse.report.charts.bars import bars
from uncollapse.report.charts.curves import Event, Series, curves
from uncollapse.report.charts.heatmap import heatmap
from uncollapse.report.charts.histogram import histogram
from uncollapse.report.charts.scatter import scatter

__all__ = ["Event", "Series", "bars", "curves", "heatmap", "histogram", "scatter"]
