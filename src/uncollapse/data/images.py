"""Image files decoded to uint8 arrays of one size; conversions are reported."""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from uncollapse._base.arrays import Array
from uncollapse._base.check import InputError, check_choice, check_int
from uncollapse._base.progress import Report
from uncollapse.data.listing import DataError, ImageRef, LoadReport

FITS = ("cover", "contain", "stretch")
_AHEAD = 64  # images decoded at a time
_ALPHA = {"RGBA", "LA", "PA", "RGBa", "La"}
_GREY = {"1", "L", "I", "F", "I;16", "I;16L", "I;16B", "I;16N"}
_BROKEN_FILE = (OSError, EOFError, struct.error, zlib.error, zipfile.BadZipFile)
# A SyntaxError is Pillow's word for a broken PNG.
_BROKEN = (*_BROKEN_FILE, SyntaxError, ValueError, IndexError, Image.DecompressionBombError)


class UnreadableImageError(DataError):
    """A file that is there but cannot be decoded."""


@dataclass(frozen=True)
class Decoding:
    """How images are decoded: to `size` (height, width), `channels` 1 or 3.

    `fit`: `"cover"` scales until the box is covered and cuts the middle, `"contain"` scales until
    it fits and pads with black, `"stretch"` changes the aspect ratio. `invert` makes dark ink
    bright. Before that, images are cropped to the middle share `middle` of their height and width.
    """

    size: tuple[int, int]
    channels: int = 3
    fit: str = "stretch"
    invert: bool = False
    middle: float = 1.0

    def __post_init__(self) -> None:
        for length in self.size:
            check_int("size", length)
        if self.channels not in (1, 3):
            raise InputError("channels", self.channels, "1 or 3")
        check_choice("fit", self.fit, FITS)
        if not 0 < self.middle <= 1:
            raise InputError("middle", self.middle, "a share above 0, at most 1")


def decode(data: bytes | Path, how: Decoding) -> tuple[Array, str | None]:
    """Decode one image to uint8 `[channels, H, W]`; also returns what it was converted from.

    Transparent images are composited over white. Grey with one channel and colour with three are
    not conversions.

    >>> file = io.BytesIO()
    >>> Image.new("L", (4, 2), 200).save(file, "PNG")
    >>> array, was = decode(file.getvalue(), Decoding(size=(3, 3)))
    >>> array.shape, int(array.max()), was
    ((3, 3, 3), 200, 'grey')
    """
    try:
        with Image.open(io.BytesIO(data) if isinstance(data, bytes) else data) as image:
            image.load()
            flat, was = _convert(image, how.channels)
            array = np.asarray(_resize(ImageOps.invert(flat) if how.invert else flat, how))
    except _BROKEN as error:
        reason = str(error).split("\n")[0] or type(error).__name__
        raise UnreadableImageError(reason) from error
    array = array[None] if how.channels == 1 else np.moveaxis(array, 2, 0)
    return np.array(array, order="C"), was  # a copy: Pillow's memory is not writable


@dataclass(frozen=True)
class FileSource:
    """Images decoded from their files each time they are read."""

    images: Sequence[ImageRef]
    how: Decoding
    _zips: dict[tuple[int, Path], zipfile.ZipFile] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one image: `(C, H, W)`."""
        return (self.how.channels, *self.how.size)

    def __len__(self) -> int:
        return len(self.images)

    def __getstate__(self) -> dict[str, Any]:
        return {"images": self.images, "how": self.how, "_zips": {}}  # open files stay behind

    def decode(self, row: int) -> tuple[Array, str | None]:
        """Decode one image; see `decode`."""
        image = self.images[row]
        try:
            return decode(self._bytes(image) if image.member else image.path, self.how)
        except _BROKEN as error:  # UnreadableImageError is a ValueError
            raise UnreadableImageError(f"{image.name} ({error})") from None

    def read(self, rows: Tensor) -> Tensor:
        """Decode these images, `[B, C, H, W]`; an unreadable one is an error that names it."""
        batch = torch.empty((len(rows), *self.shape), dtype=torch.uint8)
        for i, row in enumerate(rows.tolist()):
            batch[i] = torch.from_numpy(self.decode(row)[0])
        return batch

    def _bytes(self, image: ImageRef) -> bytes:
        # One handle per process: forked workers would share its position in the file.
        key = (os.getpid(), image.path)
        if key not in self._zips:
            self._zips[key] = zipfile.ZipFile(image.path)
        return self._zips[key].read(image.member or "")


def decode_all(
    source: FileSource, keep: Callable[[int, Array], None], report: Report
) -> LoadReport:
    """Decode all images and `keep(row, pixels)` the readable ones, in order, a few at a time.

    `report(done, total)` is called now and then. Returns which were unreadable or converted.

    >>> source = FileSource([ImageRef(Path("nowhere.png"))], Decoding((8, 8)))
    >>> len(decode_all(source, lambda row, pixels: None, lambda done, total: None).unreadable)
    1
    """
    unreadable: list[str] = []
    converted: dict[str, list[str]] = {}

    def attempt(row: int) -> tuple[Array, str | None] | UnreadableImageError:
        try:
            return source.decode(row)
        except UnreadableImageError as error:
            return error

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for start in range(0, len(source), _AHEAD):
            rows = range(start, min(start + _AHEAD, len(source)))
            for row, decoded in zip(rows, pool.map(attempt, rows), strict=True):
                if isinstance(decoded, UnreadableImageError):
                    unreadable.append(str(decoded))
                    continue
                pixels, was = decoded
                if was is not None:
                    converted.setdefault(was, []).append(source.images[row].name)
                keep(row, pixels)
            report(rows.stop, len(source))
    by_kind = {kind: tuple(names) for kind, names in converted.items()}
    return LoadReport(unreadable=tuple(unreadable), converted=by_kind)


def _convert(image: Image.Image, channels: int) -> tuple[Image.Image, str | None]:
    """The image as L or RGB, and what it was converted from; None if it was not."""
    mode, target = image.mode, "L" if channels == 1 else "RGB"
    if mode in _ALPHA or "transparency" in image.info:
        layer = image.convert("RGBA")
        ground = Image.new("RGBA", layer.size, (255, 255, 255, 255))
        return Image.alpha_composite(ground, layer).convert(target), "alpha"
    if mode.startswith("I;16"):  # Pillow would clip to 8 bits instead of scaling
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if mode in _GREY:
        return image.convert(target), None if channels == 1 else "grey"
    was = {"RGB": "colour" if channels == 1 else None, "P": "palette"}.get(mode, mode)
    return image.convert(target), was


def _resize(image: Image.Image, how: Decoding) -> Image.Image:
    height, width = how.size
    if how.middle < 1:
        inner = max(1, round(image.width * how.middle)), max(1, round(image.height * how.middle))
        left, top = (image.width - inner[0]) // 2, (image.height - inner[1]) // 2
        image = image.crop((left, top, left + inner[0], top + inner[1]))
    if (image.width, image.height) == (width, height):
        return image
    if how.fit == "stretch":
        return image.resize((width, height), Image.Resampling.BILINEAR)
    ratios = width / image.width, height / image.height
    scale = max(ratios) if how.fit == "cover" else min(ratios)
    inner = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    left, top = (inner[0] - width) // 2, (inner[1] - height) // 2
    scaled = image.resize(inner, Image.Resampling.BILINEAR)
    # Pillow fills what lies outside with black.
    return scaled.crop((left, top, left + width, top + height))
