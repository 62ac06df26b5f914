"""Queries and their nearest neighbours as one picture, right and wrong marked: EPS Fig. 4."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw

from uncollapse._base.check import InputError
from uncollapse._base.files import written_aside
from uncollapse.report.pictures import Images, picture_of, thumbnail

__all__ = ["contact_sheet", "save_png"]

# Frames differ by colour, by their line (whole or broken) and by the mark in the corner.
_RIGHT, _WRONG, _PLAIN = "#11834f", "#c0261c", "#8a93a3"
_FRAME, _GAP, _AFTER_QUERY, _BADGE = 3, 6, 14, 20


def contact_sheet(
    queries: Images,
    neighbours: Sequence[Images],
    right: Sequence[Sequence[bool | None]] | None = None,
    *,
    cell: int = 72,
) -> Image.Image:
    """One row per query: the query first, then its neighbours, nearest first.

    A neighbour that is right has a whole green frame and a tick, a wrong one a broken red frame and
    a cross; where `right` is None, in whole or in part, a thin grey one. Images are anything
    `picture_of` takes. The ground is transparent.

    >>> grey = Image.new("L", (28, 28), 128)
    >>> contact_sheet([grey], [[grey, grey]], [[True, False]]).size
    (260, 84)
    """
    if right is None:
        right = [[None] * len(row) for row in neighbours]
    if not len(queries) == len(neighbours) == len(right) or not len(queries):
        given = f"{len(queries)} queries, {len(neighbours)} rows, {len(right)} rows of marks"
        raise InputError("queries", given, "as many queries as rows of neighbours and of marks")
    most = max(len(row) for row in neighbours)
    step = cell + 2 * _FRAME + _GAP
    size = (step * (most + 1) - _GAP + _AFTER_QUERY * bool(most), step * len(queries))
    sheet = Image.new("RGBA", size, (0, 0, 0, 0))
    draw = ImageDraw.Draw(sheet)
    for i, (query, row, marks) in enumerate(zip(queries, neighbours, right, strict=True)):
        if len(row) != len(marks):
            raise InputError(
                "right", f"{len(marks)} marks in row {i}", f"{len(row)}, one per neighbour"
            )
        top = i * step + _GAP // 2
        _place(sheet, draw, query, (0, top), cell, None)
        for j, (neighbour, mark) in enumerate(zip(row, marks, strict=True), 1):
            _place(sheet, draw, neighbour, (j * step + _AFTER_QUERY, top), cell, mark)
    return sheet


def save_png(sheet: Image.Image, path: str | Path) -> Path:
    """Write the picture as PNG; folders are made, and a reader never sees a part of it."""
    target = Path(path)
    with written_aside(target) as aside:
        sheet.save(aside, "PNG")
    return target


def _place(
    sheet: Image.Image,
    draw: ImageDraw.ImageDraw,
    sample: object,
    at: tuple[int, int],
    cell: int,
    mark: bool | None,
) -> None:
    x, y = at
    side = cell + 2 * _FRAME
    sheet.paste(thumbnail(picture_of(sample), cell), (x + _FRAME, y + _FRAME))
    if mark is None:
        draw.rectangle((x + 2, y + 2, x + side - 3, y + side - 3), outline=_PLAIN, width=1)
        return
    colour = _RIGHT if mark else _WRONG
    draw.rectangle((x, y, x + side - 1, y + side - 1), outline=colour, width=_FRAME)
    if not mark:  # broken line: gaps cut out of the frame
        for start in range(6, side - 6, 12):
            for gap in (
                (x + start, y, x + start + 4, y + _FRAME - 1),
                (x + start, y + side - _FRAME, x + start + 4, y + side - 1),
                (x, y + start, x + _FRAME - 1, y + start + 4),
                (x + side - _FRAME, y + start, x + side - 1, y + start + 4),
            ):
                draw.rectangle(gap, fill=(0, 0, 0, 0))
    _badge(draw, (x + side - _BADGE, y + side - _BADGE), colour, tick=mark)


def _badge(draw: ImageDraw.ImageDraw, at: tuple[int, int], colour: str, *, tick: bool) -> None:
    x, y = at
    draw.rectangle((x, y, x + _BADGE - 1, y + _BADGE - 1), fill=colour)
    if tick:
        corners = [(x + 4, y + 10), (x + 8, y + 14), (x + 15, y + 5)]
        draw.line(corners, fill="white", width=3, joint="curve")
    else:
        draw.line((x + 5, y + 5, x + 14, y + 14), fill="white", width=3)
        draw.line((x + 14, y + 5, x + 5, y + 14), fill="white", width=3)
