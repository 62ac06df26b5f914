"""Every image dataset of the papers in small copies of its official layout, with its oddities."""

import zipfile

import numpy as np
import pytest
import scipy.io

from uncollapse.data import DataError, describe, load


@pytest.fixture
def market(tmp_path, paint):
    base = tmp_path / "Market-1501-v15.09.15"
    names = {
        "bounding_box_train": ["0002_c1s1_000451_03", "0002_c3s1_000551_00", "0007_c6s3_077_01"],
        "query": ["0003_c1s6_015971_00"],
        "bounding_box_test": ["0003_c2s3_1_00", "0000_c1s1_000151_01", "-1_c5s2_000401_04"],
    }
    for folder, stems in names.items():
        for seed, stem in enumerate(stems):
            paint(base / folder / f"{stem}.jpg", size=(64, 128), seed=seed)
    (base / "bounding_box_test" / "Thumbs.db").write_bytes(b"windows")
    (base / "readme.txt").write_text("")
    return tmp_path


def test_market_reads_person_and_camera_from_the_file_name(market):
    train = load("market1501", market)
    assert train.shape == (3, 256, 128)
    assert train.labels.tolist() == [2, 2, 7]
    assert train.cameras.tolist() == [1, 3, 6]
    assert train.report.clean
    query = load("market1501", market / "Market-1501-v15.09.15", split="query")
    assert (query.labels.tolist(), query.cameras.tolist()) == ([3], [1])


def test_market_keeps_junk_and_distractors_in_the_gallery_under_their_own_numbers(market):
    gallery = load("market1501", market, split="gallery")
    assert sorted(gallery.labels.tolist()) == [-1, 0, 3]
    assert gallery.class_names == {-1: "junk", 0: "distractor", 3: "person 3"}
    assert gallery.report.ignored == ("Thumbs.db",)
    assert load("market1501", market, split="bounding_box_test").split == "gallery"
    with pytest.raises(DataError, match=r"strict: 1 ignored \(Thumbs\.db\)"):
        load("market1501", market, split="gallery", strict=True)


@pytest.fixture
def birds(tmp_path, paint):
    base = tmp_path / "CUB_200_2011"
    images, labels = [], []
    for place, number in enumerate((1, 1, 100, 101, 200), start=1):
        name = f"{number:03d}.Bird/Bird_{place:04d}.jpg"
        paint(base / "images" / name, "L" if place == 2 else "RGB", size=(40, 30), seed=place)
        images.append(f"{place} {name}")
        labels.append(f"{place} {number}")
    classes = [f"{number} {number:03d}.Bird" for number in range(1, 201)]
    for file, lines in (("images", images), ("image_class_labels", labels), ("classes", classes)):
        (base / f"{file}.txt").write_text("\n".join(lines) + "\n")
    return base


def test_cub_splits_classes_1_to_100_from_101_to_200(birds):
    train = load("cub200", birds)
    assert train.labels.tolist() == [1, 1, 100]
    assert train.shape == (3, 256, 256)
    assert train.class_names[1] == "001.Bird"
    assert set(train.class_names) == set(range(1, 101))
    assert load("cub200", birds.parent, split="test").labels.tolist() == [101, 200]
    assert len(load("cub200", birds, split="all")) == 5


def test_cub_converts_grey_birds_and_says_which(birds):
    train = load("cub200", birds)
    assert train.report.converted == {"grey": ("001.Bird/Bird_0002.jpg",)}
    for cache in (True, False):
        with pytest.raises(DataError, match=r"strict: 1 converted from grey"):
            load("cub200", birds, strict=True, cache=cache)
    assert load("cub200", birds, split="test", strict=True, cache=False).report.clean


def test_missing_and_truncated_images_are_left_out_with_their_labels(birds, truncate):
    (birds / "images/001.Bird/Bird_0001.jpg").unlink()
    truncate(birds / "images/100.Bird/Bird_0003.jpg")
    train = load("cub200", birds)
    assert train.labels.tolist() == [1]
    assert train.report.missing == ("001.Bird/Bird_0001.jpg",)
    assert [name.split(" (")[0] for name in train.report.unreadable] == ["100.Bird/Bird_0003.jpg"]
    again = load("cub200", birds)  # from the cache
    assert again.report == train.report
    with pytest.raises(DataError, match="strict: 1 missing"):
        load("cub200", birds, strict=True)


def test_without_a_cache_an_unreadable_image_is_an_error_when_it_is_read(birds, truncate):
    truncate(birds / "images/100.Bird/Bird_0003.jpg")
    train = load("cub200", birds, cache=False)
    assert len(train) == 3
    assert tuple(train[[0, 1]][0].shape) == (2, 3, 256, 256)
    with pytest.raises(DataError, match=r"100\.Bird/Bird_0003\.jpg"):
        train[2]


def test_the_cache_gives_what_decoding_gives(birds):
    kept, decoded = load("cub200", birds, size=20), load("cub200", birds, size=20, cache=False)
    assert kept.pixels().equal(decoded.pixels())


def test_a_dataset_with_no_usable_image_is_an_error(birds):
    for path in (birds / "images").rglob("*.jpg"):
        path.write_bytes(b"")
    with pytest.raises(DataError, match="no usable images"):
        load("cub200", birds)


def test_cub_without_a_list_or_with_a_bad_label_is_refused(birds):
    (birds / "image_class_labels.txt").write_text("1 1\n2 1\n")
    with pytest.raises(DataError, match="no label for image id 3"):
        load("cub200", birds)
    (birds / "image_class_labels.txt").write_text("1 one\n")
    with pytest.raises(DataError, match="class of image id 1 is 'one'"):
        load("cub200", birds)
    (birds / "classes.txt").unlink()
    (birds / "image_class_labels.txt").unlink()
    with pytest.raises(DataError, match="no file"):
        load("cub200", birds)


def annotations(**columns):
    """A MATLAB struct array as the devkit stores it."""
    table = np.zeros((1, len(next(iter(columns.values())))), [(name, object) for name in columns])
    for name, values in columns.items():
        table[name][0] = values
    return table


def class_names():
    names = np.empty(196, object)
    names[:] = [f"Car {number}" for number in range(1, 197)]
    return names


@pytest.fixture
def cars_single(tmp_path, paint):
    base = tmp_path / "one"
    names = [f"car_ims/{number:06d}.jpg" for number in (1, 2, 3, 4)]
    for seed, name in enumerate(names):
        paint(base / name, seed=seed)
    table = annotations(
        relative_im_path=names, bbox_x1=[1] * 4, **{"class": [1, 98, 99, 196]}, test=[0, 1, 0, 1]
    )
    mat = {"annotations": table, "class_names": class_names()}
    scipy.io.savemat(base / "cars_annos.mat", mat)
    return base


@pytest.fixture
def cars_devkit(tmp_path, paint):
    base = tmp_path / "two"
    (base / "devkit").mkdir(parents=True)
    files = {"cars_train": "cars_train_annos", "cars_test": "cars_test_annos_withlabels"}
    for folder, file in files.items():
        names = ["00001.jpg", "00002.jpg"]
        for seed, name in enumerate(names):
            paint(base / folder / name, seed=seed)
        labels = [1, 99] if folder == "cars_train" else [98, 196]
        table = annotations(bbox_x1=[1, 1], **{"class": labels}, fname=names)
        scipy.io.savemat(base / "devkit" / f"{file}.mat", {"annotations": table})
    scipy.io.savemat(base / "devkit" / "cars_meta.mat", {"class_names": class_names()})
    return base


@pytest.mark.parametrize("layout", ["cars_single", "cars_devkit"])
def test_cars_splits_classes_1_to_98_from_99_to_196_in_both_layouts(layout, request):
    base = request.getfixturevalue(layout)
    train, test = load("cars196", base), load("cars196", base, split="test")
    assert sorted(train.labels.tolist()) == [1, 98]
    assert sorted(test.labels.tolist()) == [99, 196]
    assert train.class_names[98] == "Car 98"
    assert test.class_names[196] == "Car 196"
    assert len(load("cars196", base, split="all")) == 4


def test_cars_finds_labels_beside_the_devkit_and_folders_packed_twice(cars_devkit):
    labelled = "cars_test_annos_withlabels.mat"
    (cars_devkit / "devkit" / labelled).rename(cars_devkit / labelled)
    (cars_devkit / "cars_train").rename(cars_devkit / "inner")
    (cars_devkit / "cars_train").mkdir()
    (cars_devkit / "inner").rename(cars_devkit / "cars_train" / "cars_train")
    assert len(load("cars196", cars_devkit, split="all")) == 4


def test_cars_without_the_test_labels_says_which_file_is_needed(cars_devkit):
    (cars_devkit / "devkit" / "cars_test_annos_withlabels.mat").unlink()
    with pytest.raises(DataError, match=r"no cars_test_annos_withlabels\.mat"):
        load("cars196", cars_devkit)


def test_damaged_matlab_files_are_refused_by_name(cars_single, truncate):
    truncate(cars_single / "cars_annos.mat")
    with pytest.raises(DataError, match=r"cars_annos\.mat: (not a MATLAB file|no annotations)"):
        load("cars196", cars_single)
    scipy.io.savemat(cars_single / "cars_annos.mat", {"annotations": np.zeros(3)})
    with pytest.raises(DataError, match=r"no annotations with a field 'relative_im_path'"):
        load("cars196", cars_single)


@pytest.fixture
def products(tmp_path, paint):
    base = tmp_path / "Stanford_Online_Products"
    heading = "image_id class_id super_class_id path"
    lists = {
        "train": ["1 1 1 bicycle_final/111_0.JPG", "2 1 1 bicycle_final/111_1.JPG"],
        "test": ["3 11319 2 cabinet_final/222_0.JPG", "4 11320 2 cabinet_final/gone.JPG"],
    }
    for split, lines in lists.items():
        base.mkdir(exist_ok=True)
        (base / f"Ebay_{split}.txt").write_text("\n".join([heading, *lines]) + "\n")
    for place, name in enumerate(
        ("bicycle_final/111_0", "bicycle_final/111_1", "cabinet_final/222_0")
    ):
        paint(base / f"{name}.jpg", seed=place).rename(base / f"{name}.JPG")
    return tmp_path


def test_sop_follows_its_two_lists(products):
    train, test = load("sop", products), load("sop", products, split="test")
    assert train.labels.tolist() == [1, 1]
    assert test.labels.tolist() == [11319]
    assert test.class_names[11319] == "cabinet 11319"
    assert test.report.missing == ("cabinet_final/gone.JPG",)
    assert len(load("sop", products, split="all")) == 3


def test_sop_refuses_lines_it_does_not_understand(products):
    path = products / "Stanford_Online_Products" / "Ebay_train.txt"
    path.write_text("image_id class_id super_class_id path\n1 x\n")
    with pytest.raises(DataError, match=r"Ebay_train\.txt, line 2: expected 4 fields, got '1 x'"):
        load("sop", products)
    path.unlink()
    with pytest.raises(DataError, match="no file"):
        load("sop", products)


@pytest.fixture
def letters(tmp_path, paint):
    base = tmp_path / "omniglot"
    for folder, alphabets in (
        ("images_background", {"Greek": 2, "Latin": 1}),
        ("images_evaluation", {"Tengwar": 2}),
    ):
        for alphabet, count in alphabets.items():
            for letter in range(1, count + 1):
                for drawing in (1, 2):
                    name = f"{alphabet}/character{letter:02d}/0{letter}_{drawing:02d}.png"
                    paint(base / folder / name, "1", size=(105, 105), seed=letter * 7 + drawing)
        (base / folder / alphabet / ".DS_Store").write_bytes(b"")
    return base


def zip_folder(folder):
    with zipfile.ZipFile(folder.with_suffix(".zip"), "w") as archive:
        archive.mkdir(folder.name)
        archive.writestr(f"__MACOSX/{folder.name}/._x.png", b"")
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder.parent))
            if path.is_file():
                path.unlink()
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir()
    folder.rmdir()


@pytest.mark.parametrize("zipped", [False, True])
def test_omniglot_labels_alphabets_and_keeps_letters_as_fine_labels(letters, zipped):
    if zipped:
        zip_folder(letters / "images_background")
        zip_folder(letters / "images_evaluation")
    train = load("omniglot", letters)
    assert train.shape == (1, 80, 80)
    assert train.labels.tolist() == [0, 0, 0, 0, 1, 1]
    assert train.fine_labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert train.class_names == {0: "Greek", 1: "Latin"}
    assert train.fine_names[1] == "Greek/character02"
    assert any(name.endswith(".DS_Store") for name in train.report.ignored)
    test = load("omniglot", letters.parent, split="evaluation")
    assert (test.split, test.labels.tolist()) == ("test", [30] * 4)
    assert test.fine_labels.tolist() == [964, 964, 965, 965]
    both = load("omniglot", letters, split="all")
    assert both.by_fine_labels().labels.tolist() == [0, 0, 1, 1, 2, 2, 964, 964, 965, 965]


def test_omniglot_ink_is_bright(letters):
    files = load("omniglot", letters, size=105, cache=False)
    from PIL import Image

    path = letters / "images_background/Greek/character01/01_01.png"
    ink = 255 - np.asarray(Image.open(path).convert("L"))
    assert np.array_equal(files.pixels([0])[0, 0].numpy(), ink)


def test_omniglot_with_one_part_missing_or_damaged_says_which(letters, truncate):
    zip_folder(letters / "images_evaluation")
    truncate(letters / "images_evaluation.zip")
    assert len(load("omniglot", letters)) == 6
    with pytest.raises(DataError, match=r"images_evaluation\.zip: damaged zip"):
        load("omniglot", letters, split="test")
    (letters / "images_evaluation.zip").unlink()
    with pytest.raises(DataError, match=r"neither images_evaluation nor images_evaluation\.zip"):
        load("omniglot", letters, split="test")


@pytest.mark.parametrize("name", ["omniglot", "market1501", "cub200", "cars196", "sop", "lfw"])
def test_an_empty_folder_is_an_error_that_shows_the_layout(tmp_path, name):
    with pytest.raises(DataError, match=r"(?s)none of .* in .*expected layout"):
        load(name, tmp_path)
    with pytest.raises(DataError, match=rf"{name}: no folder given; pass root= or set UNCOLLAPSE"):
        load(name)


def test_unknown_names_and_splits_say_what_there_is():
    with pytest.raises(ValueError, match=r"name: expected one of 'digits', 'letters', .*'cub'"):
        load("cub")
    with pytest.raises(
        ValueError, match=r"split: expected one of 'train', 'test', 'all', got 'dev'"
    ):
        load("digits", split="dev")


@pytest.mark.parametrize(
    ("name", "split", "images", "classes", "fine"),
    [
        ("mnist", "train", 60_000, 10, None),
        ("mnist", "test", 10_000, 10, None),
        ("omniglot", "train", 19_280, 30, 964),
        ("omniglot", "test", 13_180, 20, 659),
        ("market1501", "train", 12_936, 751, None),
        ("market1501", "query", 3_368, 750, None),
        ("market1501", "gallery", 19_732, 752, None),
        ("cub200", "train", 5_864, 100, None),
        ("cub200", "test", 5_924, 100, None),
        ("cars196", "train", 8_054, 98, None),
        ("cars196", "test", 8_131, 98, None),
        ("sop", "train", 59_551, 11_318, None),
        ("sop", "test", 60_502, 11_316, None),
        ("lfw", "all", 13_233, 5_749, None),
    ],
)
def test_official_counts_are_the_published_ones(name, split, images, classes, fine):
    counts = describe(name).official[split]
    assert (counts.images, counts.classes, counts.fine_classes) == (images, classes, fine)
