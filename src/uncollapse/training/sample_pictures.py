"""A few queries with their nearest neighbours, as pictures or texts, for a page: EPS Fig. 4."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from uncollapse._base.arrays import Array
from uncollapse._base.text_rows import rows_of_texts
from uncollapse.data import LabelledImages
from uncollapse.health.sample import balanced_rows
from uncollapse.metrics.nearest_rows import nearest
from uncollapse.training.measured_rows import Samples

__all__ = ["choose_samples", "small_pictures"]

_QUERIES, _NEIGHBOURS = 6, 6
_SIDE = 96  # pixels; 42 colour pictures of this size are 1.2 MB
_TEXT = 2_000  # bytes of a text; a page shows less


def choose_samples(data: LabelledImages, labels: Array, embeddings: Tensor) -> Samples | None:
    """Six queries, every class alike and always the same, each with the six rows nearest to it.

    `data` holds the rows of `embeddings`, which must be finite; None for fewer than two of them.
    """
    if len(embeddings) < 2:
        return None
    ids = np.unique(labels, return_inverse=True)[1]
    chosen = balanced_rows(ids, _QUERIES, np.random.default_rng(0))
    queries = torch.from_numpy(chosen[np.argsort(ids[chosen], kind="stable")])
    k = min(_NEIGHBOURS, len(embeddings) - 1)
    near = nearest(embeddings[queries], embeddings, k, exclude=queries).rows
    shown = torch.unique(torch.cat([queries, near.flatten()]))
    if data.holds_texts:
        return Samples(queries, near, shown, texts=_short_texts(data.texts(shown) or []))
    pixels = small_pictures(data.pixels(shown)) if len(data.shape) == 3 else None
    return Samples(queries, near, shown, pixels)


def small_pictures(pixels: Tensor, side: int = _SIDE) -> Tensor:
    """Pictures `[n, C, H, W]` as uint8, at most `side` high and wide; small ones stay as they are.

    Floats in [0, 1] are brightness; other ranges are stretched to it, picture by picture.

    >>> small_pictures(torch.ones(2, 3, 200, 100)).shape
    torch.Size([2, 3, 96, 48])
    """
    values = pixels.float()
    if pixels.dtype != torch.uint8:
        low, high = values.amin((1, 2, 3), keepdim=True), values.amax((1, 2, 3), keepdim=True)
        outside = (low < 0.0) | (high > 1.0)
        room = torch.where(high > low, high - low, 1.0)
        values = 255.0 * torch.where(outside, (values - low) / room, values)
    elif max(pixels.shape[2:]) <= side:
        return pixels
    scale = min(1.0, side / max(pixels.shape[2:]))
    if scale < 1.0:
        size = [max(1, round(length * scale)) for length in pixels.shape[2:]]
        values = interpolate(values, size, mode="bilinear", antialias=True)
    return values.round().clamp(0, 255).to(torch.uint8)


def _short_texts(texts: list[str]) -> Tensor:
    rows = rows_of_texts(texts)
    return rows if rows.shape[1] <= _TEXT else rows_of_texts(texts, _TEXT)
