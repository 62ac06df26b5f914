"""`data.size`, `fit`, `mean`, `std` and `augment`: what a network sees of a user's own pictures."""

import copy

import numpy as np
import pytest
import torch
from PIL import Image

from support.configs import small_config
from support.errors import refused
from uncollapse.training import embed, parse_config, train
from uncollapse.training.assemble import evaluation_transform, load_eval_data, training_transform
from uncollapse.training.evaluation import images_of_files
from uncollapse.training.session import Session

HEAD, FEET = (250, 10, 10), (10, 10, 250)


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """Four people, 128 x 64: the top eighth is a red head, the bottom eighth blue feet."""
    base = tmp_path_factory.mktemp("people")
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for person in range(4):
            folder = base / split / f"person {person}"
            folder.mkdir(parents=True)
            for shot in range(4):
                pixels = rng.normal(50 + 40 * person, 12, (128, 64, 3)).clip(0, 255)
                pixels[:16], pixels[-16:] = HEAD, FEET
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{shot}.png")
    return base


def config(root, **keys):
    data = {"name": "folder", "root": str(root), "size": [32, 16]} | keys
    model = {"backbone": "conv2", "hidden": None}
    return small_config(data=data, model=model, batch={"p": 3, "k": 2}, train={"steps": 2})


def parts(images):
    """Whether the middle column has a red top and a blue bottom."""
    top, bottom = images[:, :, 0, images.shape[3] // 2], images[:, :, -1, images.shape[3] // 2]
    return bool((top[:, 0] > 0.8).all()), bool((bottom[:, 2] > 0.8).all())


@pytest.mark.parametrize(
    ("size", "fit", "whole"),
    [
        ([32, 16], None, True),
        (32, None, False),  # a square, covered: heads and feet are gone
        (32, "contain", True),
        (32, "stretch", True),
    ],
)
def test_a_size_of_two_numbers_or_another_fit_keeps_heads_and_feet(people, size, fit, whole):
    data = load_eval_data(config(people, size=size, **({"fit": fit} if fit else {})), "test")
    assert data.shape == (3, *(size if isinstance(size, list) else [size, size]))
    images = data[:][0]
    assert parts(images) == (whole, whole)
    if fit == "contain":  # the sides are black
        assert float(images[..., :8].max()) == float(images[..., 24:].max()) == 0.0
        assert float(images[..., 8:24].min()) > 0.0


@pytest.mark.slow
def test_mean_and_std_hold_in_training_evaluation_and_search(people, tmp_path):
    plain = load_eval_data(config(people), "test")[:][0]
    wanted = config(people, mean=[0.1, 0.2, 0.3], std=[0.5])
    expected = (plain - torch.tensor([0.1, 0.2, 0.3]).view(1, 3, 1, 1)) / 0.5
    data = load_eval_data(wanted, "test")
    torch.testing.assert_close(data[:][0], expected)
    torch.testing.assert_close(training_transform(wanted)(plain), expected)
    run = train(wanted, tmp_path / "run")
    files = sorted((people / "test").rglob("*.png"))
    found = images_of_files(files, run)
    torch.testing.assert_close(found[:][0], expected)
    model = run.choose().model
    torch.testing.assert_close(embed(model, found), embed(model, data))
    with torch.no_grad():
        assert not torch.allclose(model(plain), embed(model, data))
    assert torch.equal(data.pixels(), load_eval_data(config(people), "test").pixels())


def test_one_word_or_several_augment_training_alone(people):
    words = ["erase", "colour", "crop", "flip"]
    session = Session(config(people, augment=words), load(people))
    images = session.data[:8][0]
    one, two = session.augment(images), session.augment(images)
    assert one.shape == images.shape
    assert not torch.equal(one, two)
    assert evaluation_transform(session.config.data) is None
    session.advance()
    again = Session(session.config, session.data)  # the next step is augmented as it would be
    again.restore(copy.deepcopy(session.checkpoint()))
    assert session.advance() == again.advance()
    assert config(people, augment="flip").data.augment == ["flip"]


def load(people):
    return load_eval_data(config(people), "train")


@pytest.mark.parametrize(
    ("word", "changed"), [("flip", False), ("crop", True), ("colour", True), ("erase", True)]
)
def test_each_word_does_what_it_says(people, word, changed):
    images = load(people)[:][0]
    made = training_transform(config(people, augment=[word]))(images)
    assert made.shape == images.shape
    assert not torch.equal(made, images)
    same_rows = torch.allclose(made.mean(dim=3), images.mean(dim=3), atol=1e-5)
    assert same_rows is not changed  # a mirrored row has the same pixels
    if word == "erase":
        assert bool(((made == images) | (made == 0.0)).all())


def test_statistics_of_three_channels_are_refused_for_grey_pictures(people):
    data = load_eval_data(config(people, channels=1, mean=[0.5, 0.5, 0.5]), "test")
    with refused("data.mean"):
        data[:2]


def test_features_are_neither_augmented_nor_standardised():
    features = torch.zeros(4, 7)
    with refused("data.augment"):
        training_transform(parse_config({"data": {"augment": ["flip"]}}))(features)
    with refused("data.mean"):
        evaluation_transform(parse_config({"data": {"mean": [0.5]}}).data)(features)
