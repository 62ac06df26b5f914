"""Modules that draw at random: the generator is part of their state."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["Draws"]


class Draws(nn.Module):
    """A module with a `generator`, or None for torch's default one; a checkpoint keeps its state.

    >>> class Coin(Draws):
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
        """State of the generator, so that a checkpoint of the loss goes on with the same draws."""
        if self.generator is None:
            return torch.empty(0, dtype=torch.uint8)
        return self.generator.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        """Put the generator back; a state without one leaves it."""
        if self.generator is not None and len(state):
            self.generator.set_state(state)
