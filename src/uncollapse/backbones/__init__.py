"""Networks of both papers, with official weight files, and a head that gives embeddings."""

from uncollapse.backbones.batchnorm import FrozenBatchNorm, freeze_batch_norm
from uncollapse.backbones.bn_inception import BNInception
from uncollapse.backbones.conv2 import Conv2
from uncollapse.backbones.googlenet import GoogLeNet
from uncollapse.backbones.head import Embedder, Head
from uncollapse.backbones.initial_weights import initialise
from uncollapse.backbones.mlp import MLP
from uncollapse.backbones.mnist_cnn import MnistCNN
from uncollapse.backbones.registry import BACKBONES, build
from uncollapse.backbones.resnet import ResNet, resnet18, resnet50
from uncollapse.backbones.weights import (
    WeightsError,
    load_weights,
    preprocessing,
    read_weights,
)

__all__ = [
    "BACKBONES",
    "MLP",
    "BNInception",
    "Conv2",
    "Embedder",
    "FrozenBatchNorm",
    "GoogLeNet",
    "Head",
    "MnistCNN",
    "ResNet",
    "WeightsError",
    "build",
    "freeze_batch_norm",
    "initialise",
    "load_weights",
    "preprocessing",
    "read_weights",
    "resnet18",
    "resnet50",
]
