"""Augmentations of batches: boxes and flips by coordinates, colours against loops over pixels."""

import pickle
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from support.errors import refused
from uncollapse.data import LabelledImages, TensorSource, paper_transform
from uncollapse.data.augment import (
    Compose,
    center_crop,
    color_jitter,
    horizontal_flip,
    per_image,
    random_crop,
    random_erasing,
    random_resized_crop,
    standardize,
)

SEEDS = st.integers(0, 2**31)


def generator(seed):
    return torch.Generator().manual_seed(seed)


def ramp(count, height, width):
    """Images whose pixel at (y, x) holds its own coordinates: channels x, y."""
    y, x = torch.meshgrid(torch.arange(float(height)), torch.arange(float(width)), indexing="ij")
    return torch.stack([x, y]).expand(count, 2, height, width).contiguous()


def test_half_of_the_images_are_mirrored_and_the_others_left():
    images = torch.rand(4000, 2, 2, 3, generator=generator(0))
    flipped = horizontal_flip(images, generator(0))
    mirrored = torch.stack([images[..., 2 - i] for i in range(3)], dim=3)
    changed = (flipped == mirrored).flatten(1).all(1)
    assert torch.equal(flipped[~changed], images[~changed])
    assert abs(float(changed.float().mean()) - 0.5) < 0.03  # four deviations
    assert torch.equal(horizontal_flip(images, generator(0), p=0.0), images)


@given(SEEDS, st.integers(4, 20), st.integers(4, 20), st.integers(1, 12), st.integers(1, 12))
def test_a_resized_crop_is_an_axis_parallel_box_of_the_image(seed, height, width, tall, wide):
    crops = random_resized_crop(ramp(3, height, width), generator(seed), (tall, wide))
    assert crops.shape == (3, 2, tall, wide)
    for x, y in crops.double():
        # Columns share an x, rows share a y, both stay inside and ascend.
        assert torch.allclose(x, x[:1].expand_as(x), atol=1e-4)
        assert torch.allclose(y, y[:, :1].expand_as(y), atol=1e-4)
        for values, length in ((x[0], width), (y[:, 0], height)):
            assert -1e-4 <= values.min() <= values.max() <= length - 1 + 1e-4
            assert (values.diff() >= -1e-4).all()


def test_the_whole_image_at_its_own_size_is_the_image_and_a_crop_of_it_its_middle():
    images = torch.rand(2, 3, 9, 9, generator=generator(1))
    same = random_resized_crop(images, generator(0), (9, 9), scale=(1.0, 1.0), ratio=(1.0, 1.0))
    assert torch.allclose(same, images, atol=1e-6)
    assert torch.equal(center_crop(images, (3, 1)), images[:, :, 3:6, 4:5])
    with refused("size"):
        center_crop(images, (10, 9))


def test_boxes_have_the_area_and_aspect_asked_for():
    size = 64
    crops = random_resized_crop(
        ramp(500, size, size), generator(3), (32, 32), scale=(0.25, 0.25), ratio=(0.5, 2.0)
    )
    inside = crops[:, :, 8:24, 8:24].double()  # away from the border's clamping
    wide = (inside[:, 0, 0, -1] - inside[:, 0, 0, 0]) / 15 * 32
    tall = (inside[:, 1, -1, 0] - inside[:, 1, 0, 0]) / 15 * 32
    assert torch.allclose(wide * tall, torch.full_like(wide, 0.25 * size * size), rtol=1e-3)
    aspect = wide / tall
    assert aspect.min() >= 0.5 - 1e-3
    assert aspect.max() <= 2.0 + 1e-3
    assert abs(float(aspect.log().mean())) < 0.08  # log-uniform about 1; four deviations


@given(SEEDS, st.integers(1, 15), st.integers(1, 15))
def test_erasing_fills_one_box_in_every_channel(seed, height, width):
    images = torch.rand(4, 3, height, width, generator=generator(0)) + 1
    erased = random_erasing(images, generator(seed), p=1.0, value=-1.0)
    for before, after in zip(images, erased, strict=True):
        gone = after[0] == -1
        rows, columns = gone.any(1).nonzero(), gone.any(0).nonzero()
        assert gone[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1].all()
        assert int(gone.sum()) == len(rows) * len(columns) > 0
        assert torch.equal(after, torch.where(gone, -1.0, before))


def test_erasing_happens_with_its_probability_and_area():
    images = torch.ones(2000, 1, 50, 50)
    erased = random_erasing(images, generator(0), p=0.3, scale=(0.1, 0.2), ratio=(0.5, 2.0))
    areas = 1 - erased.mean(dim=(1, 2, 3))
    assert abs(float((areas > 0).float().mean()) - 0.3) < 0.05
    hit = areas[areas > 0]
    assert hit.min() > 0.08
    assert hit.max() < 0.22


STEPS = [partial(random_resized_crop, size=(6, 6)), horizontal_flip, random_erasing]


def test_augmentation_depends_on_its_seed_only_and_resumes_where_it_was_saved():
    images, state = torch.rand(8, 3, 10, 10, generator=generator(0)), torch.get_rng_state()
    augment, other = Compose(STEPS, seed=1), Compose(STEPS, seed=2)
    first = augment(images)
    assert torch.equal(first, Compose(STEPS, seed=1)(images))
    assert not torch.equal(first, other(images))
    assert torch.equal(state, torch.get_rng_state())
    copy = pickle.loads(pickle.dumps(augment))
    other.load_state_dict(augment.state_dict())
    wanted = augment(images)
    assert torch.equal(other(images), wanted)
    assert torch.equal(copy(images), wanted)


def test_any_callable_is_a_step():
    class Module(nn.Module):
        def forward(self, batch):
            return batch + 1

    images = torch.zeros(1, 1, 2, 2)
    assert float(Compose([Module(), lambda batch: batch * 3, torch.neg])(images).mean()) == -3.0
    with refused("steps[1]"):
        Compose([torch.neg, "flip"])


def test_functions_for_single_images_may_return_an_array_or_a_mapping():
    images = torch.rand(3, 3, 4, 5, generator=generator(0))
    shapes = []

    def mirror(image):
        shapes.append((image.shape, image.dtype))
        return image[:, ::-1]

    assert torch.equal(per_image(mirror)(images), images.flip(-1))
    assert shapes == [((4, 5, 3), np.float32)] * 3
    assert torch.equal(per_image(lambda image: {"image": mirror(image)})(images), images.flip(-1))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_worker_processes_draw_differently_from_each_other():
    data = LabelledImages(TensorSource(ramp(1, 1, 64)), torch.zeros(1, dtype=torch.long))
    data.transform = Compose([partial(random_erasing, p=1.0, value=-1.0)])
    batches = [[0]] * 8
    made, again = (
        [batch for batch, _ in data.loader(batches, workers=2, generator=generator(0))]
        for _ in range(2)
    )
    assert all(map(torch.equal, made, again))
    # Worker 0 gives the even batches, worker 1 the odd ones.
    assert any(not torch.equal(made[i], made[i + 1]) for i in range(0, 8, 2))


def test_the_papers_transforms_crop_what_is_cropped_and_nothing_else():
    images = torch.rand(2, 3, 256, 256, generator=generator(0))
    assert paper_transform("cars196", train=True)(images).shape[-2:] == (224, 224)
    middle = paper_transform("sop", train=False)(images)
    assert torch.equal(middle, images[..., 16:240, 16:240])
    for name, train in (("digits", True), ("mnist-parity", True), ("omniglot", True)):
        assert torch.equal(paper_transform(name, train=train)(images), images)
    assert torch.equal(paper_transform("market1501", train=False)(images), images)
    assert paper_transform("market1501", train=True)(images).shape == images.shape


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
def test_each_image_has_brightness_contrast_and_saturation_of_its_own(seed):
    images = torch.rand(6, 3, 4, 5, generator=generator(seed), dtype=torch.float64)
    changed = color_jitter(images, generator(seed), 0.4, 0.5, 0.6)
    draws = (2 * torch.rand(3, 6, generator=generator(seed)) - 1).double().numpy()
    factors = 1 + np.array([[0.4], [0.5], [0.6]]) * draws
    expected = [by_pixels(image, *factors[:, i]) for i, image in enumerate(images.numpy())]
    np.testing.assert_allclose(changed.numpy(), np.stack(expected), atol=1e-6)
    assert len(np.unique(factors)) == 18


def test_grey_images_have_no_saturation_and_stay_in_range():
    images = torch.rand(4, 1, 5, 5, generator=generator(0))
    torch.testing.assert_close(color_jitter(images, generator(1), 0.0, 0.0, 0.9), images)
    wild = color_jitter(images, generator(1), 0.9, 0.9)
    assert wild.shape == images.shape
    assert 0.0 <= float(wild.min()) < float(wild.max()) <= 1.0
    assert not torch.equal(wild, images)


def test_channels_are_standardised_by_as_many_statistics():
    images = torch.rand(8, 3, 6, 6, generator=generator(0))
    scaled = standardize(images, [0.1, 0.2, 0.3], [1.0, 2.0, 3.0])
    for c in range(3):
        torch.testing.assert_close(scaled[:, c], (images[:, c] - 0.1 * (c + 1)) / (c + 1))
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
