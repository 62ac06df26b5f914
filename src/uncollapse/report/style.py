"""The colours and rules of drawings, for charts that are files of their own."""

from __future__ import annotations

from importlib import resources

__all__ = ["CHART_CSS", "SERIES"]

SERIES = 8  # colours --s0 to --s7; what is drawn also differs by dash, mark or label
CHART_CSS = resources.files(__package__).joinpath("templates/chart.css").read_text("utf-8")
