"""Image files to uint8 arrays of one size; what had to be converted is said, not hidden."""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from uncollapse._base.arrays import Array
from uncollapse._base.check import InputError, check_choice, check_int
from uncollapse._base.progress import ProgressOption, progress_reporter
from uncollapse.data.listing import DataError, ImageRef, LoadReport

__all__ = [
    "Decoded",
    "Decoding",
    "FileSource",
    "Findings",
    "UnreadableImageError",
    "decode",
    "decode_each",
    "inspect_files",
]

FITS = ("cover", "contain", "stretch")
_AHEAD = 64  # images decoded ahead of who reads them
_ALPHA = {"RGBA", "LA", "PA", "RGBa", "La"}
_GREY = {"1", "L", "I", "F", "I;16", "I;16L", "I;16B", "I;16N"}
_BROKEN = (
    OSError,
    SyntaxError,  # Pillow's word for a broken PNG
    ValueError,
    EOFError,
    IndexError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
    Image.DecompressionBombError,
)


class UnreadableImageError(DataError):
    """A file that is there but cannot be decoded."""


@dataclass(frozen=True, repr=False)
class Decoding:
    """How images are decoded: to `size` (height, width), `channels` 1 or 3.

    `fit`: `"cover"` scales until the box is covered and cuts the middle, `"contain"` scales until
    it fits and pads with black, `"stretch"` changes the aspect ratio. `invert` makes dark ink
    bright. Of the height and width the share `middle` is kept before that, what is outside cut off.
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

    def __repr__(self) -> str:
        """Its fields; `middle` only where it cuts: caches of earlier versions are known by this."""
        shown = {name: value for name, value in vars(self).items() if name != "middle"}
        shown |= {"middle": self.middle} if self.middle < 1 else {}
        return f"Decoding({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def decode(data: bytes | Path, how: Decoding) -> tuple[Array, str | None]:
    """Decode one image to uint8 `[channels, H, W]`, and say what it was converted from, if at all.

    Alpha is laid over white. Grey is no conversion when one channel is asked for, nor is colour
    when three are.

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
        for place, row in enumerate(rows.tolist()):
            batch[place] = torch.from_numpy(self.decode(row)[0])
        return batch

    def _bytes(self, image: ImageRef) -> bytes:
        # One handle a process: forked workers would share its position in the file.
        key = (os.getpid(), image.path)
        if key not in self._zips:
            self._zips[key] = zipfile.ZipFile(image.path)
        return self._zips[key].read(image.member or "")


@dataclass(frozen=True)
class Decoded:
    """One image of a source: its pixels and what it was, or why it cannot be decoded."""

    row: int
    pixels: Array | None
    was: str | None = None
    error: str = ""


@dataclass
class Findings:
    """What decoding many images met, by name: the two lists of a `LoadReport`."""

    unreadable: list[str] = field(default_factory=list)
    converted: dict[str, list[str]] = field(default_factory=dict)

    def add(self, image: ImageRef, found: Decoded) -> None:
        """Note one image, if there is anything to note."""
        if found.pixels is None:
            self.unreadable.append(found.error)
        elif found.was is not None:
            self.converted.setdefault(found.was, []).append(image.name)


def decode_each(source: FileSource, workers: int | None = None) -> Iterator[Decoded]:
    """Decode every image in order, some threads ahead; few are held at a time.

    >>> source = FileSource([ImageRef(Path("nowhere.png"))], Decoding((8, 8)))
    >>> [(image.row, image.pixels) for image in decode_each(source)]
    [(0, None)]
    """
    with ThreadPoolExecutor(workers or min(8, os.cpu_count() or 1)) as pool:
        for start in range(0, len(source), _AHEAD):
            rows = range(start, min(start + _AHEAD, len(source)))
            yield from pool.map(partial(_attempt, source), rows)


def inspect_files(source: FileSource, progress: ProgressOption = None) -> LoadReport:
    """Decode every image, keep none, and report the unreadable and the converted.

    >>> source = FileSource([ImageRef(Path("nowhere.png"))], Decoding((8, 8)))
    >>> len(inspect_files(source).unreadable)
    1
    """
    findings = Findings()
    with progress_reporter(progress, "decoding images") as report:
        for image in decode_each(source):
            findings.add(source.images[image.row], image)
            done = image.row + 1
            if done % _AHEAD == 0 or done == len(source):
                report(done, len(source))
    return LoadReport(
        unreadable=tuple(findings.unreadable),
        converted={mode: tuple(names) for mode, names in findings.converted.items()},
    )


def _attempt(source: FileSource, row: int) -> Decoded:
    try:
        return Decoded(row, *source.decode(row))
    except UnreadableImageError as error:
        return Decoded(row, None, error=str(error))


def _convert(image: Image.Image, channels: int) -> tuple[Image.Image, str | None]:
    """The image as L or RGB, and what it was when that is a conversion."""
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
