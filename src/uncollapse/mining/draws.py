"""Every random draw of mining: from the generator's own device, so that all devices agree."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from uncollapse.distances.frame import on_host

__all__ = ["draw_pool", "draw_weighted", "kth_smallest", "pick", "uniform"]


def uniform(
    shape: int | tuple[int, ...], generator: torch.Generator | None, device: torch.device
) -> Tensor:
    """float64 numbers in [0, 1)."""
    source = torch.device("cpu") if generator is None else generator.device
    size = (shape,) if isinstance(shape, int) else shape
    drawn = torch.rand(size, generator=generator, dtype=torch.float64, device=source)
    return drawn.to(device)


def pick(allowed: Tensor, generator: torch.Generator | None) -> Tensor:
    """A uniformly random True column of each row."""
    count = allowed.sum(dim=1)
    place = (uniform(len(count), generator, count.device) * count).long()
    return (allowed.cumsum(dim=1) <= place[:, None]).sum(dim=1)


def draw_weighted(
    weights: Tensor, rows: Tensor, most: int, generator: torch.Generator | None
) -> Tensor:
    """A column for each of the ascending `rows`, with probability proportional to its weight.

    A row occurs at most `most` times. Rows whose weights are all 0 give an arbitrary column.
    """
    if len(rows) == 0:
        return rows
    total = torch.cumsum(weights, dim=1)
    draws = uniform((len(weights), most), generator, weights.device)
    column = torch.searchsorted(total, (draws * total[:, -1:]).to(total.dtype), right=True)
    # Rounding can put a draw at the very end; the last column that has a weight is then meant.
    last = torch.searchsorted(total, total[:, -1:].contiguous())
    place = torch.arange(len(rows), device=rows.device) - torch.searchsorted(rows, rows)
    return torch.minimum(column, last)[rows, place]


def draw_pool(
    most: int, own: Tensor, real: Tensor, hidden: Tensor, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """For each anchor a random `most` of the others: masks of `own` and of all candidates.

    Where it has fewer, all of them. `hidden` `[b, N]` marks what is no negative. The number of
    positives is most·(positives)/(all others), rounded up or down at random so that it is that on
    average; then at least one positive and one negative are kept. Which ones, is uniform.
    """
    device = own.device
    positives, negatives = real.sum(dim=1), (~hidden).sum(dim=1)
    size = (positives + negatives).clamp(max=most)
    share = size * positives / (positives + negatives)
    count = torch.floor(share + uniform(len(share), generator, device)).long()
    low, high = (size - negatives).clamp(min=1), torch.minimum(positives, size - 1)
    count = torch.maximum(torch.minimum(count, high), low)
    keys = uniform(tuple(own.shape), generator, device).masked_fill_(~real, torch.inf)
    mask = _smallest(keys, count)
    keys = uniform(tuple(hidden.shape), generator, device).masked_fill_(hidden, torch.inf)
    return mask, _smallest(keys, size - count)


def _smallest(keys: Tensor, count: Tensor) -> Tensor:
    """Mask of the `count[i]` smallest keys of row i."""
    return keys <= kth_smallest(keys, count)


def kth_smallest(keys: Tensor, k: Tensor) -> Tensor:
    """`[b, 1]`: the `k[i]`-th smallest key of row i, the first being 1."""
    if on_host(keys):
        last = k.numpy() - 1
        ordered = np.partition(keys.numpy(), np.unique(last), axis=1)
        return torch.from_numpy(np.take_along_axis(ordered, last[:, None], 1))
    return keys.sort(dim=1).values.gather(1, k[:, None] - 1)
