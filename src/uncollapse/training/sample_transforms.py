"""What `[data]` does to decoded images: augmentation in training, mean and std always."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from uncollapse._base.check import InputError
from uncollapse.data import (
    Compose,
    colour_jitter,
    horizontal_flip,
    paper_transform,
    random_crop,
    random_erasing,
    standardise,
)
from uncollapse.training.run_sections import DataConfig

__all__ = ["evaluation_transform", "size_pair", "training_transform"]

# In this order, whatever that of the config.
_AUGMENTATIONS: dict[str, Callable[..., Tensor]] = {
    "crop": random_crop,
    "flip": horizontal_flip,
    "colour": colour_jitter,
    "erase": random_erasing,
}


def training_transform(config: DataConfig, seed: int) -> Compose:
    """The random steps that `data.augment` names, then `data.mean` and `data.std`."""
    steps: list[Callable[..., Tensor]] = []
    if config.augment == "paper":
        steps += paper_transform(config.name, train=True).steps
    elif isinstance(config.augment, list):
        chosen = [step for name, step in _AUGMENTATIONS.items() if name in config.augment]
        steps += [_images_only, *chosen] if chosen else []
    return Compose([*steps, *_standardised(config)], seed=seed)


def evaluation_transform(config: DataConfig) -> Compose | None:
    """The same without chance: the middle crop where the papers crop, `data.mean`, `data.std`."""
    steps: list[Callable[..., Tensor]] = []
    if config.augment == "paper":
        steps += paper_transform(config.name, train=False).steps
    steps += _standardised(config)
    return Compose(steps) if steps else None


def size_pair(size: int | list[int] | None) -> tuple[int, int] | None:
    """`data.size` as height and width.

    >>> size_pair(32), size_pair([64, 32]), size_pair(None)
    ((32, 32), (64, 32), None)
    """
    if isinstance(size, list):
        return size[0], size[1]
    return None if size is None else (size, size)


def _standardised(config: DataConfig) -> list[Callable[[Tensor], Tensor]]:
    if config.mean is None and config.std is None:
        return []
    return [partial(_standardise, mean=config.mean or [0.0], std=config.std or [1.0])]


def _standardise(images: Tensor, mean: list[float], std: list[float]) -> Tensor:
    for name, values in (("data.mean", mean), ("data.std", std)):
        if images.ndim != 4:
            raise InputError(name, values, "no such key: these samples are not images")
        if len(values) not in (1, images.shape[1]):
            allowed = f"one number, or one for each of the {images.shape[1]} channels"
            raise InputError(name, values, allowed)
    return standardise(images, mean, std)


def _images_only(images: Tensor) -> Tensor:
    if images.ndim != 4:
        given = "samples that are not images"
        raise InputError("data.augment", given, "'none': only images are augmented")
    return images
