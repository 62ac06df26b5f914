"""Charts as SVG: inline in a page, or a file of its own; light and dark by CSS variables."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Sequence
from functools import singledispatch
from itertools import pairwise

from uncollapse.charts.layout import sheet
from uncollapse.charts.marks import (
    MARKERS,
    Chart,
    Circle,
    Entry,
    Group,
    Line,
    Mark,
    Picture,
    Place,
    Points,
    Polyline,
    Rect,
    Text,
    css_colour,
    css_variables,
)
from uncollapse.charts.text import safe_text, short_id

__all__ = ["arrow_head", "brace", "dashed", "figure", "hatch", "legend_list", "svg"]


# Outlines that both renderers draw: dashes, arrow heads, hatches and braces, as plain places.


def arrow_head(line: Line) -> list[Place]:
    """The triangle at the end of a line; as long as the line at most."""
    (x, y), (tip_x, tip_y) = line.start, line.end
    length = math.hypot(tip_x - x, tip_y - y)
    if length == 0:
        return [line.end]
    along = (tip_x - x) / length, (tip_y - y) / length
    long = min(4.0 + 2.2 * line.width, length)
    wide = 0.42 * long
    back = tip_x - long * along[0], tip_y - long * along[1]
    return [
        (tip_x, tip_y),
        (back[0] - wide * along[1], back[1] + wide * along[0]),
        (back[0] + wide * along[1], back[1] - wide * along[0]),
    ]


def dashed(points: Sequence[Place], dash: Sequence[float]) -> Iterator[list[Place]]:
    """The pieces of a line that a dash pattern draws.

    >>> list(dashed([(0.0, 0.0), (10.0, 0.0)], (4, 2)))
    [[(0.0, 0.0), (4.0, 0.0)], [(6.0, 0.0), (10.0, 0.0)]]
    """
    place, left, drawing = 0, float(dash[0]), True
    piece = [points[0]]
    for (x, y), (to_x, to_y) in pairwise(points):
        length, done = math.hypot(to_x - x, to_y - y), 0.0
        while length - done > left:
            done += left
            at = x + (to_x - x) * done / length, y + (to_y - y) * done / length
            if drawing:
                yield [*piece, at]
            drawing, place = not drawing, (place + 1) % len(dash)
            piece, left = [at], float(dash[place]) or 0.01
        left -= length - done
        if drawing:
            piece.append((to_x, to_y))
    if drawing and len(piece) > 1:
        yield piece


def hatch(
    left: float, top: float, width: float, height: float, colour: str, *, gap: float = 7.0
) -> Group:
    """Slanted lines over a rectangle: told from a plain one without colour."""
    lines = []
    for i in range(math.ceil((width + height) / gap)):
        x = left + i * gap
        lines.append(Line((x, top), (x - height, top + height), colour, 1.0))
    return Group(tuple(lines), clip=(left, top, width, height), opacity=0.22)


def brace(left: float, right: float, base: float, height: float, colour: str = "ink") -> Polyline:
    """A brace over [left, right] that opens downwards to `base`; its tip points up."""
    middle, waist = (left + right) / 2, base - height / 2
    bend = min(height / 2, (right - left) / 4)
    half = [
        *_bent((left, base), (left, waist), (left + bend, waist)),
        *_bent((middle - bend, waist), (middle, waist), (middle, base - height)),
    ]
    mirrored = [(left + right - x, y) for x, y in reversed(half)]
    return Polyline((*half, *mirrored), colour, 1.6)


def _bent(start: Place, control: Place, end: Place) -> list[Place]:
    """A quadratic curve."""
    found = []
    for i in range(9):
        t = i / 8
        a, b, c = (1 - t) ** 2, 2 * t * (1 - t), t**2
        x = a * start[0] + b * control[0] + c * end[0]
        found.append((x, a * start[1] + b * control[1] + c * end[1]))
    return found


_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


def svg(chart: Chart, *, pixels: float = 2.0) -> str:
    """A file of its own, `pixels` to a unit: title, drawing and legend, light and dark.

    >>> text = svg(Chart("Loss", "falls", ()))
    >>> text.startswith("<svg xmlns="), "prefers-color-scheme: dark" in text
    (True, True)
    """
    whole = sheet(chart)
    size = f'width="{pixels * whole.width:g}" height="{pixels * whole.height:g}"'
    style = f"<style>{css_variables()} text {{ font-family: {_FONT}; }}</style>"
    back = '<rect width="100%" height="100%" fill="var(--card)"/>'
    return _root(whole, f'xmlns="http://www.w3.org/2000/svg" {size} ', style + back) + "\n"


def figure(chart: Chart) -> str:
    """A figure of an HTML page: caption, drawing, and the legend as a list.

    The page gives the theme's variables (`charts.theme.css_variables`).

    >>> figure(Chart("A & B", "both", ()))[:53]
    '<figure class="chart"><figcaption>A &amp; B</figcapti'
    """
    small = f"<small>{safe_text(chart.note)}</small>" if chart.note else ""
    caption = f"<figcaption>{safe_text(chart.title)}{small}</figcaption>"
    inside = f"{caption}{_root(chart)}{legend_list(chart.legend)}"
    return f'<figure class="{safe_text(chart.kind)}">{inside}</figure>'


def legend_list(entries: Sequence[Entry]) -> str:
    """A legend of an HTML page: a list of names, each with a sample of how it is drawn."""
    items = "".join(
        f'<li><svg viewBox="0 0 30 14" aria-hidden="true">{_all(entry.marks)}</svg>'
        f"{safe_text(entry.name)}</li>"
        for entry in entries
    )
    return f'<ul class="legend">{items}</ul>' if items else ""


def _root(chart: Chart, attributes: str = "", before: str = "") -> str:
    body = _all(chart.marks)
    name = short_id(chart.title, chart.description, body)
    box = f"0 0 {chart.width:g} {chart.height:g}"
    return (
        f'<svg {attributes}viewBox="{box}" role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{safe_text(chart.title)}</title>'
        f'<desc id="{name}-d">{safe_text(chart.description)}</desc>{before}{body}</svg>'
    )


def _all(marks: Sequence[Mark]) -> str:
    return "".join(_drawn(mark) for mark in marks)


@singledispatch
def _drawn(mark: Mark) -> str:
    raise NotImplementedError(type(mark).__name__)


@_drawn.register
def _(mark: Polyline) -> str:
    fill = f'fill="{css_colour(mark.fill)}"'
    if mark.fill != "none" and mark.fill_opacity != 1.0:
        fill += f' fill-opacity="{mark.fill_opacity:g}"'
    path = "L".join(f"{_n(x)} {_n(y)}" for x, y in mark.points)
    stroke = _stroke(mark.colour, mark.width, mark.dash)
    if not path:
        return ""
    end = "z" if mark.closed else ""
    return _element(f'path d="M{path}{end}" {fill}{stroke}{_opacity(mark.opacity)}', mark.tip)


@_drawn.register
def _(mark: Line) -> str:
    (a, b), (c, d) = mark.start, mark.end
    stroke = _stroke(mark.colour, mark.width, mark.dash)
    drawn = _element(
        f'path d="M{_n(a)} {_n(b)}L{_n(c)} {_n(d)}"{stroke}{_opacity(mark.opacity)}', mark.tip
    )
    if not mark.arrow:
        return drawn
    head = "L".join(f"{_n(x)} {_n(y)}" for x, y in arrow_head(mark))
    colour = css_colour(mark.colour)
    return f'{drawn}<path d="M{head}z" fill="{colour}"{_opacity(mark.opacity)}/>'


@_drawn.register
def _(mark: Rect) -> str:
    size = f'width="{_n(mark.width)}" height="{_n(mark.height)}"'
    round_ = f' rx="{_n(mark.round)}"' if mark.round else ""
    edge = "" if mark.colour == "none" else f' stroke="{css_colour(mark.colour)}"'
    fill = css_colour(mark.fill)
    place = f'x="{_n(mark.x)}" y="{_n(mark.y)}"'
    return _element(
        f'rect {place} {size}{round_} fill="{fill}"{edge}{_opacity(mark.opacity)}', mark.tip
    )


@_drawn.register
def _(mark: Circle) -> str:
    edge = "" if mark.colour == "none" else _stroke(mark.colour, mark.width, ())
    place = f'cx="{_n(mark.x)}" cy="{_n(mark.y)}" r="{_n(mark.radius)}"'
    fill = css_colour(mark.fill)
    return _element(f'circle {place} fill="{fill}"{edge}{_opacity(mark.opacity)}', mark.tip)


@_drawn.register
def _(mark: Points) -> str:
    """All places as one path with a marker at each of its corners; those with a tip one by one."""
    if not len(mark.places):
        return ""
    edge = "" if mark.edge == "none" else f' stroke="{css_colour(mark.edge)}" stroke-width=".7"'
    look = f'd="{_marker(mark.kind)}" fill="{css_colour(mark.colour)}"{edge}'
    scale = f" scale({mark.size:g})" if mark.size != 1.0 else ""
    if mark.tips or len(mark.places) < 4:
        tips = mark.tips or [""] * len(mark.places)
        return "".join(
            _element(
                f'path {look} transform="translate({_n(x)} {_n(y)}){scale}"'
                f"{_opacity(mark.opacity)}",
                tip,
            )
            for (x, y), tip in zip(mark.places, tips, strict=True)
        )
    key = short_id(look, scale, *mark.places)
    path = "L".join(f"{_n(x)} {_n(y)}" for x, y in mark.places)
    ends = "".join(f' marker-{at}="url(#{key})"' for at in ("start", "mid", "end"))
    turned = f' transform="{scale.strip()}"' if scale else ""
    return (
        f'<defs><marker id="{key}" overflow="visible" markerUnits="userSpaceOnUse">'
        f"<path {look}{turned}/></marker></defs>"
        f'<path d="M{path}" fill="none" stroke="none"{_opacity(mark.opacity)}{ends}/>'
    )


@_drawn.register
def _(mark: Text) -> str:
    place = f'x="{_n(mark.x)}" y="{_n(mark.y)}"'
    if mark.turn:
        place = f'transform="translate({_n(mark.x)} {_n(mark.y)}) rotate({mark.turn:g})"'
    anchor = "" if mark.anchor == "start" else f' text-anchor="{mark.anchor}"'
    # As a style, so that no rule of a page's for all its text comes before it.
    style = f"font-size:{mark.size:g}px;fill:{css_colour(mark.colour)}"
    style += ";font-weight:700" * mark.bold
    if mark.halo:
        style += ";paint-order:stroke;stroke:var(--card);stroke-width:3px;stroke-linejoin:round"
    tip = f"<title>{safe_text(mark.tip)}</title>" if mark.tip else ""
    return f'<text {place}{anchor} style="{style}">{tip}{safe_text(mark.text)}</text>'


@_drawn.register
def _(mark: Picture) -> str:
    data = base64.b64encode(mark.png).decode()
    place = f'x="{_n(mark.x)}" y="{_n(mark.y)}" width="{_n(mark.width)}" height="{_n(mark.height)}"'
    return (
        f'<image {place} preserveAspectRatio="none" href="data:image/png;base64,{data}">'
        f"<title>{safe_text(mark.alt)}</title></image>"
    )


@_drawn.register
def _(mark: Group) -> str:
    inside = _all(mark.marks)
    if mark.clip is not None:
        left, top, width, height = map(_n, mark.clip)
        inside = (
            f'<svg x="{left}" y="{top}" width="{width}" height="{height}" '
            f'viewBox="{left} {top} {width} {height}" overflow="hidden">{inside}</svg>'
        )
    moves = [f"translate({_n(mark.x)} {_n(mark.y)})"] * bool(mark.x or mark.y)
    moves += [f"scale({mark.scale:g})"] * (mark.scale != 1.0)
    moved = f' transform="{" ".join(moves)}"' if moves else ""
    if not moved and mark.opacity == 1.0:
        return inside
    return f"<g{moved}{_opacity(mark.opacity)}>{inside}</g>"


def _marker(kind: str) -> str:
    if kind == "circle":
        return "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z"
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in MARKERS[kind]) + "z"


def _stroke(colour: str, width: float, dash: Sequence[float]) -> str:
    if colour == "none":
        return ""
    dashed = f' stroke-dasharray="{" ".join(f"{d:g}" for d in dash)}"' if dash else ""
    ends = ' stroke-linejoin="round" stroke-linecap="round"' * (width > 1.2 and not dash)
    return f' stroke="{css_colour(colour)}" stroke-width="{width:g}"{dashed}{ends}'


def _element(inside: str, tip: str) -> str:
    if not tip:
        return f"<{inside}/>"
    return f"<{inside}><title>{safe_text(tip)}</title></{inside.partition(' ')[0]}>"


def _opacity(value: float) -> str:
    return "" if value == 1.0 else f' opacity="{value:g}"'


def _n(value: float) -> str:
    """A place to a hundredth of a unit."""
    return f"{round(float(value), 2):g}" if abs(value) < 1e4 else f"{value:.0f}"
