"""Counts of the real files, when UNCOLLAPSE_DATA has them."""

import numpy as np
import pytest
import torch

from uncollapse.data import Counts, check, load
from uncollapse.data.pair_lists import read_pairs
from uncollapse.data.registry import find_pairs, list_split


def counts(data):
    fine = None if data.fine_labels is None else len(torch.unique(data.fine_labels))
    return Counts(len(data), len(data.classes), fine)


def need(folder):
    if not folder.is_dir():
        pytest.skip(f"UNCOLLAPSE_DATA has no folder {folder.name}")


def test_real_mnist_has_60000_and_10000_images(real_data):
    need(real_data / "mnist")
    assert counts(load("mnist", split="train")) == Counts(60_000, 10)
    assert counts(load("mnist", split="test")) == Counts(10_000, 10)
    assert check("mnist-parity").complete


def test_real_omniglot_has_964_letters_of_30_alphabets_and_659_of_20(real_data):
    need(real_data / "omniglot")
    assert check("omniglot").complete
    data = load("omniglot", split="test", size=28)
    assert counts(data) == Counts(13_180, 20, 659)
    assert data.report.clean
    images, _ = data[[0, 13_179]]
    assert tuple(images.shape) == (2, 1, 28, 28)
    assert 0.02 < float(images.mean()) < 0.3  # ink is bright on dark
    assert data.fine_labels.bincount()[964:].unique().tolist() == [20]


def test_real_clinc_has_150_intents_of_10_domains(real_data):
    need(real_data / "clinc150")
    assert check("clinc150").complete
    data = load("clinc150", split="test")
    assert data.texts([0]) == ["how would you say fly in italian"]
    assert data.fine_labels.bincount().unique().tolist() == [30]
    assert data.class_names[int(data.labels[0])] == "travel"


def test_real_lfw_has_every_picture_of_its_pairs(real_data):
    need(real_data / "lfw")
    assert check("lfw").complete
    whole = list_split("lfw", None, "all")
    assert Counts.of(whole) == Counts(13_233, 5_749)
    assert int((np.bincount(whole.labels) > 1).sum()) == 1_680
    assert len(read_pairs(find_pairs("lfw"))) == 6_000
    assert whole.missing == ()
