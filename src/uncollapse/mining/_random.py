"""Every random draw of mining: from the generator's own device, so that all devices agree."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array

__all__ = ["draw_pool", "draw_weighted", "ordinals", "uniform"]


def uniform(
    shape: int | tuple[int, ...], generator: torch.Generator | None, device: torch.device
) -> Tensor:
    """float64 numbers in [0, 1)."""
    source = torch.device("cpu") if generator is None else generator.device
    size = (shape,) if isinstance(shape, int) else shape
    drawn = torch.rand(size, generator=generator, dtype=torch.float64, device=source)
    return drawn.to(device)


def ordinals(rows: Tensor) -> Tensor:
    """Place of each entry among the equal ones of an ascending vector.

    >>> ordinals(torch.tensor([0, 0, 2, 2, 2])).tolist()
    [0, 1, 0, 1, 2]
    """
    first = torch.searchsorted(rows.contiguous(), rows.contiguous())
    return torch.arange(len(rows), device=rows.device) - first


def draw_weighted(weights: Tensor, rows: Tensor, generator: torch.Generator | None) -> Tensor:
    """A column for each of the ascending `rows`, with probability proportional to its weight.

    Rows whose weights are all 0 give an arbitrary column.
    """
    if len(rows) == 0:
        return rows
    total = torch.cumsum(weights, dim=1)
    place = ordinals(rows)
    draws = uniform((len(weights), int(place.max()) + 1), generator, weights.device)
    column = torch.searchsorted(total, (draws * total[:, -1:]).to(total.dtype), right=True)
    # Rounding can put a draw at the very end; the last column that has a weight is then meant.
    last = torch.searchsorted(total, total[:, -1:].contiguous())
    return torch.minimum(column, last)[rows, place]


def draw_pool(
    size: int,
    anchors: Tensor,
    own: Tensor,
    real: Tensor,
    n: int,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor]:
    """For each anchor a random `size` of the others: masks of `own` and of all `n` rows.

    The number of positives is size·(positives)/(n − 1), rounded up or down at random so that it is
    that on average; then at least one positive and one negative are kept. Which ones, is uniform.
    """
    device = anchors.device
    positives = real.sum(dim=1).cpu().numpy()
    negatives = n - 1 - positives
    share = size * positives / (n - 1)
    count = np.floor(share + uniform(len(share), generator, torch.device("cpu")).numpy())
    low, high = np.maximum(1, size - negatives), np.minimum(positives, size - 1)
    count = np.clip(count.astype(np.int64), low, high)
    cpu = torch.device("cpu")
    keys = uniform(tuple(own.shape), generator, cpu).numpy()
    keys[~real.cpu().numpy()] = np.inf
    mask = _smallest(keys, count)
    keys = uniform((len(anchors), n), generator, cpu).numpy()
    np.put_along_axis(keys, own.cpu().numpy(), np.inf, axis=1)
    np.put_along_axis(keys, anchors.cpu().numpy()[:, None], np.inf, axis=1)
    others = _smallest(keys, size - count)
    return torch.from_numpy(mask).to(device), torch.from_numpy(others).to(device)


def _smallest(keys: Array, count: Array) -> Array:
    """Mask of the `count[i]` smallest keys of row i."""
    ordered = np.partition(keys, np.unique(count) - 1, axis=1)
    return np.asarray(keys <= ordered[np.arange(len(keys)), count - 1][:, None])
