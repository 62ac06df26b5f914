"""BN-Inception (Ioffe & Szegedy 2015), the "inception backbone" of EPS appendix C, table 6.

Parameter names and shapes are those of the public checkpoint `bn_inception-52deb4733.pth`, which
the metric-learning literature uses, without its classifier `last_linear`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["BNInception"]

# Channels out of: 1x1, 3x3 reduce, 3x3, double 3x3 reduce, double 3x3, pool projection.
# Without a 1x1 and a projection the block halves the size: its pooled input is passed on.
_BLOCKS = {
    "3a": (64, 64, 64, 64, 96, 32),
    "3b": (64, 64, 96, 64, 96, 64),
    "3c": (0, 128, 160, 64, 96, 0),
    "4a": (224, 64, 96, 96, 128, 128),
    "4b": (192, 96, 128, 96, 128, 128),
    "4c": (160, 128, 160, 128, 160, 128),
    "4d": (96, 128, 192, 160, 192, 128),
    "4e": (0, 128, 192, 192, 256, 0),
    "5a": (352, 192, 320, 160, 224, 128),
    "5b": (352, 192, 320, 192, 224, 128),
}


class BNInception(nn.Module):
    """The convolutional part: 1024 channels at 1/32 of the input size.

    >>> net = BNInception(channels=1).eval()
    >>> tuple(net(torch.zeros(1, 1, 64, 64)).shape)
    (1, 1024, 2, 2)
    """

    features = 1024

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self._add("conv1_7x7_s2", channels, 64, 7, 2)
        self._add("conv2_3x3_reduce", 64, 64, 1)
        self._add("conv2_3x3", 64, 192, 3)
        inputs = 192
        for name, (one, reduce3, three, reduce, double, pool) in _BLOCKS.items():
            block = f"inception_{name}"
            stride = 1 if pool else 2
            if one:
                self._add(f"{block}_1x1", inputs, one, 1)
            self._add(f"{block}_3x3_reduce", inputs, reduce3, 1)
            self._add(f"{block}_3x3", reduce3, three, 3, stride)
            self._add(f"{block}_double_3x3_reduce", inputs, reduce, 1)
            self._add(f"{block}_double_3x3_1", reduce, double, 3)
            self._add(f"{block}_double_3x3_2", double, double, 3, stride)
            if pool:
                self._add(f"{block}_pool_proj", inputs, pool, 1)
            inputs = one + three + double + (pool or inputs)
        # Ceiling mode keeps a last partial window, as the Caffe original did.
        self.halve = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.smooth = nn.AvgPool2d(3, 1, 1)
        self.peak = nn.MaxPool2d(3, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        """`[B, C, H, W]` to `[B, 1024, H/32, W/32]`."""
        x: Tensor = self.halve(self._run("conv1_7x7_s2", images))
        x = self.halve(self._run("conv2_3x3", self._run("conv2_3x3_reduce", x)))
        for name in _BLOCKS:
            x = self._block(name, x)
        return x

    def _block(self, name: str, x: Tensor) -> Tensor:
        block = f"inception_{name}"
        one, pool = _BLOCKS[name][0], _BLOCKS[name][5]
        branches = [self._run(f"{block}_1x1", x)] if one else []
        branches.append(self._run(f"{block}_3x3", self._run(f"{block}_3x3_reduce", x)))
        double = self._run(f"{block}_double_3x3_1", self._run(f"{block}_double_3x3_reduce", x))
        branches.append(self._run(f"{block}_double_3x3_2", double))
        if pool:
            pooled = self.peak(x) if name == "5b" else self.smooth(x)
            branches.append(self._run(f"{block}_pool_proj", pooled))
        else:
            # The strided branches round odd sizes up; one more row and column (0, as low as any
            # output of a ReLU) makes this one do so too. Even sizes are as in the original.
            odd = (0, x.shape[3] % 2, 0, x.shape[2] % 2)
            branches.append(self.halve(nn.functional.pad(x, odd)))
        return torch.cat(branches, dim=1)

    def _add(self, name: str, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        self.add_module(name, nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2))
        self.add_module(f"{name}_bn", nn.BatchNorm2d(outputs))

    def _run(self, name: str, x: Tensor) -> Tensor:
        return torch.relu(self.get_submodule(f"{name}_bn")(self.get_submodule(name)(x)))
