"""The user's own images and arrays: folders, manifests, files of features."""

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from support.errors import unusable
from support.small_copies import paint
from uncollapse.data import DataError, load


@pytest.fixture
def pets(tmp_path):
    base = tmp_path / "pets"
    for seed, name in enumerate(("cat/1.jpg", "cat/2.PNG", "dog/1.webp", "ant/1.jpg")):
        paint(base / name, seed=seed)
    (base / "cat" / "Thumbs.db").write_bytes(b"")
    (base / "notes.txt").write_text("")
    return base


def names_of(data):
    return [data.class_names[int(label)] for label in data.labels]


def test_a_folder_is_a_class(pets):
    data = load("folder", pets, size=16)
    assert (data.shape, data.split, data.fine_labels) == ((3, 16, 16), "all", None)
    assert names_of(data) == ["ant", "cat", "cat", "dog"]
    assert [file[-9:] for file in data.subset([3, 0]).files] == ["og/1.webp", "ant/1.jpg"]
    assert sorted(data.report.ignored) == ["cat/Thumbs.db", "pets/notes.txt"]


def test_folders_inside_a_class_are_fine_classes_and_none_at_all_says_what_is_expected(tmp_path):
    unusable(r"(?s)no images in class folders.*<class>/<image>", load, "folder", tmp_path)
    unusable("root must be a folder", load, "folder")
    for name in ("cat/black/1.jpg", "cat/white/1.jpg", "dog/black/1.jpg"):
        paint(tmp_path / "own" / name)
    data = load("folder", tmp_path / "own", size=8)
    assert (data.labels.tolist(), data.fine_labels.tolist()) == ([0, 0, 1], [0, 1, 2])
    assert data.fine_names == {0: "cat/black", 1: "cat/white", 2: "dog/black"}


def test_split_folders_are_splits_and_classes_keep_their_numbers(tmp_path):
    for name in ("train/bee/1.jpg", "train/cat/1.jpg", "test/ant/1.jpg", "test/cat/2.jpg"):
        paint(tmp_path / name)
    train, test = (load("folder", tmp_path, split, size=8) for split in (None, "test"))
    assert (train.split, train.labels.tolist(), test.labels.tolist()) == ("train", [1, 2], [0, 2])
    assert len(load("folder", tmp_path, "all", size=8)) == 4
    unusable(r"no split .val. in .*; there is: train, test, all", load, "folder", tmp_path, "val")


CSV = """path,label,fine_label,camera,split
cat/1.jpg,cat,black,1,train
cat/2.PNG,cat,white,2,train
dog/1.webp,dog,black,1,test
gone.jpg,dog,black,3,test
"""


def test_a_csv_manifest_gives_every_column(pets):
    path = pets / "list.csv"
    path.write_text("\ufeff" + CSV)
    train, test = load("manifest", path, size=8), load("manifest", path, "test", size=8)
    assert (train.split, train.labels.tolist()) == ("train", [0, 0])
    assert (train.fine_labels.tolist(), train.cameras.tolist()) == ([0, 1], [1, 2])
    assert names_of(test) == ["dog"]
    assert test.report.missing == ("pets/gone.jpg",)
    assert len(load("manifest", path, "all", size=8)) == 3
    unusable("no rows of split 'val'; there is: test, train, all", load, "manifest", path, "val")


def test_whole_numbers_stay_as_they_are_and_beyond_64_bits_they_are_names(pets, tmp_path):
    path = pets / "list.csv"
    path.write_text("path,label\ncat/1.jpg,-1\ndog/1.webp,1000000007\n")
    data = load("manifest", path, size=8)
    assert (data.split, data.labels.tolist()) == ("all", [-1, 1000000007])
    assert data.fine_labels is data.cameras is None
    path.write_text(f"path,label\ncat/1.jpg,{10**30}\ndog/1.webp,7\n")
    assert names_of(load("manifest", path, size=8)) == [str(10**30), "7"]
    labels = np.array([2**63 + 5, 7, 7, 2**63 + 5], np.uint64)
    np.savez(tmp_path / "f.npz", x=FEATURES, labels=labels)
    assert names_of(load("arrays", tmp_path / "f.npz")) == [str(v) for v in labels]


def test_a_parquet_manifest_gives_the_same(pets):
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"path": ["cat/1.jpg", "dog/1.webp"], "label": [4, 9], "camera": [1, 2]})
    pytest.importorskip("pyarrow.parquet").write_table(table, pets / "list.parquet")
    data = load("manifest", pets / "list.parquet", size=8)
    assert (data.labels.tolist(), data.cameras.tolist()) == ([4, 9], [1, 2])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"file,label\na,1\n", "no column 'path'; its columns are file, label"),
        ("a.csv", b"", "it is empty"),
        ("a.csv", b"path,label\ncat/1.jpg,\n", "'label' is empty in row 1"),
        ("a.csv", b"path,label\ncat/1.jpg\n", "'label' is empty in row 1"),
        ("a.csv", b"path,label,camera\ncat/1.jpg,1,left\n", "'camera' holds 'left'"),
        ("a.csv", b"path,label,camera\ncat/1.jpg,1,%d\n" % 10**30, "18 digits"),
        ("a.csv", "path,label\nä,1\n".encode("latin-1"), "'utf-8' codec"),
        ("a.parquet", b"PAR1", r"a\.parquet: cannot be read"),
        ("a.txt", b"", r"expected a \.csv or \.parquet file"),
        ("a.csv", None, r"root must be a \.csv or \.parquet file"),
    ],
)
def test_manifests_that_cannot_be_understood_are_refused(pets, name, content, message):
    if content is not None:
        (pets / name).write_bytes(content)
    unusable(message, load, "manifest", pets / name)


FEATURES = np.arange(12, dtype=np.float64).reshape(4, 3)


def test_features_from_npz_with_splits_and_words_as_labels(tmp_path):
    np.savez(
        tmp_path / "f.npz",
        features=FEATURES,
        labels=np.array(["b", "a", "b", "a"]),
        fine_labels=np.array([5, 6, 7, 8]),
        cameras=np.array([1, 2, 1, 2]),
        split=np.array(["train", "test", "train", "train"]),
    )
    train = load("arrays", tmp_path / "f.npz")
    assert (train.shape, train.split, train.labels.tolist()) == ((3,), "train", [1, 1, 0])
    assert train.class_names == {0: "a", 1: "b"}
    assert train.fine_labels.tolist() == [5, 7, 8]
    assert train.cameras.tolist() == [1, 1, 2]
    assert torch.equal(train[[0]][0], torch.tensor([[0.0, 1.0, 2.0]]))
    assert len(load("arrays", tmp_path / "f.npz", "all")) == 4
    with pytest.raises(DataError, match="no rows of split 'val'; there is: test, train, all"):
        load("arrays", tmp_path / "f.npz", "val")


def test_features_from_safetensors_npy_and_a_folder_with_one_file_per_split(tmp_path):
    save_file({"x": FEATURES, "y": np.arange(4)}, tmp_path / "f.safetensors")
    assert load("arrays", tmp_path / "f.safetensors").labels.tolist() == [0, 1, 2, 3]
    np.save(tmp_path / "g.npy", FEATURES)
    unusable(r"neither g_labels\.npy or labels\.npy", load, "arrays", tmp_path / "g.npy")
    np.save(tmp_path / "g_labels.npy", np.arange(4))
    assert load("arrays", tmp_path / "g.npy").shape == (3,)
    np.savez(tmp_path / "train.npz", x=FEATURES, labels=np.arange(4))
    np.savez(tmp_path / "test.npz", x=FEATURES[:1], labels=np.arange(1))
    assert len(load("arrays", tmp_path)) == 4
    test = load("arrays", tmp_path, "test")
    assert (len(test), test.split) == (1, "test")
    unusable(r"none of val\.npz, val\.npy, val\.safetensors", load, "arrays", tmp_path, "val")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": FEATURES}, "none of features.*; it holds a"),
        ({"x": FEATURES}, "no labels; it holds x"),
        ({"x": FEATURES, "y": np.arange(3)}, r"labels is int64 of shape \(3,\)"),
        ({"x": FEATURES, "y": np.arange(4) / 2}, "labels is float64"),
        ({"x": FEATURES + np.inf, "y": np.arange(4)}, "NaN or infinity"),
        ({"x": FEATURES[0], "y": np.arange(3)}, r"expected numbers \[N, D\]"),
        ({"images": np.zeros((2, 4, 4, 3), np.uint8), "y": np.arange(2)}, "expected numbers"),
        ({"images": np.full((2, 1, 4, 4), 255, np.uint8), "y": np.arange(2)}, None),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "f.npz", **arrays)
    if message:
        unusable(message, load, "arrays", tmp_path / "f.npz")
    else:  # images in arrays are scaled like any images
        data = load("arrays", tmp_path / "f.npz")
        assert (data.shape, float(data[[0]][0].max())) == ((1, 4, 4), 1.0)


class Bomb:
    def __reduce__(self):
        return (print, ("unpickled",))


def test_pickled_arrays_are_never_unpickled_and_unknown_files_refused(tmp_path, capsys):
    np.save(tmp_path / "p.npy", np.array([Bomb()], object), allow_pickle=True)
    np.savez(tmp_path / "p.npz", features=np.array([Bomb()], object), allow_pickle=True)
    (tmp_path / "a.pkl").write_bytes(b"")
    for name, message in (
        ("p.npy", "without unpickling"),
        ("p.npz", "without unpickling"),
        ("a.pkl", r"expected one of \.npz, \.npy, \.safetensors"),
        ("none.npz", "root must be a file or folder"),
    ):
        unusable(message, load, "arrays", tmp_path / name)
    assert capsys.readouterr().out == ""
