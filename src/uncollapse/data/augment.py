"""Augmentations on whole batches of tensors: small functions that draw from a generator."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from uncollapse._base.check import InputError


def horizontal_flip(images: Tensor, generator: torch.Generator, p: float = 0.5) -> Tensor:
    """Mirror each image left to right with probability `p`.

    >>> horizontal_flip(torch.tensor([[[[1, 2, 3]]]]), torch.Generator(), p=1.0).flatten().tolist()
    [3, 2, 1]
    """
    chosen = torch.rand(len(images), generator=generator) < p
    return torch.where(chosen.to(images.device)[:, None, None, None], images.flip(-1), images)


def random_resized_crop(
    images: Tensor,
    generator: torch.Generator,
    size: tuple[int, int],
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> Tensor:
    """Crop a box of random area (`scale`, a share) and aspect (`ratio`) per image, and resize it.

    The box's aspect is log-uniform; a box that would not fit is shrunk to the image's side. Linear
    interpolation, all images in one pass.

    >>> images = torch.rand(4, 3, 16, 16)
    >>> tuple(random_resized_crop(images, torch.Generator(), size=(8, 6)).shape)
    (4, 3, 8, 6)
    """
    count, _, height, width = images.shape
    wide, tall = _boxes(count, (height, width), scale, ratio, generator)
    draws = torch.rand(2, count, generator=generator)
    left, top = (width - wide) * draws[0], (height - tall) * draws[1]
    # affine_grid maps the output's [-1, 1] square onto the box, in the input's [-1, 1] square.
    affine = torch.zeros(count, 2, 3)
    affine[:, 0, 0], affine[:, 1, 1] = wide / width, tall / height
    affine[:, 0, 2] = (2 * left + wide) / width - 1
    affine[:, 1, 2] = (2 * top + tall) / height - 1
    grid = torch.nn.functional.affine_grid(
        affine.to(images), [count, images.shape[1], *size], align_corners=False
    )
    return torch.nn.functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


def random_crop(
    images: Tensor,
    generator: torch.Generator,
    scale: tuple[float, float] = (0.7, 1.0),
    stretch: tuple[float, float] = (0.9, 1.1),
) -> Tensor:
    """Crop a box of nearly the original shape from each image, and resize it to the original size.

    `scale` is the share of the area that is kept, `stretch` the factor applied to the aspect.

    >>> tuple(random_crop(torch.rand(2, 3, 16, 8), torch.Generator()).shape)
    (2, 3, 16, 8)
    """
    height, width = images.shape[-2:]
    ratio = stretch[0] * width / height, stretch[1] * width / height
    return random_resized_crop(images, generator, (height, width), scale, ratio)


def random_erasing(
    images: Tensor,
    generator: torch.Generator,
    p: float = 0.5,
    scale: tuple[float, float] = (0.02, 0.33),
    ratio: tuple[float, float] = (0.3, 3.3),
    value: float = 0.0,
) -> Tensor:
    """Fill a box of random area, aspect and position with `value`, per image with probability `p`.

    >>> images = torch.ones(1, 1, 10, 10)
    >>> erased = random_erasing(images, torch.Generator().manual_seed(0), p=1.0)
    >>> 0.0 < float(erased.mean()) < 1.0, float(images.mean())
    (True, 1.0)
    """
    count, _, height, width = images.shape
    boxes = _boxes(count, (height, width), scale, ratio, generator)
    wide, tall = (side.round().clamp(min=1) for side in boxes)
    draws = torch.rand(3, count, generator=generator)
    left = ((width - wide + 1) * draws[0]).floor()
    top = ((height - tall + 1) * draws[1]).floor()
    x, y = torch.arange(width), torch.arange(height)
    across = (x >= left[:, None]) & (x < (left + wide)[:, None])
    down = (y >= top[:, None]) & (y < (top + tall)[:, None])
    box = down[:, None, :, None] & across[:, None, None, :] & (draws[2] < p)[:, None, None, None]
    return images.masked_fill(box.to(images.device), value)


def center_crop(images: Tensor, size: tuple[int, int]) -> Tensor:
    """The middle of each image.

    >>> center_crop(torch.arange(16).view(1, 1, 4, 4), (2, 2)).flatten().tolist()
    [5, 6, 9, 10]
    """
    height, width = images.shape[-2:]
    if size[0] > height or size[1] > width:
        raise InputError("size", size, f"at most the images' {height, width}")
    top, left = (height - size[0]) // 2, (width - size[1]) // 2
    return images[..., top : top + size[0], left : left + size[1]]


def per_image(function: Callable[..., Any]) -> Callable[[Tensor], Tensor]:
    """Turn a transform of single images into one of batches, with the call of albumentations.

    `function(image=array)` gets one image `[H, W, C]` as float32 and returns such an array, or a
    mapping that has it under `"image"`.

    >>> mirror = per_image(lambda image: {"image": image[:, ::-1]})
    >>> mirror(torch.tensor([[[[1.0, 2.0]]]])).flatten().tolist()
    [2.0, 1.0]
    """

    def transform(images: Tensor) -> Tensor:
        results = []
        for image in images:
            result = function(image=image.permute(1, 2, 0).contiguous().numpy())
            array = result if isinstance(result, np.ndarray) else result["image"]
            results.append(torch.from_numpy(np.ascontiguousarray(array)).permute(2, 0, 1))
        return torch.stack(results).to(images.dtype)

    return transform


class Compose:
    """Apply steps in turn to a batch; random ones draw from one seeded generator.

    A step is any callable on batches (torchvision's v2 transforms, kornia's modules, a lambda). One
    with a parameter `generator` is given the generator. `state_dict` lets a run resume exactly.
    Each worker process of a loader uses its own seed.

    >>> from functools import partial
    >>> steps = [partial(random_resized_crop, size=(8, 8)), horizontal_flip, lambda x: x * 2]
    >>> first, again = Compose(steps, seed=1), Compose(steps, seed=1)
    >>> images = torch.rand(4, 3, 16, 16)
    >>> bool(torch.equal(first(images), again(images)))
    True
    """

    def __init__(self, steps: Sequence[Callable[..., Tensor]], seed: int = 0) -> None:
        self.steps = list(steps)
        for number, step in enumerate(self.steps):
            if not callable(step):
                raise InputError(f"steps[{number}]", repr(step), "a callable on batches")
        self._random = [_takes_generator(step) for step in self.steps]
        self._generator = torch.Generator().manual_seed(seed)
        self._worker: int | None = None

    def __call__(self, images: Tensor) -> Tensor:
        """`[B, C, H, W]` through every step."""
        worker = get_worker_info()
        if worker is not None and self._worker != worker.seed:
            # Workers start as copies: with the same state they would all draw the same.
            self._worker = worker.seed
            self._generator.manual_seed(worker.seed)
        for step, random in zip(self.steps, self._random, strict=True):
            images = step(images, generator=self._generator) if random else step(images)
        return images

    def state_dict(self) -> dict[str, Tensor]:
        """The generator's state."""
        return {"generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from a saved state."""
        self._generator.set_state(state["generator"])

    def __getstate__(self) -> dict[str, Any]:
        """Generators do not pickle; their state does."""
        return self.__dict__ | {"_generator": self._generator.get_state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._generator = torch.Generator()
        self._generator.set_state(state["_generator"])


def _boxes(
    count: int,
    size: tuple[int, int],
    scale: tuple[float, float],
    ratio: tuple[float, float],
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Widths and heights of random boxes: uniform area, log-uniform aspect, at most the image."""
    draws = torch.rand(2, count, generator=generator)
    low, high = (math.log(edge) for edge in ratio)
    area = (scale[0] + (scale[1] - scale[0]) * draws[0]) * size[0] * size[1]
    aspect = (low + (high - low) * draws[1]).exp()
    return (area * aspect).sqrt().clamp(max=size[1]), (area / aspect).sqrt().clamp(max=size[0])


def _takes_generator(step: Callable[..., Any]) -> bool:
    try:
        return "generator" in inspect.signature(step).parameters
    except (TypeError, ValueError):
        return False


# Brightness, contrast, saturation and channel statistics of whole batches of images.

_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601: how bright red, green and blue look


def color_jitter(
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
    >>> same = color_jitter(grey, torch.Generator().manual_seed(0), 0.0, 0.5, 0.5)
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


def standardize(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """`(images - mean) / std`, each one number or one per channel of `[B, C, H, W]`.

    >>> standardize(torch.ones(1, 3, 1, 1), [0.5], [0.5, 0.25, 1.0]).flatten().tolist()
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
