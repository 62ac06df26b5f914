"""Every random draw of mining: from the generator's own device, so that all devices agree."""

import numpy as np
import torch
from torch import Tensor, nn

from uncollapse._base.check import check_kind
from uncollapse.distances.frame import on_host


def check_generator(name: str, value: torch.Generator | None) -> torch.Generator | None:
    """Return `value` if it is a generator or None, or raise."""
    return check_kind(name, value, (torch.Generator, type(None)), "a torch.Generator or None")


class SeededModule(nn.Module):
    """A module with a `generator`, or None for torch's default one; a checkpoint keeps its state.

    >>> class Coin(SeededModule):
    ...     generator = torch.Generator().manual_seed(0)
    >>> coin = Coin()
    >>> state = coin.state_dict()
    >>> first = torch.rand(1, generator=coin.generator)
    >>> _ = coin.load_state_dict(state)
    >>> torch.equal(first, torch.rand(1, generator=coin.generator))
    True
    """

    generator: torch.Generator | None

    def get_extra_state(self) -> Tensor:
        """State of the generator, so that training resumes with the same draws."""
        if self.generator is None:
            return torch.empty(0, dtype=torch.uint8)
        return self.generator.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the generator; a state without one leaves it as it is."""
        if self.generator is not None and len(state):
            self.generator.set_state(state)


def uniform(
    shape: int | tuple[int, ...], generator: torch.Generator | None, device: torch.device
) -> Tensor:
    """float64 numbers in [0, 1)."""
    source = torch.device("cpu") if generator is None else generator.device
    size = (shape,) if isinstance(shape, int) else shape
    drawn = torch.rand(size, generator=generator, dtype=torch.float64, device=source)
    return drawn.to(device, non_blocking=True)


def pick(allowed: Tensor, generator: torch.Generator | None) -> Tensor:
    """A uniformly random True column of each row."""
    count = allowed.sum(dim=1)
    rank = (uniform(len(count), generator, count.device) * count).long()
    return (allowed.cumsum(dim=1) <= rank[:, None]).sum(dim=1)


def draw_weighted(
    weights: Tensor, rows: Tensor, most: int, generator: torch.Generator | None
) -> Tensor:
    """A column for each of the ascending `rows`, with probability proportional to its weight.

    A row occurs at most `most` times. Rows whose weights are all 0 give an arbitrary column.
    """
    total = torch.cumsum(weights, dim=1)
    draws = uniform((len(weights), most), generator, weights.device)
    column = torch.searchsorted(total, (draws * total[:, -1:]).to(total.dtype), right=True)
    # Rounding can put a draw at the very end; the last column that has a weight is then meant.
    last = torch.searchsorted(total, total[:, -1:].contiguous())
    repeat = torch.arange(len(rows), device=rows.device) - torch.searchsorted(rows, rows)
    return torch.minimum(column, last)[rows, repeat]


def draw_pool(
    most: int, own: Tensor, real: Tensor, hidden: Tensor, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """For each anchor a random `most` of the others: masks of `own` and of all candidates.

    Where it has fewer, all of them. `hidden` `[b, N]` marks what is no negative. The number of
    positives is most·(positives)/(all others), rounded up or down at random so that it is that on
    average; then at least one positive and one negative are kept. Which ones is uniform.
    """
    positives, negatives = real.sum(dim=1), (~hidden).sum(dim=1)
    size = (positives + negatives).clamp(max=most)
    share = size * positives / (positives + negatives)
    count = torch.floor(share + uniform(len(share), generator, own.device)).long()
    low, high = (size - negatives).clamp(min=1), torch.minimum(positives, size - 1)
    count = torch.maximum(torch.minimum(count, high), low)
    keys = uniform(tuple(own.shape), generator, own.device).masked_fill_(~real, torch.inf)
    chosen = keys <= kth_smallest(keys, count)
    keys = uniform(tuple(hidden.shape), generator, own.device).masked_fill_(hidden, torch.inf)
    return chosen, keys <= kth_smallest(keys, size - count)


def kth_smallest(keys: Tensor, k: Tensor) -> Tensor:
    """`[b, 1]`: the `k[i]`-th smallest key of row i, the first being 1."""
    if on_host(keys):  # NumPy takes a tenth of the time of torch's sort
        last = k.numpy() - 1
        ordered = np.partition(keys.numpy(), np.unique(last), axis=1)
        return torch.from_numpy(np.take_along_axis(ordered, last[:, None], 1))
    return keys.sort(dim=1).values.gather(1, k[:, None] - 1)
