"""Every image dataset of the papers in small copies of its official layout, with its oddities."""

import shutil

import numpy as np
import pytest
import scipy.io
from PIL import Image

from support import small_copies
from support.errors import refused, unusable
from uncollapse.data import Counts, DataError, describe, load


@pytest.fixture
def market(tmp_path):
    base = tmp_path / "Market-1501-v15.09.15"
    small_copies.write_market(base, [(2, 1), (2, 3), (7, 6)], [(3, 1)], [(3, 2), (0, 1), (-1, 5)])
    (base / "bounding_box_test" / "Thumbs.db").write_bytes(b"windows")
    (base / "readme.txt").write_text("")
    return tmp_path


def test_market_reads_person_and_camera_from_the_file_name(market):
    train = load("market1501", market)
    assert (train.shape, train.report.clean) == ((3, 256, 128), True)
    assert (train.labels.tolist(), train.cameras.tolist()) == ([2, 2, 7], [1, 3, 6])
    query = load("market1501", market / "Market-1501-v15.09.15", split="query")
    assert (query.labels.tolist(), query.cameras.tolist()) == ([3], [1])
    gallery = load("market1501", market, split="gallery")
    assert sorted(gallery.labels.tolist()) == [-1, 0, 3]
    assert gallery.class_names == {-1: "junk", 0: "distractor", 3: "person 3"}
    assert gallery.report.ignored == ("Thumbs.db",)
    assert load("market1501", market, split="bounding_box_test").split == "gallery"
    unusable(r"1 ignored \(Thumbs\.db\)", load, "market1501", market, split="gallery", strict=True)


@pytest.fixture
def birds(tmp_path):
    return small_copies.write_birds(tmp_path / "CUB_200_2011", (1, 1, 100, 101, 200))


def test_cub_splits_classes_1_to_100_from_101_to_200_and_says_which_birds_are_grey(birds):
    train = load("cub200", birds)
    assert (train.labels.tolist(), train.shape) == ([1, 1, 100], (3, 256, 256))
    assert train.class_names == {n: f"{n:03d}.Bird" for n in range(1, 101)}
    assert load("cub200", birds.parent, split="test").labels.tolist() == [101, 200]
    assert len(load("cub200", birds, split="all")) == 5
    assert train.report.converted == {"grey": ("001.Bird/Bird_0002.jpg",)}
    for cache in (True, False):
        unusable("1 converted from grey", load, "cub200", birds, strict=True, cache=cache)
    assert load("cub200", birds, split="test", strict=True, cache=False).report.clean


def test_missing_and_truncated_images_are_left_out_with_their_labels(birds, truncate):
    truncate(birds / "images/100.Bird/Bird_0003.jpg")
    whole = load("cub200", birds, cache=False, size=20)  # nothing is read yet
    assert load("cub200", birds, size=20).pixels().equal(whole.pixels([0, 1]))
    with pytest.raises(DataError, match=r"100\.Bird/Bird_0003\.jpg"):
        whole[2]
    (birds / "images/001.Bird/Bird_0001.jpg").unlink()
    for train in (load("cub200", birds), load("cub200", birds)):  # the second from the cache
        assert train.labels.tolist() == [1]
        assert train.report.missing == ("001.Bird/Bird_0001.jpg",)
        assert [name.split(" (")[0] for name in train.report.unreadable] == [
            "100.Bird/Bird_0003.jpg"
        ]
    unusable("1 missing", load, "cub200", birds, strict=True)
    for path in (birds / "images").rglob("*.jpg"):
        path.write_bytes(b"")
    unusable("no usable images", load, "cub200", birds)


@pytest.mark.parametrize(
    ("labels", "message"),
    [("1 1\n2 1\n", "no label for image id 3"), ("1 one\n", "image id 1"), (None, "no file")],
)
def test_cub_without_a_list_or_with_a_bad_label_is_refused(birds, labels, message):
    (birds / "image_class_labels.txt").unlink()
    if labels is not None:
        (birds / "image_class_labels.txt").write_text(labels)
    unusable(message, load, "cub200", birds)


def cars_single(base):
    return small_copies.write_cars(base, [1, 98, 99, 196])


def cars_devkit(base):
    (base / "devkit").mkdir(parents=True)
    for folder, file, labels in (
        ("cars_train", "cars_train_annos", [1, 99]),
        ("cars_test", "cars_test_annos_withlabels", [98, 196]),
    ):
        names = ["00001.jpg", "00002.jpg"]
        for seed, name in enumerate(names):
            small_copies.paint(base / folder / name, seed=seed)
        table = small_copies.annotations(bbox_x1=[1, 1], **{"class": labels}, fname=names)
        scipy.io.savemat(base / "devkit" / f"{file}.mat", {"annotations": table})
    scipy.io.savemat(base / "devkit" / "cars_meta.mat", {"class_names": small_copies.car_names()})
    return base


@pytest.mark.parametrize("write", [cars_single, cars_devkit])
def test_cars_splits_classes_1_to_98_from_99_to_196_in_both_layouts(write, tmp_path):
    base = write(tmp_path)
    for split, classes in (("train", [1, 98]), ("test", [99, 196])):
        data = load("cars196", base, split=split)
        assert sorted(data.labels.tolist()) == classes
        assert data.class_names[classes[1]] == f"Car {classes[1]}"
    assert len(load("cars196", base, split="all")) == 4


def test_cars_finds_labels_beside_the_devkit_and_folders_packed_twice(tmp_path, truncate):
    base, labelled = cars_devkit(tmp_path), "cars_test_annos_withlabels.mat"
    (base / "devkit" / labelled).rename(base / labelled)
    (base / "cars_train").rename(base / "inner")
    (base / "cars_train").mkdir()
    (base / "inner").rename(base / "cars_train" / "cars_train")
    assert len(load("cars196", base, split="all")) == 4
    truncate(base / labelled)
    unusable(rf"{labelled}", load, "cars196", base)
    scipy.io.savemat(base / labelled, {"annotations": np.zeros(3)})
    unusable("'fname'", load, "cars196", base)
    (base / labelled).unlink()
    unusable(rf"no {labelled}", load, "cars196", base)


def test_sop_follows_its_two_lists_and_refuses_lines_it_does_not_understand(tmp_path):
    folder = tmp_path / "Stanford_Online_Products"
    base = small_copies.write_products(folder, [1, 1], [11319, 11320])
    (base / "chair_final/test_1.JPG").unlink()
    train, test = load("sop", tmp_path), load("sop", tmp_path, split="test")
    assert (train.labels.tolist(), test.labels.tolist()) == ([1, 1], [11319])
    assert test.class_names[11319] == "chair 11319"
    assert test.report.missing == ("chair_final/test_1.JPG",)
    assert len(load("sop", tmp_path, split="all")) == 3
    (base / "Ebay_train.txt").write_text("image_id class_id super_class_id path\n1 x\n")
    unusable(r"Ebay_train\.txt, line 2: .*'1 x'", load, "sop", tmp_path)
    (base / "Ebay_train.txt").unlink()
    unusable("no file", load, "sop", tmp_path)


@pytest.fixture
def letters(tmp_path):
    alphabets = {"Greek": 2, "Latin": 1}, {"Tengwar": 2}
    base = small_copies.write_letters(tmp_path / "omniglot", *alphabets)
    (base / "images_background" / "__MACOSX").mkdir()
    for name in ("Latin/.DS_Store", "__MACOSX/._x.png"):
        (base / "images_background" / name).write_bytes(b"")
    return base


def zip_folder(folder):
    shutil.make_archive(str(folder), "zip", folder.parent, folder.name)
    shutil.rmtree(folder)


@pytest.mark.parametrize("zipped", [False, True])
def test_omniglot_labels_alphabets_and_keeps_letters_as_fine_labels(letters, zipped):
    path = letters / "images_background/Greek/character01/01.png"
    ink = 255 - np.asarray(Image.open(path).convert("L"))  # bright
    if zipped:
        zip_folder(letters / "images_background")
        zip_folder(letters / "images_evaluation")
    small = load("omniglot", letters, size=20, cache=False)
    assert np.array_equal(small.pixels([0])[0, 0].numpy(), ink)
    train = load("omniglot", letters)
    assert train.shape == (1, 80, 80)
    assert train.labels.tolist() == [0, 0, 0, 0, 1, 1]
    assert train.fine_labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert train.class_names == {0: "Greek", 1: "Latin"}
    assert train.fine_names[1] == "Greek/character02"
    assert any(name.endswith(".DS_Store") for name in train.report.ignored)
    test = load("omniglot", letters.parent, split="evaluation")
    assert (test.split, test.labels.tolist()) == ("test", [30] * 4)
    both = load("omniglot", letters, split="all")
    assert both.by_fine_labels().labels.tolist() == [0, 0, 1, 1, 2, 2, 964, 964, 965, 965]


def test_omniglot_with_one_part_missing_or_damaged_says_which(letters, truncate):
    zip_folder(letters / "images_evaluation")
    truncate(letters / "images_evaluation.zip")
    assert len(load("omniglot", letters)) == 6
    unusable(r"images_evaluation\.zip: damaged", load, "omniglot", letters, split="test")
    (letters / "images_evaluation.zip").unlink()
    with pytest.raises(DataError, match=r"neither images_evaluation nor images_evaluation\.zip"):
        load("omniglot", letters, split="test")


@pytest.mark.parametrize("name", ["omniglot", "market1501", "cub200", "cars196", "sop", "lfw"])
def test_an_empty_folder_is_an_error_that_shows_the_layout(tmp_path, name):
    unusable(r"(?s)none of .* in .*expected layout", load, name, tmp_path)
    unusable(rf"{name}: no folder given; .*UNCOLLAPSE_DATA", load, name)
    for field, wrong in (("name", "no-such-set"), ("split", name)):
        with refused(field):
            load(wrong, split="dev")


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("mnist", {"train": (60_000, 10), "test": (10_000, 10)}),
        ("omniglot", {"train": (19_280, 30, 964), "test": (13_180, 20, 659)}),
        ("market1501", {"train": (12_936, 751), "query": (3_368, 750), "gallery": (19_732, 752)}),
        ("cub200", {"train": (5_864, 100), "test": (5_924, 100)}),
        ("cars196", {"train": (8_054, 98), "test": (8_131, 98)}),
        ("sop", {"train": (59_551, 11_318), "test": (60_502, 11_316)}),
        ("lfw", {"all": (13_233, 5_749)}),
    ],
)
def test_official_counts_are_the_published_ones(name, published):
    official = describe(name).official
    assert {split: official[split] for split in published} == {
        split: Counts(*counts) for split, counts in published.items()
    }
    if name == "lfw":  # the halves add up to the whole
        halves = official["train"], official["test"]
        assert sum(half.images for half in halves) == official["all"].images
        assert sum(half.classes for half in halves) == official["all"].classes


@pytest.fixture
def photographs(tmp_path):
    for split, pictures in (("train", 2), ("test", 1)):
        for number in range(100):
            for picture in range(pictures):
                path = tmp_path / f"CIFAR-100-dataset/{split}/class_{number:02d}/{picture}.png"
                small_copies.paint(path, size=(32, 32))
    return tmp_path


def test_cifar100_labels_superclasses_and_keeps_classes_as_fine_labels(photographs):
    train = load("cifar100", photographs, cache=False)
    assert (len(train), train.shape, train.report.clean) == (200, (3, 32, 32), True)
    assert train.classes.tolist() == list(range(20))
    assert train.fine_labels.tolist() == np.repeat(np.arange(100), 2).tolist()
    by_class = {}
    for fine, label in zip(train.fine_labels.tolist(), train.labels.tolist(), strict=True):
        by_class.setdefault(label, set()).add(fine)
    assert {len(classes) for classes in by_class.values()} == {5}
    # Of the classes in alphabetical order: apple, ..., orchid, ..., worm.
    words = [train.class_names[train.labels[2 * number].item()] for number in (0, 54, 99)]
    assert words == ["fruit and vegetables", "flowers", "non-insect invertebrates"]
    assert (
        len(load("cifar100", photographs / "CIFAR-100-dataset", split="test", cache=False)) == 100
    )
    shutil.rmtree(photographs / "CIFAR-100-dataset/train/class_07")
    unusable("99 folders of 100 classes", load, "cifar100", photographs)
