"""Counts of the real files, when UNCOLLAPSE_DATA has them."""

import pytest
import torch

from uncollapse.data import Counts, check, load


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
    assert check("mnist-parity").ok


def test_real_omniglot_has_964_letters_of_30_alphabets_and_659_of_20(real_data):
    need(real_data / "omniglot")
    result = check("omniglot", decode=False)
    assert result.ok
    assert [split.found for split in result.splits] == [
        Counts(19_280, 30, 964),
        Counts(13_180, 20, 659),
    ]
    data = load("omniglot", split="test", size=28)
    assert counts(data) == Counts(13_180, 20, 659)
    assert data.report.clean
    images, _ = data[[0, 13_179]]
    assert tuple(images.shape) == (2, 1, 28, 28)
    assert 0.02 < float(images.mean()) < 0.3  # ink is bright on dark
    assert data.fine_labels.bincount()[964:].unique().tolist() == [20]


def test_real_clinc_has_150_intents_of_10_domains(real_data):
    need(real_data / "clinc150")
    result = check("clinc150")
    assert result.ok
    assert [split.found for split in result.splits] == [
        Counts(15_000, 10, 150),
        Counts(3_000, 10, 150),
        Counts(4_500, 10, 150),
        Counts(1_200, 1, 1),
    ]
    data = load("clinc150", split="test")
    assert data.texts([0]) == ["how would you say fly in italian"]
    assert data.fine_labels.bincount().unique().tolist() == [30]
    assert data.class_names[int(data.labels[0])] == "travel"
