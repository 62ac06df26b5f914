"""A chart of a page as a file of its own: caption, drawing and legend in one SVG."""

from __future__ import annotations

import html
import re
import textwrap

from uncollapse.report.charts.axes import WIDTH
from uncollapse.report.markup import Html, esc
from uncollapse.report.style import CHART_CSS

__all__ = ["standalone_svg"]

_PAD, _LINE = 12, 17
_TITLE = re.compile(r"<figcaption>(.*?)(?:<small>(.*?)</small>)?</figcaption>", re.S)
_DRAWING = re.compile(r'<svg viewBox="0 0 (\d+) (\d+)"(.*?)>(.*?)</svg>', re.S)
_ENTRY = re.compile(r"<li><svg[^>]*>(.*?)</svg>(.*?)</li>", re.S)


def standalone_svg(figure: Html) -> str:
    """The SVG of a figure made by `report.charts`, light and dark, readable anywhere.

    >>> from uncollapse.report.charts import Series, curves
    >>> text = standalone_svg(curves("Loss", [Series("a", [0, 1], [1.0, 0.5])]))
    >>> text.startswith("<svg xmlns="), text.count("<svg"), "Loss" in text
    (True, 2, True)
    """
    caption, drawing = _TITLE.search(figure), _DRAWING.search(figure)
    if caption is None or drawing is None:
        return ""
    lines = textwrap.wrap(html.unescape(caption[2] or ""), 52)
    parts = [f'<text class="title" x="{_PAD}" y="{_PAD + 12}">{caption[1]}</text>']
    y = _PAD + 12
    for line in lines:
        y += _LINE
        parts.append(f'<text x="{_PAD}" y="{y}">{esc(line)}</text>')
    y += 8
    height = int(drawing[2])
    parts.append(
        f'<svg x="{_PAD}" y="{y}" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {drawing[1]} {height}"{drawing[3]}>{drawing[4]}</svg>'
    )
    y += height + 4
    entries = _ENTRY.findall(figure)
    x = float(_PAD)
    for drawn, name in entries:
        wide = 42 + 6.6 * len(html.unescape(name))
        if x > _PAD and x + wide > WIDTH + _PAD:
            x, y = float(_PAD), y + _LINE
        parts.append(
            f'<g transform="translate({x:g} {y})">{drawn}'
            f'<text class="key" x="36" y="11">{name}</text></g>'
        )
        x += wide
    total = y + (_LINE if entries else 0) + _PAD
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * (WIDTH + 2 * _PAD)}" '
        f'height="{2 * total}" viewBox="0 0 {WIDTH + 2 * _PAD} {total}">'
        f"<style>{_style()}</style>"
        f'<rect width="100%" height="100%" fill="var(--card)"/>{"".join(parts)}</svg>\n'
    )


def _style() -> str:
    """The page's colours and its rules for drawings, with the caption's own."""
    return (
        f"{CHART_CSS}"
        ":root { font-family: system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif; } "
        "svg .title { font-size: 14px; font-weight: 600; fill: var(--ink); } "
        "svg .key { fill: var(--ink); }"
    )
