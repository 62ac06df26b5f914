"""ResNet-18 and ResNet-50 (He et al. 2016): HNM §4 and appendices D-E, EPS appendix C.

Parameter names and shapes are torchvision's, without the classifier `fc`; the stride of a
bottleneck sits on its 3x3 convolution, as in the official weight files.
"""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["ResNet", "resnet18", "resnet50"]


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
