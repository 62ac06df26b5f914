"""Charts as PNG: the light theme, drawn three times as large and brought down for smooth edges."""

from __future__ import annotations

import io
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, singledispatchmethod

from PIL import Image, ImageDraw, ImageFont

from uncollapse._base.check import check_number
from uncollapse.charts.layout import sheet
from uncollapse.charts.marks import (
    MARKERS,
    Chart,
    Circle,
    Group,
    Line,
    Mark,
    Picture,
    Place,
    Points,
    Polyline,
    Rect,
    Text,
    rgb,
)
from uncollapse.charts.render_svg import arrow_head, dashed

__all__ = ["Font", "font", "image", "png", "writable"]


# Fonts for pixels: a sans serif found, or Pillow's own with near words for rare characters.

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

# The first one found; DejaVu has every sign that we write.
_NAMES = {
    False: ("DejaVuSans.ttf", "NotoSans-Regular.ttf", "LiberationSans-Regular.ttf", "Arial.ttf"),
    True: ("DejaVuSans-Bold.ttf", "NotoSans-Bold.ttf", "LiberationSans-Bold.ttf", "Arial_Bold.ttf"),
}
_NEAR = {
    "α": "alpha", "β": "beta", "ρ": "rho", "σ": "sigma", "→": "->", "×": "x", "✗": "x", "✓": "ok",
    "–": "-", "—": "-", "−": "-", "∞": "inf", "≥": ">=", "≤": "<=", "\N{NO-BREAK SPACE}": " ",
}  # fmt: skip


@cache
def font(size: float, bold: bool = False) -> Font:
    """The font of a size in pixels."""
    for name in _NAMES[bold]:
        try:
            return ImageFont.truetype(name, size)
        except OSError:
            continue
    return ImageFont.load_default(size)


def writable(text: str, of: Font) -> str:
    """The text with every character that the font lacks put in other words."""
    return "".join(c if c.isspace() or _has(of, c) else _near(of, c) for c in text)


def _near(of: Font, character: str) -> str:
    known = _NEAR.get(character) or unicodedata.normalize("NFKD", character)
    return "".join(c for c in known if c == " " or _has(of, c)) or "?"


@cache
def _has(of: Font, character: str) -> bool:
    """Whether it is drawn otherwise than a character that no font has."""
    if character in "?":
        return True
    return bytes(of.getmask(character)) != bytes(of.getmask("\ufffe"))


_FINER = 3


def png(chart: Chart, scale: float = 2.0) -> bytes:
    """The bytes of a PNG file, `scale` pixels to a unit: title, drawing and legend.

    >>> png(Chart("Loss", "falls", ()))[:4]
    b'\\x89PNG'
    """
    file = io.BytesIO()
    image(chart, scale).save(file, "PNG", optimize=True)
    return file.getvalue()


def image(chart: Chart, scale: float = 2.0) -> Image.Image:
    """The same as a picture in memory."""
    check_number("scale", scale, 0.1, 20.0)
    whole = sheet(chart)
    size = (math.ceil(scale * whole.width), math.ceil(scale * whole.height))
    canvas = Image.new("RGB", (_FINER * size[0], _FINER * size[1]), rgb("card")[:3])
    _Pen(canvas, _FINER * scale, 0.0, 0.0).draw(whole.marks)
    return canvas.reduce(_FINER)


@dataclass(frozen=True)
class _Pen:
    """Draws marks on a picture, `unit` pixels to a unit, from a corner."""

    on: Image.Image
    unit: float
    x: float
    y: float

    def draw(self, marks: Sequence[Mark]) -> None:
        for mark in marks:
            self.one(mark)

    @singledispatchmethod
    def one(self, mark: Mark) -> None:
        raise NotImplementedError(type(mark).__name__)

    @one.register
    def _(self, mark: Polyline) -> None:
        if not len(mark.points):
            return
        if mark.fill != "none" and len(mark.points) > 2:
            self._area(mark.points, mark.fill, mark.opacity * mark.fill_opacity)
        line = [*mark.points, mark.points[0]] if mark.closed else mark.points
        self._stroke(line, mark.colour, mark.width, mark.dash, mark.opacity)

    @one.register
    def _(self, mark: Line) -> None:
        self._stroke((mark.start, mark.end), mark.colour, mark.width, mark.dash, mark.opacity)
        if mark.arrow:
            self._area(arrow_head(mark), mark.colour, mark.opacity)

    @one.register
    def _(self, mark: Rect) -> None:
        if mark.width <= 0 or mark.height <= 0:
            return
        (left, top), (right, bottom) = (
            self._at((mark.x, mark.y)),
            self._at((mark.x + mark.width, mark.y + mark.height)),
        )
        box = (left, top, max(left, right - 1), max(top, bottom - 1))
        fill = None if mark.fill == "none" else rgb(mark.fill, mark.opacity)
        edge = None if mark.colour == "none" else rgb(mark.colour, mark.opacity)
        radius, width = mark.round * self.unit, max(1, round(self.unit))
        self._pen.rounded_rectangle(box, radius, fill=fill, outline=edge, width=width)

    @one.register
    def _(self, mark: Circle) -> None:
        x, y = self._at((mark.x, mark.y))
        reach = mark.radius * self.unit
        fill = None if mark.fill == "none" else rgb(mark.fill, mark.opacity)
        edge = None if mark.colour == "none" else rgb(mark.colour, mark.opacity)
        box = (x - reach, y - reach, x + reach, y + reach)
        self._pen.ellipse(box, fill=fill, outline=edge, width=max(1, round(mark.width * self.unit)))

    @one.register
    def _(self, mark: Points) -> None:
        shape, pen = MARKERS[mark.kind], self._pen
        size = mark.size * self.unit
        fill = rgb(mark.colour, mark.opacity)
        edge = None if mark.edge == "none" else rgb(mark.edge, mark.opacity)
        width = max(1, round(0.7 * size))
        for place in mark.places:
            x, y = self._at(place)
            outline = [(x + size * a, y + size * b) for a, b in shape]
            pen.polygon(outline, fill)
            if edge is not None:
                pen.line([*outline, *outline[:2]], edge, width, "curve")

    @one.register
    def _(self, mark: Text) -> None:
        face = font(mark.size * self.unit, mark.bold)
        text = writable(mark.text, face)
        anchor = {"start": "ls", "middle": "ms", "end": "rs"}[mark.anchor]
        halo = round(1.5 * self.unit) if mark.halo else 0
        x, y = self._at((mark.x, mark.y))
        if not mark.turn:
            for stroke, colour in ((halo, "card"), (0, mark.colour)):
                if stroke or colour == mark.colour:
                    self._pen.text((x, y), text, rgb(colour), face, anchor, stroke_width=stroke)
            return
        reach = math.ceil(face.getlength(text) + mark.size * self.unit) + 2
        mask = Image.new("L", (2 * reach, 2 * reach))
        ImageDraw.Draw(mask).text((reach, reach), text, 255, face, anchor)
        turned = mask.rotate(-mark.turn, Image.Resampling.BICUBIC)
        self.on.paste(rgb(mark.colour)[:3], (round(x - reach), round(y - reach)), turned)

    @one.register
    def _(self, mark: Picture) -> None:
        (left, top), (right, bottom) = (
            self._at((mark.x, mark.y)),
            self._at((mark.x + mark.width, mark.y + mark.height)),
        )
        size = max(1, round(right - left)), max(1, round(bottom - top))
        shown = Image.open(io.BytesIO(mark.png)).convert("RGBA").resize(size)
        self.on.paste(shown, (round(left), round(top)), shown)

    @one.register
    def _(self, mark: Group) -> None:
        x, y = self.x + mark.x * self.unit, self.y + mark.y * self.unit
        if mark.clip is None and mark.opacity == 1.0:
            _Pen(self.on, self.unit * mark.scale, x, y).draw(mark.marks)
            return
        aside = self.on.copy()
        pen = _Pen(aside, self.unit * mark.scale, x, y)
        pen.draw(mark.marks)
        if mark.opacity != 1.0:
            aside = Image.blend(self.on, aside, mark.opacity)
        box = (0, 0, *aside.size)
        if mark.clip is not None:
            left, top, width, height = mark.clip
            corners = (*pen._at((left, top)), *pen._at((left + width, top + height)))
            box = tuple(max(0, round(c)) for c in corners)  # type: ignore[assignment]
        self.on.paste(aside.crop(box), box[:2])

    @property
    def _pen(self) -> ImageDraw.ImageDraw:
        return ImageDraw.Draw(self.on, "RGBA")

    def _at(self, place: Place) -> Place:
        return self.x + place[0] * self.unit, self.y + place[1] * self.unit

    def _area(self, points: Sequence[Place], fill: str, opacity: float) -> None:
        if len(points) > 2:
            self._pen.polygon([self._at(place) for place in points], rgb(fill, opacity))

    def _stroke(
        self,
        points: Sequence[Place],
        colour: str,
        width: float,
        dash: Sequence[float],
        opacity: float,
    ) -> None:
        if colour == "none" or not len(points):
            return
        pieces = dashed(points, dash) if dash else [points]
        thick = max(1, round(width * self.unit))
        for piece in pieces:
            places = [self._at(place) for place in piece]
            self._pen.line(
                places, rgb(colour, opacity), thick, "curve" if len(places) > 2 else None
            )
