"""The shallow network of EPS §5.1, described in its appendix C."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from uncollapse._base.check import InputError

__all__ = ["MnistCNN"]


class MnistCNN(nn.Module):
    """Two 3x3 convolutions (32 and 64), each ReLU then batch norm; 2x2 max-pool; dense 128.

    The dense layer to `dim` is the head. EPS leaves two things open; here the convolutions are not
    padded (28 -> 26 -> 24 -> 12) and the dense layer of 128 has a ReLU.

    >>> net = MnistCNN((1, 28, 28)).eval()
    >>> tuple(net(torch.zeros(2, 1, 28, 28)).shape)
    (2, 128)
    """

    features = 128

    def __init__(self, shape: tuple[int, int, int] = (1, 28, 28)) -> None:
        super().__init__()
        channels, height, width = shape
        if min(height, width) < 6:
            raise InputError("shape", shape, "images of at least 6 x 6")
        self.shape = shape
        self.conv1 = nn.Conv2d(channels, 32, 3)
        self.bn1 = nn.BatchNorm2d(32)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.bn2 = nn.BatchNorm2d(64)
        self.dense = nn.Linear(64 * ((height - 4) // 2) * ((width - 4) // 2), 128)

    def forward(self, images: Tensor) -> Tensor:
        """`[B, C, H, W]` of the size given at construction to `[B, 128]`."""
        if tuple(images.shape[1:]) != self.shape:
            raise InputError("images", f"shape {tuple(images.shape)}", f"[B, *{self.shape}]")
        x = self.bn1(torch.relu(self.conv1(images)))
        x = self.bn2(torch.relu(self.conv2(x)))
        x = nn.functional.max_pool2d(x, 2)
        return torch.relu(self.dense(x.flatten(1)))
