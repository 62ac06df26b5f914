"""The network for Omniglot on a laptop, where EPS has a ResNet-50: four small blocks."""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["Conv4", "conv4"]

_WIDTH = 64


class Conv4(nn.Module):
    """Four 3x3 convolutions of 64, each batch norm, ReLU and 2x2 max-pool; then a linear layer.

    The usual network for Omniglot (Vinyals et al. 2016, Snell et al. 2017): 0.1 million weights,
    for one channel and any input of at least 16 x 16, averaged at the end.

    >>> import torch
    >>> tuple(Conv4(dim=128)(torch.zeros(2, 1, 28, 28)).shape)
    (2, 128)
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for channels in (1, _WIDTH, _WIDTH, _WIDTH):
            layers += [
                nn.Conv2d(channels, _WIDTH, 3, padding=1),
                nn.BatchNorm2d(_WIDTH),
                nn.ReLU(),
                nn.MaxPool2d(2),
            ]
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.linear = nn.Linear(_WIDTH, dim)

    def forward(self, images: Tensor) -> Tensor:
        """`[B, 1, H, W]` to `[B, dim]`."""
        z: Tensor = self.linear(self.body(images))
        return z


def conv4(dim: int) -> nn.Module:
    """The network, for `model.backbone = "uncollapse.papers.eps.conv4:conv4"`.

    >>> sum(p.numel() for p in conv4(128).parameters())
    120256
    """
    return Conv4(dim)
