"""Networks of both papers, with official weight files, and a head that gives embeddings."""

from uncollapse.backbones.head import Embedder, Front, Head, freeze, freeze_batch_norm
from uncollapse.backbones.registry import BACKBONES, HEADS, SCALES_ITSELF, build, initialise
from uncollapse.backbones.weights import WeightsError, load_weights, preprocessing, read_weights

__all__ = [
    "BACKBONES",
    "HEADS",
    "SCALES_ITSELF",
    "Embedder",
    "Front",
    "Head",
    "WeightsError",
    "build",
    "freeze",
    "freeze_batch_norm",
    "initialise",
    "load_weights",
    "preprocessing",
    "read_weights",
]
