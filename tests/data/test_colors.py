"""Colour changes and channel statistics against loops over pixels."""

import numpy as np
import pytest
import torch

from support.errors import refused
from uncollapse.data.augment import color_jitter, random_crop, standardize


def generator(seed):
    return torch.Generator().manual_seed(seed)


def by_pixels(image, bright, contrast, saturation):
    """One image [3, H, W] in float64, pixel by pixel."""
    weights = np.array([0.299, 0.587, 0.114])
    image = np.clip(image * bright, 0, 1)
    middle = np.mean([weights @ image[:, y, x] for y in range(4) for x in range(5)])
    image = np.clip(middle + contrast * (image - middle), 0, 1)
    changed = np.empty_like(image)
    for y in range(4):
        for x in range(5):
            grey = weights @ image[:, y, x]
            changed[:, y, x] = np.clip(grey + saturation * (image[:, y, x] - grey), 0, 1)
    return changed


@pytest.mark.parametrize("seed", range(4))
def test_each_image_has_factors_of_its_own(seed):
    images = torch.rand(6, 3, 4, 5, generator=generator(seed), dtype=torch.float64)
    found = color_jitter(images, generator(seed), 0.4, 0.5, 0.6)
    draws = (2 * torch.rand(3, 6, generator=generator(seed)) - 1).double().numpy()
    factors = 1 + np.array([[0.4], [0.5], [0.6]]) * draws
    expected = [by_pixels(image, *factors[:, i]) for i, image in enumerate(images.numpy())]
    np.testing.assert_allclose(found.numpy(), np.stack(expected), atol=1e-6)
    assert len(np.unique(factors)) == 18


def test_grey_images_have_no_saturation_and_stay_in_range():
    images = torch.rand(4, 1, 5, 5, generator=generator(0))
    torch.testing.assert_close(color_jitter(images, generator(1), 0.0, 0.0, 0.9), images)
    wild = color_jitter(images, generator(1), 0.9, 0.9)
    assert wild.shape == images.shape
    assert 0.0 <= float(wild.min()) < float(wild.max()) <= 1.0
    assert not torch.equal(wild, images)


def test_standardised_channels_have_mean_0_and_deviation_1():
    scales = torch.tensor([1.0, 2.0, 3.0]).view(1, 3, 1, 1)
    images = scales * torch.rand(8, 3, 6, 6, generator=generator(0))
    mean, std = images.mean(dim=(0, 2, 3)), images.std(dim=(0, 2, 3))
    found = standardize(images, mean.tolist(), std.tolist())
    torch.testing.assert_close(found.mean(dim=(0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.std(dim=(0, 2, 3)), torch.ones(3), atol=1e-5, rtol=0)


def test_statistics_of_other_channels_are_refused():
    with refused("mean"):
        standardize(torch.zeros(2, 1, 4, 4), [0.5, 0.5, 0.5], [1.0])
    with refused("images"):
        standardize(torch.zeros(2, 4), [0.5], [1.0])


def test_a_random_crop_keeps_the_shape_and_most_of_the_picture():
    tall = torch.linspace(0, 1, 64).view(1, 1, 64, 1).expand(200, 1, 64, 32)
    cut = random_crop(tall, generator(0))
    assert cut.shape == tall.shape
    heights = cut[:, 0, -1, 0] - cut[:, 0, 0, 0]
    # Area 0.7 to 1 and an aspect of 0.9 to 1.1 of the image's own.
    assert float(heights.min()) > (0.7 / 1.1) ** 0.5 - 0.03
    assert float(heights.max()) <= 1.0 + 1e-5
    assert float(heights.std()) > 0.02
