"""The "simple 2-layer convolutional network" of HNM appendix E, whose details it does not give."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from uncollapse._base.check import InputError

__all__ = ["MLP", "BNInception", "Conv2", "GoogLeNet", "MnistCNN", "ResNet", "resnet18", "resnet50"]


# The "simple 2-layer convolutional network" of HNM appendix E, whose details it does not give.


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


# A perceptron for vectors; without hidden layers it is the body of the `linear` backbone.


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


# The shallow network of EPS §5.1, described in its appendix C.


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


# ResNet-18 and ResNet-50 (He et al. 2016): HNM §4 and appendices D-E, EPS appendix C.


def resnet18(channels: int = 3) -> ResNet:
    """ResNet-18 up to its last feature map: 512 channels at 1/32 of the input size.

    >>> net = resnet18(channels=1)
    >>> net.features, tuple(net.conv1.weight.shape)
    (512, (64, 1, 7, 7))
    """
    return ResNet(_Basic, (2, 2, 2, 2), channels)


def resnet50(channels: int = 3) -> ResNet:
    """ResNet-50 up to its last feature map: 2048 channels at 1/32 of the input size.

    >>> resnet50().features
    2048
    """
    return ResNet(_Bottleneck, (3, 4, 6, 3), channels)


class _Block(nn.Module):
    """A residual block: `body` and the shortcut, added."""

    expansion: int
    downsample: nn.Sequential | None

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.downsample = None
        if stride != 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))
        self.relu = nn.ReLU(inplace=True)

    def body(self, x: Tensor) -> Tensor:
        """The residual branch, before the shortcut is added."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """`[B, inputs, h, w]` to `[B, outputs, h/stride, w/stride]`."""
        shortcut = x if self.downsample is None else self.downsample(x)
        out: Tensor = self.relu(self.body(x) + shortcut)
        return out


class _Basic(_Block):
    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__(inputs, width, stride)
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def body(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        out: Tensor = self.bn2(self.conv2(x))
        return out


class _Bottleneck(_Block):
    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__(inputs, width, stride)
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width * 4, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width * 4)

    def body(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        out: Tensor = self.bn3(self.conv3(x))
        return out


class ResNet(nn.Module):
    """The convolutional part of a ResNet; `features` is the number of output channels."""

    def __init__(self, block: type[_Block], depths: tuple[int, ...], channels: int = 3) -> None:
        super().__init__()
        self.features = 512 * block.expansion
        self.conv1 = nn.Conv2d(channels, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        inputs = 64
        for stage, depth in enumerate(depths):
            width = 64 << stage
            blocks = []
            for place in range(depth):
                blocks.append(block(inputs, width, 2 if stage > 0 and place == 0 else 1))
                inputs = width * block.expansion
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))

    def stages(self) -> dict[str, nn.Module]:
        """The parts in order, by name: `stem`, `layer1`, ..., `layer4`."""
        layers = {f"layer{place}": self.get_submodule(f"layer{place}") for place in range(1, 5)}
        return {"stem": nn.Sequential(self.conv1, self.bn1, self.relu, self.maxpool), **layers}

    def forward(self, images: Tensor) -> Tensor:
        """`[B, C, H, W]` to `[B, features, H/32, W/32]`."""
        x: Tensor = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        for stage in range(1, 5):
            x = self.get_submodule(f"layer{stage}")(x)
        return x


# GoogLeNet (Szegedy et al. 2015) with batch normalisation: HNM appendix E.

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


# BN-Inception (Ioffe & Szegedy 2015), the "inception backbone" of EPS appendix C, table 6.

# Channels out of: 1x1, 3x3 reduce, 3x3, double 3x3 reduce, double 3x3, pool projection.
# Without a 1x1 and a projection the block halves the size: its pooled input is passed on.
_BN_INCEPTION_BLOCKS = {
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
        for name, (one, reduce3, three, reduce, double, pool) in _BN_INCEPTION_BLOCKS.items():
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
        for name in _BN_INCEPTION_BLOCKS:
            x = self._block(name, x)
        return x

    def _block(self, name: str, x: Tensor) -> Tensor:
        block = f"inception_{name}"
        one, pool = _BN_INCEPTION_BLOCKS[name][0], _BN_INCEPTION_BLOCKS[name][5]
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
