"""Networks of both papers, with official weight files, and a head that gives embeddings."""

from uncollapse.backbones.head import (
    Embedder,
    Front,
    FrozenBatchNorm,
    Head,
    freeze,
    freeze_batch_norm,
    stages_of,
)
from uncollapse.backbones.mobile import (
    SCALES_ITSELF,
    MobileNet,
    efficientnet_lite0,
    mobilenet_v2,
)
from uncollapse.backbones.networks import (
    MLP,
    BNInception,
    Conv2,
    GoogLeNet,
    MnistCNN,
    ResNet,
    resnet18,
    resnet50,
)
from uncollapse.backbones.registry import BACKBONES, HEADS, build, initialise
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
