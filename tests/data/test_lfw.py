"""Labelled Faces in the Wild: its layouts, and a split that nobody is on both sides of."""

import shutil

import numpy as np
import pytest
from PIL import Image

from support.errors import unusable
from support.small_copies import LONERS, paint_lfw, paired_people
from uncollapse.data import Counts, check, load
from uncollapse.data.registry import find_pairs, list_split


@pytest.fixture
def lfw(tmp_path):
    return paint_lfw(tmp_path / "lfw")


def people(data):
    return {data.class_names[int(label)] for label in data.labels}


def test_the_second_half_of_the_folds_is_for_testing_and_everyone_else_for_training(lfw):
    train, test, whole = (list_split("lfw", lfw, split) for split in ("train", "test", "all"))
    assert people(test) == paired_people((3, 4))
    assert people(train) == paired_people((1, 2)) | set(LONERS)
    assert (len(train.labels), len(test.labels), len(whole.labels)) == (26, 24, 50)
    for part in (train, test):  # a person has the same number in every split
        assert set(part.class_names) == set(part.labels.tolist())
        assert part.class_names.items() <= whole.class_names.items()
    assert check("lfw", lfw).found == {"train": Counts(26, 8), "test": Counts(24, 6)}
    pairs = lfw / "pairs.txt"  # someone of both halves is only tested
    pairs.write_text(pairs.read_text().replace("Fold_4_a", "Fold_1_a"))
    train, test = list_split("lfw", lfw), list_split("lfw", lfw, "test")
    assert "Fold_1_a" in people(test)
    assert not people(train) & people(test)


def test_the_face_is_the_middle_of_the_picture(lfw):
    file = lfw / "lfw-deepfunneled" / "Fold_1_a" / "Fold_1_a_0001.jpg"
    with Image.open(file) as image:
        face = np.moveaxis(np.asarray(image.crop((4, 4, 16, 16))), 2, 0)  # 0.6 of 20 x 20
        whole = np.moveaxis(np.asarray(image), 2, 0)
    assert np.array_equal(load("lfw", lfw, "all", size=12).pixels([0])[0], face)
    assert np.array_equal(load("lfw", lfw, "all", size=20, middle=1.0).pixels([0])[0], whole)
    assert load("lfw", lfw, "all", cache=False).shape == (3, 112, 112)


@pytest.fixture(scope="module")
def painted(tmp_path_factory):
    return paint_lfw(tmp_path_factory.mktemp("painted"))


@pytest.mark.parametrize(
    ("images", "pairs", "given"),
    [
        ("lfw/images_deepfunneled", "lfw", "."),
        ("lfw/images_deepfunneled", "lfw", "lfw/images_deepfunneled"),
        ("lfw-deepfunneled/lfw-deepfunneled", ".", "."),
        ("lfw_home/lfw_funneled", "lfw_home", "."),
        ("lfw_home/lfw_funneled", "lfw_home/lfw_funneled", "lfw_home"),
        ("lfw", ".", "."),
        ("faces", "faces", "faces"),
        ("lfw/images", "lfw", "lfw"),
    ],
)
def test_every_usual_layout_is_found(tmp_path, painted, images, pairs, given):
    (tmp_path / images).parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(painted / "lfw-deepfunneled", tmp_path / images, dirs_exist_ok=True)
    shutil.copy(painted / "pairs.txt", tmp_path / pairs)
    assert len(list_split("lfw", tmp_path / given, "test").labels) == 24
    assert find_pairs("lfw", tmp_path / given) == (tmp_path / pairs / "pairs.txt").resolve()


def test_without_pairs_of_two_folds_there_is_only_all(lfw):
    (lfw / "pairs.txt").write_text("1\nFold_1_a\t1\t2\nFold_1_a\t1\tFold_1_b\t1\n")
    unusable("one fold", load, "lfw", lfw)
    (lfw / "pairs.txt").unlink()
    assert len(list_split("lfw", lfw, "all").labels) == 50
    assert find_pairs("lfw", lfw) is None
    unusable(r"no pairs\.txt in .*split 'all'", load, "lfw", lfw)


def test_pictures_that_a_pair_names_and_that_are_not_there_are_missing(lfw):
    (lfw / "lfw-deepfunneled/Fold_4_a/Fold_4_a_0002.jpg").unlink()
    shutil.rmtree(lfw / "lfw-deepfunneled/Fold_3_b")
    (lfw / "lfw-deepfunneled/Fold_3_a/Thumbs.db").write_bytes(b"")
    listing = list_split("lfw", lfw, "test")
    missing = [f"Fold_3_b/Fold_3_b_000{n}.jpg" for n in (1, 2, 3)]
    assert listing.missing == (*missing, "Fold_4_a/Fold_4_a_0002.jpg")
    assert listing.ignored == ("Fold_3_a/Thumbs.db",)
    assert len(listing.labels) == 24 - 5
    assert list_split("lfw", lfw, "train").missing == ()
