"""The networks of both papers, and ImageNet networks whose weights come as packages.

Tensors have the names of the official weight files; sizes are in `networks.toml`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from uncollapse._base.check import InputError
from uncollapse._base.files import read_toml

SPECIFICATIONS = read_toml(Path(__file__).with_name("networks.toml"))


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


class ResNet(nn.Sequential):
    """The network of this name up to its last feature map, at 1/32 of the input size.

    >>> net = ResNet("resnet18", channels=1)
    >>> net.features, tuple(net.conv1.weight.shape)
    (512, (64, 1, 7, 7))
    """

    def __init__(self, name: str, channels: int = 3) -> None:
        super().__init__()
        made_of = SPECIFICATIONS["resnet"][name]
        self.features = 512 * made_of["expansion"]
        if "mean" in made_of:
            self.scale = _Scale(made_of["mean"], made_of["std"])
        self.conv1 = nn.Conv2d(channels, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64, made_of["epsilon"])
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        inputs = 64
        for stage, depth in enumerate(made_of["depths"]):
            blocks, width = nn.Sequential(), 64 << stage
            for number in range(depth):
                stride = 2 if stage > 0 and number == 0 else 1
                blocks.append(_Residual(inputs, width, stride, made_of))
                inputs = width * made_of["expansion"]
            self.add_module(f"layer{stage + 1}", blocks)

    def stages(self) -> dict[str, nn.Module]:
        """The parts in order, by name: `stem`, `layer1`, ..., `layer4`."""
        parts = dict(self.named_children())
        first = [name for name in parts if not name.startswith("layer")]
        return {"stem": nn.Sequential(*(parts.pop(name) for name in first)), **parts}


class _Pointwise(nn.Conv2d):
    """A 1x1 convolution; in bfloat16 on a CPU as a matrix product, a third of the time."""

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
            return super().forward(x)
        batch, channels, height, width = x.shape
        rows = x.permute(0, 2, 3, 1).reshape(-1, channels)
        made = nn.functional.linear(rows, self.weight.flatten(1))
        return made.view(batch, height, width, -1).permute(0, 3, 1, 2)

    def _get_name(self) -> str:
        return "Conv2d"  # caches know a network by how it is printed


class _Residual(nn.Module):
    """Convolutions with batch norm, `conv1`, `bn1` and so on, added to a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int, made_of: Mapping[str, Any]) -> None:
        super().__init__()
        kernels, epsilon = made_of["kernels"], made_of["epsilon"]
        self.depth, outputs = len(kernels), width * made_of["expansion"]
        self.downsample = None
        if stride != 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outputs, epsilon))
        self.relu = nn.ReLU(inplace=True)
        for number, kernel in enumerate(kernels, 1):
            step = stride if number == made_of["strided"] else 1
            filters = width if number < self.depth else outputs
            kind = _Pointwise if (kernel, step) == (1, 1) else nn.Conv2d
            conv = kind(inputs, filters, kernel, step, kernel // 2, bias=False)
            self.add_module(f"conv{number}", conv)
            self.add_module(f"bn{number}", nn.BatchNorm2d(filters, epsilon))
            inputs = filters

    def forward(self, x: Tensor) -> Tensor:
        out = x
        for number in range(1, self.depth + 1):
            out = getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(out))
            out = self.relu(out) if number < self.depth else out
        shortcut = x if self.downsample is None else self.downsample(x)
        result: Tensor = self.relu(out + shortcut)
        return result


# GoogLeNet (Szegedy et al. 2015) with batch normalisation: HNM appendix E.


class GoogLeNet(nn.Sequential):
    """The convolutional part: 1024 channels at 1/32 of the input size.

    `transform_input` rescales images normalised with ImageNet's mean and deviation to the range
    the official weights were trained on; it is set when such weights are loaded.

    >>> net = GoogLeNet(channels=1).eval()
    >>> tuple(net(torch.zeros(1, 1, 64, 64)).shape)
    (1, 1024, 2, 2)
    """

    features = 1024

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.transform_input = False
        self.conv1 = _conv(channels, 64, 7, stride=2)
        # Ceiling mode keeps a last partial window, as the Caffe original did.
        self.pool1 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.conv2 = _conv(64, 64, 1)
        self.conv3 = _conv(64, 192, 3)
        self.pool3 = nn.MaxPool2d(3, 2, ceil_mode=True)
        inputs, pools = 192, {"4a": 3, "5a": 2}
        for name, widths in SPECIFICATIONS["googlenet"].items():
            if name in pools:
                self.add_module(f"pool{name}", nn.MaxPool2d(pools[name], 2, ceil_mode=True))
            single, reduce3, three, reduce5, five, pool = widths
            branches: OrderedDict[str, nn.Module] = OrderedDict(
                branch1=_conv(inputs, single, 1),
                branch2=nn.Sequential(_conv(inputs, reduce3, 1), _conv(reduce3, three, 3)),
                branch3=nn.Sequential(_conv(inputs, reduce5, 1), _conv(reduce5, five, 3)),
                branch4=nn.Sequential(nn.MaxPool2d(3, 1, 1), _conv(inputs, pool, 1)),
            )
            self.add_module(f"inception{name}", _SideBySide(branches))
            inputs = single + three + five + pool

    def forward(self, images: Tensor) -> Tensor:
        """`[B, C, H, W]` to `[B, 1024, H/32, W/32]`."""
        if self.transform_input and images.shape[1] == 3:
            deviation = images.new_tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
            mean = images.new_tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
            images = (images * deviation + mean - 0.5) / 0.5
        for layer in self:
            images = layer(images)
        return images


class _SideBySide(nn.Sequential):
    """Parallel branches, their channels concatenated."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self], dim=1)


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """Convolution without bias, batch normalisation, ReLU."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    norm = nn.BatchNorm2d(outputs, eps=0.001)
    return nn.Sequential(OrderedDict(conv=conv, bn=norm, relu=nn.ReLU()))


# BN-Inception (Ioffe & Szegedy 2015), the "inception backbone" of EPS appendix C, table 6.


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
        for name, widths in SPECIFICATIONS["bn-inception"].items():
            single, reduce3, three, reduce, double, pool = widths
            block, stride = f"inception_{name}", 1 if pool else 2
            self._add(f"{block}_1x1", inputs, single, 1)
            self._add(f"{block}_3x3_reduce", inputs, reduce3, 1)
            self._add(f"{block}_3x3", reduce3, three, 3, stride)
            self._add(f"{block}_double_3x3_reduce", inputs, reduce, 1)
            self._add(f"{block}_double_3x3_1", reduce, double, 3)
            self._add(f"{block}_double_3x3_2", double, double, 3, stride)
            self._add(f"{block}_pool_proj", inputs, pool, 1)
            inputs = single + three + double + (pool or inputs)
        # Ceiling mode keeps a last partial window, as the Caffe original did.
        self.halve = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.smooth = nn.AvgPool2d(3, 1, 1)
        self.peak = nn.MaxPool2d(3, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        """`[B, C, H, W]` to `[B, 1024, H/32, W/32]`."""
        x: Tensor = self.halve(self._run(images, "conv1_7x7_s2"))
        x = self.halve(self._run(x, "conv2_3x3_reduce", "conv2_3x3"))
        for name, (single, *_, pool) in SPECIFICATIONS["bn-inception"].items():
            block = f"inception_{name}"
            double = [f"{block}_double_3x3_{part}" for part in ("reduce", "1", "2")]
            branches = [self._run(x, f"{block}_1x1")] if single else []
            branches += [self._run(x, f"{block}_3x3_reduce", f"{block}_3x3"), self._run(x, *double)]
            if pool:
                pooled = self.peak(x) if name == "5b" else self.smooth(x)
                branches.append(self._run(pooled, f"{block}_pool_proj"))
            else:
                # The strided branches round odd sizes up; one more row and column (0, as low as any
                # output of a ReLU) makes this one do so too. Even sizes are as in the original.
                odd = (0, x.shape[3] % 2, 0, x.shape[2] % 2)
                branches.append(self.halve(nn.functional.pad(x, odd)))
            x = torch.cat(branches, dim=1)
        return x

    def _add(self, name: str, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        if outputs:  # a block that halves has fewer branches
            self.add_module(name, nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2))
            self.add_module(f"{name}_bn", nn.BatchNorm2d(outputs))

    def _run(self, x: Tensor, *names: str) -> Tensor:
        for name in names:
            x = torch.relu(getattr(self, f"{name}_bn")(getattr(self, name)(x)))
        return x


# EfficientNet-Lite0 and MobileNetV2: a stem, inverted residual blocks, a last convolution.


class MobileNet(nn.Sequential):
    """The network of this name: 1,280 channels at 1/32 of the input size, from RGB in [0, 1].

    >>> net = MobileNet("efficientnet-lite0")
    >>> net.features, list(net.stages())[-2:]
    (1280, ['block15', 'last'])
    """

    features = 1280

    def __init__(self, name: str, channels: int = 3) -> None:
        super().__init__()
        made_of = SPECIFICATIONS["mobile"][name]
        same = made_of["tensorflow"]
        scale = _Scale(made_of["mean"], made_of["std"])
        layer = _layer(channels, 32, same, kernel=3, stride=2)
        self.stem = nn.Sequential(OrderedDict(scale=scale, layer=layer))
        inputs = 32
        for expand, kernel, stride, outputs, repeats in made_of["stages"]:
            for step in [stride] + [1] * (repeats - 1):
                wide = inputs * expand
                # Widen, filter each channel, narrow.
                layers: OrderedDict[str, nn.Module] = OrderedDict(
                    expand=_layer(inputs, wide, same) if expand > 1 else nn.Identity(),
                    depthwise=_layer(wide, wide, same, kernel=kernel, stride=step, groups=wide),
                    project=_layer(wide, outputs, same, active=False),
                )
                block = _Added if step == 1 and inputs == outputs else nn.Sequential
                self.add_module(f"block{len(self) - 1}", block(layers))
                inputs = outputs
        self.last = _layer(inputs, self.features, same)

    def stages(self) -> dict[str, nn.Module]:
        """The parts in order, by name: `stem`, `block0`, ..., `last`."""
        return dict(self.named_children())


class _Added(nn.Sequential):
    """Layers whose output is added to their input."""

    def forward(self, x: Tensor) -> Tensor:
        out = x
        for layer in self:
            out = layer(out)
        return x + out


class _Scale(nn.Module):
    """Normalise pixels in [0, 1] as the weights expect."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.mean, self.std = mean, std

    def forward(self, images: Tensor) -> Tensor:
        mean, std = (images.new_tensor(value) for value in (self.mean, self.std))
        if len(mean) != images.shape[1]:  # a grey image: the mean over the colours
            mean, std = mean.mean(), std.mean()
        return (images - mean.view(-1, 1, 1)) / std.view(-1, 1, 1)


class _SamePadding(nn.Module):
    """TensorFlow's padding: ceil(length / stride) outputs; an odd pixel goes right and below."""

    def __init__(self, kernel: int, stride: int) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride

    def forward(self, x: Tensor) -> Tensor:
        sides: list[int] = []
        for length in (x.shape[3], x.shape[2]):
            missing = max((-(-length // self.stride) - 1) * self.stride + self.kernel - length, 0)
            sides += [missing // 2, missing - missing // 2]
        return nn.functional.pad(x, sides)


def _layer(
    inputs: int,
    outputs: int,
    same: bool,
    *,
    kernel: int = 1,
    stride: int = 1,
    groups: int = 1,
    active: bool = True,
) -> nn.Sequential:
    """Convolution, batch norm and, if `active`, ReLU6; `same`: padding and norm of TensorFlow."""
    pad = _SamePadding(kernel, stride) if same and kernel > 1 else nn.Identity()
    inside = 0 if same else kernel // 2
    conv = nn.Conv2d(inputs, outputs, kernel, stride, inside, groups=groups, bias=False)
    norm = nn.BatchNorm2d(outputs, 1e-3, 0.01) if same else nn.BatchNorm2d(outputs)
    end = nn.ReLU6(inplace=True) if active else nn.Identity()
    return nn.Sequential(OrderedDict(pad=pad, conv=conv, norm=norm, end=end))
