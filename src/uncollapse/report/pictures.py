"""Samples as pictures: arrays and tensors of any usual layout, image files, Pillow images."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps
from torch import Tensor

from uncollapse._base.arrays import Array
from uncollapse._base.check import InputError

__all__ = ["Images", "check_images", "data_uri", "picture_of", "thumbnail"]

Images = Tensor | Array | Sequence[Any]


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
            return ImageOps.exif_transpose(opened).convert("RGB")
    array = sample.detach().cpu().numpy() if isinstance(sample, Tensor) else np.asarray(sample)
    if array.ndim == 3 and array.shape[0] in (1, 3, 4):
        array = np.moveaxis(array, 0, -1)
    if array.ndim == 3 and array.shape[-1] == 1:
        array = array[..., 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[-1] not in (3, 4)):
        raise InputError("images", f"a sample of shape {array.shape}", "H × W or C × H × W pixels")
    return Image.fromarray(_bytes(array)).convert("RGB")


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


def data_uri(picture: Image.Image) -> str:
    """The picture as PNG inside an address, so that a page needs no other file."""
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def check_images(images: Images, n: int) -> Images:
    """The images, if there is one for each row."""
    if len(images) != n:
        raise InputError("images", f"{len(images)} images", f"{n}, one for each row")
    return images


def _bytes(array: Array) -> Array:
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    values = array.astype(np.float64)
    low, high = float(values.min()), float(values.max())
    if low < 0.0 or high > 1.0:
        values = (values - low) / ((high - low) or 1.0)
    return np.ascontiguousarray((255 * values).round().astype(np.uint8))
