"""GoogLeNet (Szegedy et al. 2015) with batch normalisation: HNM appendix E.

Parameter names and shapes are torchvision's, without the classifiers `fc`, `aux1` and `aux2`. Like
there, the "5x5" branch has a 3x3 kernel, which is what the official weight file holds.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["GoogLeNet"]

# Channels out of: 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection. Szegedy et al., table 1.
_BLOCKS = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}


class GoogLeNet(nn.Module):
    """The convolutional part: 1024 channels at 1/32 of the input size.

    `transform_input` rescales images normalised with ImageNet's mean and deviation to the range
    the official weights were trained on; it is set when such weights are loaded.

    >>> net = GoogLeNet(channels=1).eval()
    >>> tuple(net(torch.zeros(1, 1, 64, 64)).shape)
    (1, 1024, 2, 2)
    """

    features = 1024

    def __init__(self, channels: int = 3, *, transform_input: bool = False) -> None:
        super().__init__()
        self.transform_input = transform_input
        self.conv1 = _Conv(channels, 64, 7, stride=2)
        self.conv2 = _Conv(64, 64, 1)
        self.conv3 = _Conv(64, 192, 3)
        inputs = 192
        for name, widths in _BLOCKS.items():
            self.add_module(f"inception{name}", _Inception(inputs, widths))
            inputs = widths[0] + widths[2] + widths[4] + widths[5]
        # Ceiling mode keeps a last partial window, as the Caffe original did.
        self.pool3 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.pool2 = nn.MaxPool2d(2, 2, ceil_mode=True)

    def forward(self, images: Tensor) -> Tensor:
        """`[B, C, H, W]` to `[B, 1024, H/32, W/32]`."""
        if self.transform_input and images.shape[1] == 3:
            deviation = images.new_tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
            mean = images.new_tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
            images = (images * deviation + mean - 0.5) / 0.5
        x = self.pool3(self.conv1(images))
        x = self.pool3(self.conv3(self.conv2(x)))
        for name in _BLOCKS:
            if name == "4a":
                x = self.pool3(x)
            elif name == "5a":
                x = self.pool2(x)
            x = self.get_submodule(f"inception{name}")(x)
        out: Tensor = x
        return out


class _Conv(nn.Module):
    """Convolution without bias, batch normalisation, ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.bn(self.conv(x)))


class _Inception(nn.Module):
    """Four branches side by side."""

    def __init__(self, inputs: int, widths: tuple[int, int, int, int, int, int]) -> None:
        super().__init__()
        one, reduce3, three, reduce5, five, pool = widths
        self.branch1 = _Conv(inputs, one, 1)
        self.branch2 = nn.Sequential(_Conv(inputs, reduce3, 1), _Conv(reduce3, three, 3))
        self.branch3 = nn.Sequential(_Conv(inputs, reduce5, 1), _Conv(reduce5, five, 3))
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, 1, 1), _Conv(inputs, pool, 1))

    def forward(self, x: Tensor) -> Tensor:
        branches = [self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)]
        return torch.cat(branches, dim=1)
