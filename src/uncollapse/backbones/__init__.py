"""Networks of both papers, with official weight files, and a head that gives embeddings."""

from uncollapse.backbones.batchnorm import FrozenBatchNorm, freeze_batch_norm
from uncollapse.backbones.bn_inception import BNInception
from uncollapse.backbones.conv2 import Conv2
from uncollapse.backbones.freezing import freeze, stages_of
from uncollapse.backbones.googlenet import GoogLeNet
from uncollapse.backbones.head import Embedder, Front, Head
from uncollapse.backbones.initial_weights import initialise
from uncollapse.backbones.mlp import MLP
from uncollapse.backbones.mnist_cnn import MnistCNN
from uncollapse.backbones.mobile import (
    SCALES_ITSELF,
    MobileNet,
    efficientnet_lite0,
    mobilenet_v2,
)
from uncollapse.backbones.registry import BACKBONES, HEADS, build
from uncollapse.backbones.resnet import ResNet, resnet18, resnet50
from uncollapse.backbones.weights import (
    WeightsError,
    load_weights,
    preprocessing,
    read_weights,
)

__all__ = [
    "BACKBONES",
    "HEADS",
    "MLP",
    "SCALES_ITSELF",
    "BNInception",
    "Conv2",
    "Embedder",
    "Front",
    "FrozenBatchNorm",
    "GoogLeNet",
    "Head",
    "MnistCNN",
    "MobileNet",
    "ResNet",
    "WeightsError",
    "build",
    "efficientnet_lite0",
    "freeze",
    "freeze_batch_norm",
    "initialise",
    "load_weights",
    "mobilenet_v2",
    "preprocessing",
    "read_weights",
    "resnet18",
    "resnet50",
    "stages_of",
]
