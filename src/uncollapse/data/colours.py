"""Brightness, contrast, saturation and channel statistics of whole batches of images."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from uncollapse._base.check import InputError

__all__ = ["colour_jitter", "standardise"]

_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601: how bright red, green and blue look


def colour_jitter(
    images: Tensor,
    generator: torch.Generator,
    brightness: float = 0.2,
    contrast: float = 0.2,
    saturation: float = 0.2,
) -> Tensor:
    """Change brightness, contrast and saturation of each image by random factors around 1.

    A factor is uniform in `1 - b` to `1 + b`. Images `[B, C, H, W]` are in [0, 1] and stay there;
    those of one channel have no saturation.

    >>> grey = torch.full((1, 3, 2, 2), 0.5)
    >>> same = colour_jitter(grey, torch.Generator().manual_seed(0), 0.0, 0.5, 0.5)
    >>> bool(torch.allclose(same, grey))  # no contrast, no colour: nothing to change
    True
    """
    draws = 2.0 * torch.rand(3, len(images), 1, 1, 1, generator=generator) - 1.0
    bright, contrasted, coloured = (
        1.0 + amount * draw.to(images)
        for amount, draw in zip((brightness, contrast, saturation), draws, strict=True)
    )
    images = (images * bright).clamp(0.0, 1.0)
    middle = _grey(images).mean(dim=(1, 2, 3), keepdim=True)
    images = (middle + contrasted * (images - middle)).clamp(0.0, 1.0)
    if images.shape[1] != 3:
        return images
    grey = _grey(images)
    return torch.clamp(grey + coloured * (images - grey), 0.0, 1.0)


def standardise(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """`(images - mean) / std`, each one number or one per channel of `[B, C, H, W]`.

    >>> standardise(torch.ones(1, 3, 1, 1), [0.5], [0.5, 0.25, 1.0]).flatten().tolist()
    [1.0, 2.0, 0.5]
    """
    if images.ndim != 4:
        raise InputError("images", f"shape {tuple(images.shape)}", "images [B, C, H, W]")
    shaped = []
    for name, values in (("mean", mean), ("std", std)):
        if len(values) not in (1, images.shape[1]):
            allowed = f"one number, or one for each of the {images.shape[1]} channels"
            raise InputError(name, list(values), allowed)
        numbers = torch.tensor(values, dtype=images.dtype, device=images.device)
        shaped.append(numbers.view(1, -1, 1, 1))
    return (images - shaped[0]) / shaped[1]


def _grey(images: Tensor) -> Tensor:
    if images.shape[1] != 3:
        return images.mean(dim=1, keepdim=True)
    weights = torch.tensor(_LUMA, dtype=images.dtype, device=images.device).view(1, 3, 1, 1)
    return (images * weights).sum(dim=1, keepdim=True)
