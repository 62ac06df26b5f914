"""Charts as SVG, in a page or as a file of its own, light and dark; and as PNG, the light theme."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import singledispatch
from pathlib import Path
from tempfile import TemporaryDirectory

from uncollapse._base.check import check_number
from uncollapse.charts.layout import sheet
from uncollapse.charts.marks import (
    LIGHT,
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
    css_variables,
)
from uncollapse.charts.text import safe_text, short_id

__all__ = ["figure", "legend_list", "png", "svg"]

_FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
# The first one found; DejaVu has every sign that we write.
_PNG_FONTS = "'DejaVu Sans', 'Noto Sans', 'Liberation Sans', Arial, sans-serif"


def svg(chart: Chart, *, pixels: float = 2.0) -> str:
    """A file of its own, `pixels` to a unit: title, drawing and legend, light and dark.

    >>> text = svg(Chart("Loss", "falls", ()))
    >>> text.startswith("<svg xmlns="), "prefers-color-scheme: dark" in text
    (True, True)
    """
    return _file(chart, pixels, f"{css_variables()} text {{ font-family: {_FONTS}; }}")


def png(chart: Chart, scale: float = 2.0) -> bytes:
    """The bytes of a PNG file in the light theme, `scale` pixels to a unit.

    >>> png(Chart("Loss", "falls", ()))[:4]
    b'\\x89PNG'
    """
    import resvg_py
    from PIL import ImageFont

    check_number("scale", scale, 0.1, 20.0)
    text = _file(chart, scale, f"text {{ font-family: {_PNG_FONTS}; }}")
    for name, value in LIGHT.items():
        text = text.replace(f"var(--{name})", value)
    # Words whose fonts are not installed would not be drawn at all: Pillow brings one.
    font = ImageFont.load_default(12)
    if not isinstance(font, ImageFont.FreeTypeFont):
        raise RuntimeError("no font for the words of a PNG: Pillow was built without FreeType")
    with TemporaryDirectory() as folder:
        file = Path(folder, "font.ttf")
        file.write_bytes(font.font_bytes)
        family = font.getname()[0]
        return resvg_py.svg_to_bytes(
            svg_string=text, font_files=[str(file)], sans_serif_family=family
        )


def figure(chart: Chart) -> str:
    """A figure of an HTML page: caption, drawing, and the legend as a list.

    The page gives the theme's variables (`css_variables`).

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


def _file(chart: Chart, pixels: float, style: str) -> str:
    whole = sheet(chart)
    width, height = math.ceil(pixels * whole.width), math.ceil(pixels * whole.height)
    size = f'xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
    back = '<rect width="100%" height="100%" fill="var(--card)"/>'
    return _root(whole, size, f"<style>{style}</style>{back}") + "\n"


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
    if not len(mark.points):
        return ""
    look = _look(mark.fill, mark.colour, mark.width, mark.opacity, mark.dash)
    if mark.fill != "none":
        look["fill-opacity"] = _share(mark.fill_opacity)
    return _element("path", mark.tip, look, d=_path(mark.points) + "z" * mark.closed)


@_drawn.register
def _(mark: Line) -> str:
    line = Polyline((mark.start, mark.end), mark.colour, mark.width, mark.dash)
    head = Polyline(_arrow_head(mark), "none", closed=True, fill=mark.colour)
    shown = (line, head) if mark.arrow else (line,)
    return _all([replace(part, opacity=mark.opacity, tip=mark.tip) for part in shown])


@_drawn.register
def _(mark: Rect) -> str:
    look = _box(mark) | _look(mark.fill, mark.colour, 1.0, mark.opacity)
    return _element("rect", mark.tip, look, rx=_n(mark.round) if mark.round else "")


@_drawn.register
def _(mark: Circle) -> str:
    look = _look(mark.fill, mark.colour, mark.width, mark.opacity)
    return _element("circle", mark.tip, look, cx=_n(mark.x), cy=_n(mark.y), r=_n(mark.radius))


@_drawn.register
def _(mark: Points) -> str:
    """All places as one path with a marker at each of its corners; those with a tip one by one."""
    if not len(mark.places):
        return ""
    look = {"d": MARKERS[mark.kind], **_look(mark.colour, mark.edge, 0.7)}
    scale = f"scale({mark.size:g})" if mark.size != 1.0 else ""
    opacity = {"opacity": _share(mark.opacity)}
    if mark.tips or len(mark.places) < 4:
        tips = mark.tips or [""] * len(mark.places)
        return "".join(
            _element("path", tip, look | opacity, transform=f"translate({_n(x)} {_n(y)}){scale}")
            for (x, y), tip in zip(mark.places, tips, strict=True)
        )
    key = short_id(look, scale, *mark.places)
    marker = _element("path", "", look, transform=scale)
    ends = {f"marker-{at}": f"url(#{key})" for at in ("start", "mid", "end")}
    line = _element("path", "", ends | opacity, d=_path(mark.places), fill="none")
    return (
        f'<defs><marker id="{key}" overflow="visible" markerUnits="userSpaceOnUse">'
        f"{marker}</marker></defs>{line}"
    )


@_drawn.register
def _(mark: Text) -> str:
    place = f'x="{_n(mark.x)}" y="{_n(mark.y)}"'
    if mark.turn:
        place = f'transform="translate({_n(mark.x)} {_n(mark.y)}) rotate({mark.turn:g})"'
    anchor = "" if mark.anchor == "start" else f' text-anchor="{mark.anchor}"'
    # As a style, so that no rule of a page's for all its text comes before it.
    style = f"font-size:{mark.size:g}px;fill:{_css(mark.colour)}"
    style += ";font-weight:700" * mark.bold
    if mark.halo:
        style += ";paint-order:stroke;stroke:var(--card);stroke-width:3px;stroke-linejoin:round"
    return f'<text {place}{anchor} style="{style}">{_title(mark.tip)}{safe_text(mark.text)}</text>'


@_drawn.register
def _(mark: Picture) -> str:
    href = f"data:image/png;base64,{base64.b64encode(mark.png).decode()}"
    return _element("image", mark.alt, _box(mark), preserveAspectRatio="none", href=href)


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
    attributes = {"transform": " ".join(moves), "opacity": _share(mark.opacity)}
    return f"<g{_written(attributes)}>{inside}</g>" if any(attributes.values()) else inside


def _arrow_head(line: Line) -> list[Place]:
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


def _box(mark: Rect | Picture) -> dict[str, str]:
    return {key: _n(getattr(mark, key)) for key in ("x", "y", "width", "height")}


def _look(
    fill: str, colour: str, width: float, opacity: float = 1.0, dash: Sequence[float] = ()
) -> dict[str, str]:
    look = {"fill": _css(fill), "opacity": _share(opacity)}
    if colour != "none":
        ends = "round" if width > 1.2 and not dash else ""
        look |= {"stroke": _css(colour), "stroke-width": f"{width:g}"}
        look |= {"stroke-dasharray": " ".join(f"{part:g}" for part in dash)}
        look |= {"stroke-linejoin": ends, "stroke-linecap": ends}
    return look


def _element(name: str, tip: str, look: dict[str, str], **attributes: str) -> str:
    inside = f"{name}{_written(attributes | look)}"
    return f"<{inside}>{_title(tip)}</{name}>" if tip else f"<{inside}/>"


def _written(attributes: dict[str, str]) -> str:
    """Attributes that are not empty."""
    return "".join(f' {key}="{value}"' for key, value in attributes.items() if value)


def _title(tip: str) -> str:
    return f"<title>{safe_text(tip)}</title>" if tip else ""


def _css(colour: str) -> str:
    """A variable for a name of the theme; `#rrggbb` and `none` as they are."""
    return f"var(--{colour})" if colour in LIGHT else colour


def _share(value: float) -> str:
    return "" if value == 1.0 else f"{value:g}"


def _path(places: Sequence[Place]) -> str:
    return "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in places)


def _n(value: float) -> str:
    """A place to a hundredth of a unit."""
    return f"{round(float(value), 2):g}" if abs(value) < 1e4 else f"{value:.0f}"
