"""A perceptron for vectors; without hidden layers it is the body of the `linear` backbone."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

__all__ = ["MLP"]


class MLP(nn.Module):
    """Linear layers with ReLU between; images are flattened.

    >>> import torch
    >>> net = MLP(inputs=12, hidden=(8, 6))
    >>> tuple(net(torch.zeros(2, 3, 2, 2)).shape)
    (2, 6)
    >>> MLP(inputs=12, hidden=()).features
    12
    """

    def __init__(self, inputs: int, hidden: Sequence[int] = (512,)) -> None:
        super().__init__()
        self.features = hidden[-1] if hidden else inputs
        layers: list[nn.Module] = []
        for width in hidden:
            layers += [nn.Linear(inputs, width), nn.ReLU()]
            inputs = width
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, ...]` to `[B, hidden[-1]]`."""
        out: Tensor = self.layers(x.flatten(1))
        return out
