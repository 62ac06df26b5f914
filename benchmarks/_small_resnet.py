"""A ResNet small enough to train a few hundred times on a CPU: three basic blocks, batch norm."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["grey_resnet", "small_resnet"]

WIDTHS = (16, 32, 64)


class Block(nn.Module):
    """Two 3x3 convolutions with batch norm beside a shortcut: He et al. 2016."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = _conv(before, after, stride)
        self.second = _conv(after, after, 1)
        self.shortcut = nn.Sequential(
            nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))) + self.shortcut(x))


def small_resnet(dim: int) -> nn.Module:
    """Coloured pictures to `[B, dim]`, for `model.backbone = "_small_resnet:small_resnet"`."""
    return _network(3, dim)


def grey_resnet(dim: int) -> nn.Module:
    """The same for grey ones."""
    return _network(1, dim)


def _network(channels: int, dim: int) -> nn.Module:
    blocks: list[nn.Module] = []
    for width in WIDTHS:
        blocks.append(Block(channels, width, stride=2))
        channels = width
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, dim))


def _conv(before: int, after: int, stride: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, stride, padding=1, bias=False), nn.BatchNorm2d(after)
    )
