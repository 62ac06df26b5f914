"""Queries and their nearest neighbours: as pictures, or else as texts or names."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageOps
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, as_rows
from uncollapse._base.check import InputError
from uncollapse._base.files import written_aside
from uncollapse.health.figures import balanced_rows
from uncollapse.metrics.nearest_rows import nearest_of

# Samples as pictures: arrays and tensors of any usual layout, image files, Pillow images.

Images = Tensor | Array | Sequence[Any]
Marks = Sequence[Sequence[bool | None]]
_READ = 256  # pixels of a side that are enough for a page


def picture_of(sample: object) -> Image.Image:
    """One sample as an RGB picture: H × W, C × H × W, H × W × C, a path or a Pillow image.

    Floats in [0, 1] are brightness; other ranges are stretched to it.

    >>> picture_of(np.zeros((1, 4, 6), np.uint8)).size
    (6, 4)
    """
    if isinstance(sample, Image.Image):
        return sample.convert("RGB")
    if isinstance(sample, str | Path):
        with Image.open(sample) as opened:
            opened.draft(None, (_READ, _READ))  # large JPEGs are read in a fraction of the time
            return ImageOps.exif_transpose(opened).convert("RGB")
    array = sample.detach().cpu().numpy() if isinstance(sample, Tensor) else np.asarray(sample)
    if array.ndim == 3 and array.shape[0] in (1, 3, 4):
        array = np.moveaxis(array, 0, -1)
    if array.ndim == 3 and array.shape[-1] == 1:
        array = array[..., 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[-1] not in (3, 4)):
        raise InputError("images", f"a sample of shape {array.shape}", "H × W or C × H × W pixels")
    if array.dtype != np.uint8:
        array = array.astype(np.float64)
        low, high = float(array.min()), float(array.max())
        if low < 0.0 or high > 1.0:
            array = (array - low) / ((high - low) or 1.0)
        array = (255 * array).round().astype(np.uint8)
    return Image.fromarray(np.ascontiguousarray(array)).convert("RGB")


def thumbnail(picture: Image.Image, side: int) -> Image.Image:
    """The picture inside a square of `side` pixels; small ones are enlarged without blur.

    >>> thumbnail(Image.new("RGB", (4, 8)), 32).size
    (32, 32)
    """
    scale = side / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    how = Image.Resampling.BOX if scale >= 2 else Image.Resampling.LANCZOS
    square = Image.new("RGB", (side, side), "white")
    square.paste(picture.resize(size, how), ((side - size[0]) // 2, (side - size[1]) // 2))
    return square


def embedded(picture: Image.Image, form: str = "png") -> dict[str, object]:
    """Source, width and height of a picture inside a page, which then needs no other file."""
    buffer = io.BytesIO()
    picture.save(buffer, form, optimize=True)
    source = f"data:image/{form};base64,{base64.b64encode(buffer.getvalue()).decode()}"
    return {"source": source, "width": picture.width, "height": picture.height}


_SPRITE, _ACROSS = 48, 50  # pixels of a small picture, and how many stand in a line


def sprite(images: Images | Mapping[int, Any], rows: Array) -> dict[str, object]:
    """Small pictures of the rows in one large one, line by line: a page loads it once."""
    lines = -(-len(rows) // _ACROSS)
    whole = Image.new("RGB", (_SPRITE * _ACROSS, _SPRITE * lines), "white")
    for i, row in enumerate(rows.tolist()):
        place = _SPRITE * (i % _ACROSS), _SPRITE * (i // _ACROSS)
        whole.paste(thumbnail(picture_of(images[row]), _SPRITE), place)
    return embedded(whole, "jpeg") | {"side": _SPRITE, "across": _ACROSS}


# Queries and their nearest neighbours as one picture, right and wrong marked: EPS Fig. 4.

# Frames differ by color, by their line (whole or broken) and by the mark in the corner.
_RIGHT, _WRONG, _PLAIN, _CLEAR = "#11834f", "#c0261c", "#8a93a3", (0, 0, 0, 0)
_CELL, _FRAME, _GAP, _AFTER_QUERY, _BADGE = 72, 3, 6, 14, 20


def contact_sheet(
    queries: Images, neighbours: Sequence[Images], right: Marks | None = None
) -> Image.Image:
    """One row per query: the query first, then its neighbours, nearest first.

    A neighbour that is right has a whole green frame and a tick, a wrong one a broken red frame and
    a cross; where `right` is None, in whole or in part, a thin grey one. Images are anything
    `picture_of` takes. The ground is transparent.

    >>> grey = Image.new("L", (28, 28), 128)
    >>> contact_sheet([grey], [[grey, grey]], [[True, False]]).size
    (260, 84)
    """
    lengths = [len(row) for row in neighbours]
    if right is None:
        right = [[None] * length for length in lengths]
    marks = [len(row) for row in right]
    if not lengths or len(queries) != len(lengths) or marks != lengths:
        given = f"{len(queries)} queries, rows of {lengths} neighbours and {marks} marks"
        allowed = "a row of neighbours for each query, and a mark for each neighbour"
        raise InputError("queries", given, allowed)
    step = _CELL + 2 * _FRAME + _GAP
    width = step * (max(lengths) + 1) - _GAP + _AFTER_QUERY * bool(max(lengths))
    sheet = Image.new("RGBA", (width, step * len(queries)), _CLEAR)
    for i, (query, row, signs) in enumerate(zip(queries, neighbours, right, strict=True)):
        top = i * step + _GAP // 2
        sheet.paste(_framed(query, None), (0, top))
        for j, (neighbour, mark) in enumerate(zip(row, signs, strict=True), 1):
            sheet.paste(_framed(neighbour, mark), (j * step + _AFTER_QUERY, top))
    return sheet


def _framed(sample: object, mark: bool | None) -> Image.Image:
    side = _CELL + 2 * _FRAME
    tile = Image.new("RGBA", (side, side), _CLEAR)
    draw = ImageDraw.Draw(tile)
    tile.paste(thumbnail(picture_of(sample), _CELL), (_FRAME, _FRAME))
    if mark is None:
        draw.rectangle((2, 2, side - 3, side - 3), outline=_PLAIN, width=1)
        return tile
    color = _RIGHT if mark else _WRONG
    draw.rectangle((0, 0, side - 1, side - 1), outline=color, width=_FRAME)
    if not mark:  # a broken line: gaps cut out of the frame
        for start in range(6, side - 6, 12):
            for edge in (0, side - _FRAME):
                draw.rectangle((start, edge, start + 4, edge + _FRAME - 1), fill=_CLEAR)
                draw.rectangle((edge, start, edge + _FRAME - 1, start + 4), fill=_CLEAR)
    at = side - _BADGE
    draw.rectangle((at, at, side - 1, side - 1), fill=color)
    strokes = [[(at + 5, at + 5), (at + 14, at + 14)], [(at + 14, at + 5), (at + 5, at + 14)]]
    if mark:  # a tick, no cross
        strokes = [[(at + 4, at + 10), (at + 8, at + 14), (at + 15, at + 5)]]
    for stroke in strokes:
        draw.line(stroke, fill="white", width=3, joint="curve")
    return tile


def save_png(sheet: Image.Image, path: str | Path) -> Path:
    """Write the picture as PNG, atomically; missing folders are created."""
    target = Path(path)
    with written_aside(target) as aside:
        sheet.save(aside, "PNG")
    return target


_LONGEST = 240  # characters of a text on a page
_QUERIES = 6


@dataclass(frozen=True)
class Neighbourhood:
    """`rows[q]` are nearest to row `queries[q]`; `right` says which share its label, if known."""

    queries: Array
    rows: Array
    right: Array | None = None

    def by(self, labels: Array) -> Neighbourhood:
        """The same neighbours, judged by other labels."""
        return replace(self, right=labels[self.rows] == labels[self.queries][:, None])

    def words(self, kind: str = "label") -> str:
        """What the pictures show, in a sentence."""
        if self.right is None:
            return f"{len(self.queries)} random queries and their {self.rows.shape[1]} neighbours"
        return f"{int(self.right.sum())} of {self.right.size} neighbours share the query's {kind}"


def spread_rows(labels: Array | None, n: int, most: int) -> Array:
    """At most so many of n rows, sampled evenly over classes; without labels drawn from all."""
    ids = np.zeros(n, np.int64) if labels is None else np.unique(labels, return_inverse=True)[1]
    return balanced_rows(ids, most, np.random.default_rng(0))


def neighbourhood(embeddings: ArrayLike, labels: Array | None = None, k: int = 6) -> Neighbourhood:
    """Queries drawn at random, every class alike, each with the k rows nearest to it.

    >>> near = neighbourhood([[0.0], [1.0], [5.0], [6.5]], np.array([0, 0, 1, 1]), k=1)
    >>> near.rows.tolist(), near.right.tolist()
    ([[1], [0], [3], [2]], [[True], [True], [True], [True]])
    """
    z = as_rows(embeddings, "embeddings", min_rows=2).detach().cpu()
    chosen = spread_rows(labels, len(z), _QUERIES)
    if labels is not None:
        chosen = chosen[np.argsort(labels[chosen], kind="stable")]
    neighbours = Neighbourhood(chosen, nearest_of(z, chosen, min(k, len(z) - 1)))
    return neighbours if labels is None else neighbours.by(labels)


def sheet_picture(
    near: Neighbourhood, images: Images | Mapping[int, Any], *, kind: str = "label", title: str = ""
) -> dict[str, object]:
    """A contact sheet for a page: the query in the first column, ✓ right and ✗ wrong."""
    sheet = contact_sheet(
        [images[int(q)] for q in near.queries],
        [[images[int(r)] for r in row] for row in near.rows],
        None if near.right is None else near.right.tolist(),
    )
    words = near.words(kind)
    return embedded(sheet) | {"words": words, "title": title or words, "small": words * bool(title)}


def word_lists(
    near: Neighbourhood,
    words: Array | Mapping[int, str],
    *labels: Array | None,
    kind: str = "label",
    title: str = "",
) -> dict[str, object]:
    """Texts or names for a page instead of pictures: each query with its nearest neighbours.

    `words` and `labels` (coarse, fine; those that are known) are by row.
    """
    known = [one for one in labels if one is not None]

    def entry(row: int, right: bool | None = None) -> dict[str, object]:
        label = " / ".join(str(one[row]) for one in known)
        return {"text": short_line(str(words[row])), "label": label, "right": right}

    asked = []
    for q, row in enumerate(near.rows.tolist()):
        marks = [None] * len(row) if near.right is None else near.right[q].tolist()
        entries = [entry(r, mark) for r, mark in zip(row, marks, strict=True)]
        asked.append(entry(int(near.queries[q])) | {"near": entries})
    return {"title": title, "words": near.words(kind), "asked": asked}


def short_line(text: str, most: int = _LONGEST) -> str:
    """One line, its beginning where it is longer than so many characters."""
    line, most = " ".join(text.split()), min(most, _LONGEST)
    return line if len(line) <= most else f"{line[: most - 1]}…"
