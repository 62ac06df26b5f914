"""Texts or images: what a run's dataset holds, and which backbones can read it."""

from __future__ import annotations

from uncollapse._base.check import InputError
from uncollapse.backbones import BACKBONES, SCALES_ITSELF
from uncollapse.data import describe
from uncollapse.training.config import Config

__all__ = ["check_samples", "trains_on_texts"]


def trains_on_texts(config: Config) -> bool:
    """Whether the samples of the config's dataset are texts.

    >>> trains_on_texts(Config())
    False
    """
    return describe(config.data.name).texts


def check_samples(config: Config) -> None:
    """Raise `InputError` for texts with a backbone for images, or images with one for texts.

    One's own `module.path:function` may read either. A network that scales pixels as its weights
    expect takes no `data.mean` or `data.std` beside.
    """
    name, data = config.model.backbone, config.data.name
    of_images = name in BACKBONES or name.startswith("timm:")
    if trains_on_texts(config) and of_images:
        allowed = f"a sentence: backbone (or your own function) for the texts of {data!r}"
        raise InputError("model.backbone", repr(name), allowed)
    for key, given in (("data.mean", config.data.mean), ("data.std", config.data.std)):
        if name in SCALES_ITSELF and given is not None:
            raise InputError(key, given, f"nothing: {name} scales pixels itself")
    if name.startswith("sentence:") and not trains_on_texts(config):
        allowed = f"a backbone for the samples of {data!r}, which are no texts"
        raise InputError("model.backbone", repr(name), allowed)
