"""The "simple 2-layer convolutional network" of HNM appendix E, whose details it does not give."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["Conv2"]


class Conv2(nn.Module):
    """Two 5x5 convolutions (32 and 64), each ReLU and 2x2 max-pool, averaged to a 4 x 4 grid.

    No batch normalisation: with it structure is learned faster than the scale shrinks, which
    hides the collapse that appendix E is about. Any input of at least 4 x 4.

    >>> net = Conv2(channels=3)
    >>> tuple(net(torch.zeros(2, 3, 128, 64)).shape), net.features
    ((2, 1024), 1024)
    """

    features = 64 * 16

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 64, 5, padding=2)

    def forward(self, images: Tensor) -> Tensor:
        """`[B, C, H, W]` to `[B, 1024]`."""
        x = nn.functional.max_pool2d(torch.relu(self.conv1(images)), 2)
        x = nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        return nn.functional.adaptive_avg_pool2d(x, 4).flatten(1)
