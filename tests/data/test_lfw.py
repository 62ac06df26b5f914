"""Labelled Faces in the Wild: its layouts, and a split that nobody is on both sides of."""

import shutil

import numpy as np
import pytest
from PIL import Image

from small_lfw import LONERS, paint_lfw, paired_people
from uncollapse.data import Counts, DataError, check, describe, load
from uncollapse.data.pair_lists import read_pairs
from uncollapse.data.registry import find_pairs, list_split


@pytest.fixture
def lfw(tmp_path):
    return paint_lfw(tmp_path / "lfw")


def people(data):
    return {data.class_names[int(label)] for label in data.labels}


def test_the_second_half_of_the_folds_is_for_testing_and_everyone_else_for_training(lfw):
    train, test = load("lfw", lfw), load("lfw", lfw, "test")
    assert people(test) == paired_people((3, 4))
    assert people(train) == paired_people((1, 2)) | set(LONERS)
    assert (len(train), len(test), len(load("lfw", lfw, "all"))) == (26, 24, 50)


def test_a_person_has_the_same_number_in_every_split(lfw):
    names = dict(load("lfw", lfw, "all").class_names)
    for split in ("train", "test"):
        data = load("lfw", lfw, split)
        assert set(data.class_names) == set(data.labels.tolist())
        assert data.class_names.items() <= names.items()


def test_someone_of_both_halves_is_only_tested(lfw):
    pairs = lfw / "pairs.txt"
    pairs.write_text(pairs.read_text().replace("Fold_4_a", "Fold_1_a"))
    train, test = load("lfw", lfw), load("lfw", lfw, "test")
    assert "Fold_1_a" in people(test)
    assert not people(train) & people(test)


def test_the_face_is_the_middle_of_the_picture(lfw):
    file = lfw / "lfw-deepfunneled" / "Fold_1_a" / "Fold_1_a_0001.jpg"
    with Image.open(file) as image:
        face = np.moveaxis(np.asarray(image.crop((4, 4, 16, 16))), 2, 0)  # 0.6 of 20 x 20
        whole = np.moveaxis(np.asarray(image), 2, 0)
    assert np.array_equal(load("lfw", lfw, "all", size=12).pixels([0])[0], face)
    assert np.array_equal(load("lfw", lfw, "all", size=20, middle=1.0).pixels([0])[0], whole)
    assert load("lfw", lfw, "all").shape == (3, 112, 112)


@pytest.mark.parametrize(
    ("images", "pairs", "given"),
    [
        ("lfw/images_deepfunneled", "lfw", "lfw"),
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
def test_every_usual_layout_is_found(tmp_path, images, pairs, given):
    made = paint_lfw(tmp_path / "made")
    (tmp_path / "data" / images).parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(made / "lfw-deepfunneled", tmp_path / "data" / images, dirs_exist_ok=True)
    shutil.copy(made / "pairs.txt", tmp_path / "data" / pairs)
    root = tmp_path / "data" / given
    assert len(list_split("lfw", root, "test").labels) == 24
    assert find_pairs("lfw", root) == (tmp_path / "data" / pairs / "pairs.txt").resolve()


def test_without_pairs_there_is_only_all(lfw):
    (lfw / "pairs.txt").unlink()
    assert len(load("lfw", lfw, "all")) == 50
    assert find_pairs("lfw", lfw) is None
    with pytest.raises(DataError, match=r"lfw: no pairs\.txt in .*split 'all' needs none"):
        load("lfw", lfw)


def test_pairs_of_one_fold_split_nobody(lfw):
    (lfw / "pairs.txt").write_text("1\nFold_1_a\t1\t2\nFold_1_a\t1\tFold_1_b\t1\n")
    with pytest.raises(DataError, match=r"one fold of pairs; .* two at least"):
        load("lfw", lfw)


def test_pictures_that_a_pair_names_and_that_are_not_there_are_missing(lfw):
    (lfw / "lfw-deepfunneled/Fold_4_a/Fold_4_a_0002.jpg").unlink()
    shutil.rmtree(lfw / "lfw-deepfunneled/Fold_3_b")
    (lfw / "lfw-deepfunneled/Fold_3_a/Thumbs.db").write_bytes(b"")
    found = list_split("lfw", lfw, "test")
    assert found.missing == (
        "Fold_3_b/Fold_3_b_0001.jpg",
        "Fold_3_b/Fold_3_b_0002.jpg",
        "Fold_3_b/Fold_3_b_0003.jpg",
        "Fold_4_a/Fold_4_a_0002.jpg",
    )
    assert found.ignored == ("Fold_3_a/Thumbs.db",)
    assert len(found.labels) == 24 - 5
    assert list_split("lfw", lfw, "train").missing == ()


def test_a_copy_in_part_is_not_complete(lfw):
    result = check("lfw", lfw)
    assert not result.complete
    assert result.found == {"train": Counts(26, 8), "test": Counts(24, 6)}


def test_the_halves_add_up_to_the_official_whole():
    official = describe("lfw").official
    assert official["all"] == Counts(13_233, 5_749)
    for kind in ("images", "classes"):
        halves = [getattr(official[split], kind) for split in ("train", "test")]
        assert sum(halves) == getattr(official["all"], kind)


def test_the_real_copy_is_complete_and_has_every_picture_of_its_pairs(real_data):
    if not (real_data / "lfw").is_dir():
        pytest.skip("UNCOLLAPSE_DATA has no folder lfw")
    result = check("lfw", decode=False)
    assert result.ok
    whole = list_split("lfw", None, "all")
    assert Counts.of(whole) == Counts(13_233, 5_749)
    assert int((np.bincount(whole.labels) > 1).sum()) == 1_680
    assert len(read_pairs(find_pairs("lfw"))) == 6_000
    assert whole.missing == ()
