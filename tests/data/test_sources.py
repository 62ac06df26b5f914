"""Files of embeddings: which column is what, what each format keeps, and what is refused."""

import json
import warnings
from dataclasses import asdict, replace

import numpy as np
import pytest
from safetensors.numpy import save_file

from support.errors import refused, unusable
from uncollapse.data import DataError, load, sources

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

ENDINGS = (".npz", ".parquet", ".safetensors")
POINTS = np.random.default_rng(0).normal(size=(12, 5)).round(4)
SMALL = POINTS[:5, :3].astype(np.float32)
START = sources.StartScale(1.85, 0.9, None, "test", 200, 0.69, 0.33)
NAMED = sources.Source(
    SMALL,
    np.array([1, 1, 2, 2, 2]),
    np.arange(5),
    np.array(["a/1.png", "b/é\n2.png", "c", "", "5"]),
    sources.Origin("stuck", 60, "test", START),
)


# What is written is what is read.


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_keeps_names_labels_origin_and_columns(tmp_path, ending):
    beside = {"cameras": np.array([3, 1, 2, 1, 2]), "role": np.array(["q", "g", "q", "g", "g"])}
    path = tmp_path / f"deep/z{ending}"
    sources.write_embeddings(replace(NAMED, columns=beside), path)
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    read = sources.open_source(path, columns={"--cameras": "cameras", "--split-column": "role"})
    np.testing.assert_array_equal(read.points, SMALL)
    for column in ("labels", "fine_labels", "names"):
        assert getattr(read, column).tolist() == getattr(NAMED, column).tolist()
    assert (read.origin, read.complaint) == (NAMED.origin, "")
    assert {name: v.tolist() for name, v in read.columns.items()} == {
        name: v.tolist() for name, v in beside.items()
    }
    assert set(read.held) == {"embeddings", "labels", "fine_labels", "names", *beside}
    with pytest.raises(DataError, match=r"--cameras cam: no such column.*there is: .*'cameras'"):
        sources.open_source(path, columns={"--cameras": "cam"})
    words = np.array(["cat", "dog", "cat", "dog", "cow"])
    sources.write_embeddings(sources.Source(SMALL, words), path)
    assert sources.open_source(path).labels.tolist() == words.tolist()


def test_what_a_format_cannot_hold_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("uncollapse.data.sources._HEADER", 30)
    for name in ("z.safetensors", "z.bin"):
        with refused("path"):
            sources.write_embeddings(NAMED, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("z.npz", "junk", "cannot be read"),
        ("z.parquet", "junk", "cannot be read"),
        ("z.npz", None, "no such file"),
        ("z.txt", "a", "file"),
        ("z.csv", "f0,label,f0\n1,a,2\n", r"z\.csv: column 'f0' occurs 2 times \(columns 1, 3\)"),
        ("z.csv", "f0,label,label\n1,a,b\n", "column 'label' occurs 2 times"),
        ("z.csv", "", r"z\.csv: is empty"),
        ("z.csv", "\n\n", r"z\.csv: cannot be read.*it is empty"),
        ("z.csv", "f0,f1,label\n", r"has no rows below its header \(f0, f1, label\)"),
        ("z.csv", "f0,f1\n1,2\n3\n", r"cannot be read.*: line 3 has 1 cells, the header 2$"),
        ("z.csv", "f0;f1;label\n1;2;a\n", "separated by ';'"),
        ("z.csv", "f0,f1\n1,\n", "column 'f1' is empty in row 1"),
        ("z.csv", "f0,f1,label\n1,2,a\n1,2,\n", "column 'label' is empty in row 2"),
    ],
)
def test_files_that_cannot_be_used_are_named(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        sources.open_source(tmp_path / name)


@pytest.mark.parametrize(
    ("stored", "read"), [("<f2", "f2"), ("<f4", "f4"), ("<f8", "f8"), (">f4", "f4"), ("i1", "f8")]
)
@pytest.mark.parametrize("ending", [".npy", ".npz", ".safetensors"])
def test_rows_keep_the_float_type_of_their_file(tmp_path, ending, stored, read):
    rows, path = np.arange(-3, 3).reshape(3, 2).astype(stored), tmp_path / f"z{ending}"
    if ending == ".safetensors":
        rows = rows.astype(rows.dtype.newbyteorder("="))
        save_file({"embeddings": rows}, path)
    else:
        (np.save if ending == ".npy" else np.savez)(path, rows)
    points = sources.open_source(path, **({"features": "arr_0"} if ending == ".npz" else {})).points
    assert (points.dtype, points.dtype.isnative) == (np.dtype(read), True)
    np.testing.assert_array_equal(points, rows)


def test_an_npy_file_is_mapped_and_never_changed_through_its_rows(tmp_path):
    np.save(tmp_path / "z.npy", SMALL)
    points = sources.open_source(tmp_path / "z.npy").points
    assert (points.flags.owndata, points.flags.writeable) == (False, True)  # as torch wants them
    points[:] = 0
    np.testing.assert_array_equal(np.load(tmp_path / "z.npy"), SMALL)


def test_rows_with_nan_or_infinity_are_read(tmp_path):
    rows = np.array([[1, np.nan], [np.inf, 2], [3, 4]], np.float32)
    np.save(tmp_path / "z.npy", rows)
    np.testing.assert_array_equal(sources.open_source(tmp_path / "z.npy").points, rows)


@pytest.mark.parametrize(
    ("rows", "given"),
    [(np.zeros((0, 3)), "shape (0, 3)"), (np.zeros(3), "shape (3,)"), (np.array([["a"]]), "<U1")],
)
def test_embeddings_that_are_no_rows_of_numbers_are_refused(tmp_path, rows, given):
    np.save(tmp_path / "z.npy", rows)
    with refused("z.npy: embeddings") as error:
        sources.open_source(tmp_path / "z.npy")
    assert given in str(error.value.given)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"other": SMALL}, "none of embeddings.*it holds other"),
        ({"x": SMALL, "y": np.zeros(2, int)}, "labels of shape"),
        ({"x": SMALL, "cameras": np.arange(4)}, r"cameras of shape \(4,\) for 5 rows"),
        ({"x": np.array([{"a": 1}], object)}, "without unpickling"),
        ({"x": SMALL, "uncollapse": np.array([{"a": 1}], object)}, "without unpickling"),
    ],
)
def test_arrays_that_are_missing_or_do_not_fit_the_rows_are_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "z.npz", **arrays)
    columns = {"--cameras": "cameras"} if "cameras" in arrays else {}
    unusable(message, sources.open_source, tmp_path / "z.npz", columns=columns)


def test_arrays_are_chosen_by_name(tmp_path):
    path = tmp_path / "z.npz"
    np.savez(path, before=POINTS, after=2 * POINTS, kind=np.arange(12))
    read = sources.open_source(path, features="after", label="kind")
    np.testing.assert_allclose(read.points, 2 * POINTS)
    assert read.labels.tolist() == list(range(12))
    unusable(r"--features: arrays before, after", sources.open_source, path, features="*e*r*")


# The note that says which run made a file.


def write_note(path, note):
    """A file whose note is what is given, by the file's ending."""
    if path.suffix == ".npz":
        np.savez(path, embeddings=SMALL, labels=np.arange(5), uncollapse=np.array(note))
    elif path.suffix == ".safetensors":
        save_file({"embeddings": SMALL}, path, {"uncollapse": str(note)})
    else:
        table = arrow.table({"embeddings": SMALL.tolist()}, metadata={"uncollapse": str(note)})
        parquet.write_table(table, path)
    return path


def changed(**values):
    plain = json.loads(json.dumps(asdict(sources._Note(NAMED.origin))))
    plain["origin"]["start"] |= values
    return json.dumps(plain)


ODD = {
    "": "the note",
    "{": "the note",
    "[" * 100_000: "the note",
    "[1]": "the note",
    '{"format": 2}': "format",
    '{"format": 1, "origin": [3]}': "origin",
    '{"format": 1, "origin": {"step": 3}}': "origin.run",
    '{"format": 1, "origin": {"run": "a", "step": true}}': "origin.step",
    changed(diameter=-1.0): "origin.start.diameter",
    changed(diameter="1.0"): "origin.start.diameter",
    changed(diameter=float("nan")): "origin.start.diameter",
    changed(spread=float("inf")): "origin.start.spread",
    changed(diameter=10**400): "origin.start.diameter",
    changed(rows=0): "origin.start.rows",
    changed(fine_agreement=1.69): "origin.start.fine_agreement",
    changed(split="x" * 5000): "origin.start.split",
    '{"format": 1, "texts": {"names": [1, 2]}}': "texts.names",
}
NOTES = [
    *((".npz", note, f"({field}") for note, field in ODD.items()),
    *((ending, '{"format": 2}', "(format") for ending in ENDINGS[1:]),
    *((".npz", note, "") for note in (3.5, ["a", "b"], b"bytes")),  # no texts
]


@pytest.mark.parametrize(("ending", "note", "why"), NOTES, ids=range(len(NOTES)))
def test_an_odd_note_is_a_complaint_and_the_rows_are_read(tmp_path, ending, note, why):
    path = write_note(tmp_path / f"z{ending}", note)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read = sources.open_source(path)
    np.testing.assert_allclose(read.points, SMALL)
    assert read.origin is None
    assert f"{path.name}: its metadata cannot be used" in read.complaint
    assert why in read.complaint
    assert len(read.complaint) < 300 + len(str(path))


def test_files_without_a_note_have_no_origin_and_files_with_one_are_datasets_still(tmp_path):
    np.savez(tmp_path / "z.npz", embeddings=SMALL)
    np.save(tmp_path / "z.npy", SMALL)
    save_file({"embeddings": SMALL}, tmp_path / "z.safetensors", {"format": "pt"})
    for ending in ("npz", "npy", "safetensors"):
        read = sources.open_source(tmp_path / f"z.{ending}")
        assert (read.labels, read.origin, read.complaint) == (None, None, "")
    for ending in (".npz", ".safetensors"):
        path = sources.write_embeddings(NAMED, tmp_path / f"z{ending}")
        assert load("arrays", path).labels.tolist() == NAMED.labels.tolist()


def test_words_for_another_number_of_rows_are_an_error(tmp_path):
    note = json.dumps(asdict(sources._Note(texts={"names": ["a", "b"]})))
    with pytest.raises(DataError, match=r"names of shape \(2,\) for 5 rows"):
        sources.open_source(write_note(tmp_path / "z.safetensors", note))


# Columns of a table.

LABEL = [f"class {i % 3}" for i in range(12)]
CUPS = [f"cup {i}" for i in range(12)]


def table(path, extra, stem="f"):
    """A CSV with the columns f0 to f4 and others before them."""
    lines = [",".join([*extra, *(f"{stem}{i}" for i in range(5))])]
    for row, point in enumerate(POINTS):
        lines.append(",".join([str(v[row]) for v in extra.values()] + [str(x) for x in point]))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture
def csv(tmp_path):
    return tmp_path / "z.csv"


@pytest.mark.parametrize("name", ["product_id", "ProductID", "", "Unnamed: 0", "row", "sku"])
def test_a_column_that_is_called_an_id_is_refused_with_the_options_that_help(csv, name):
    table(csv, {name: list(range(12)), "label": LABEL}, stem="axis ")
    with pytest.raises(DataError, match=rf"column '{name}' looks like an id") as error:
        sources.open_source(csv)
    for option in (f"--features '!{name}'", f"--id '{name}'", "--features 'axis *'"):
        assert option in str(error.value)
    for option in ({"ignore": [name]}, {"id": name}, {"features": "axis *"}):
        np.testing.assert_allclose(sources.open_source(csv, **option).points, POINTS)
    assert sources.open_source(csv, id=name).names.tolist() == [str(i) for i in range(12)]


def test_whole_numbers_among_fractions_and_numbers_outside_the_series_are_refused(csv):
    rows = [f"{p[0]},{p[1]},{p[2]},{1000 + i}" for i, p in enumerate(POINTS)]
    csv.write_text("\n".join(["one,two,three,article", *rows]))
    unusable(r"column 'article' looks like an id \(such as 1000\)", sources.open_source, csv)
    np.testing.assert_allclose(
        sources.open_source(csv, features=["one", "t*"]).points, POINTS[:, :3]
    )
    table(csv, {"price": [i + 0.5 for i in range(12)], "label": LABEL})
    unusable(r"'price' is not one of the columns f0, f1", sources.open_source, csv)
    assert sources.open_source(csv, features="*[0-9]").points.shape == (12, 5)
    assert sources.open_source(csv, features=["f*", "price"]).points.shape == (12, 6)


def test_whole_numbers_a_dead_dimension_and_coordinates_called_x_and_y_are_read(csv):
    whole = np.random.default_rng(0).integers(-127, 128, (12, 5))
    csv.write_text("\n".join(["f0,f1,f2,f3,f4", *(",".join(map(str, row)) for row in whole)]))
    np.testing.assert_array_equal(sources.open_source(csv).points, whole)
    csv.write_text("\n".join(["a,b,c", *(f"{p[0]},0,{p[1]}" for p in POINTS)]))
    assert sources.open_source(csv).points.shape == (12, 3)
    csv.write_text("x,y,label\n0.5,1.5,a\n2.5,3.5,b\n")
    read = sources.open_source(csv)
    assert (read.points.tolist(), list(read.labels)) == ([[0.5, 1.5], [2.5, 3.5]], ["a", "b"])
    assert (read.origin, read.complaint) == (None, "")


def test_text_is_refused_with_the_options_that_help(csv):
    table(csv, {"kind": LABEL, "title": CUPS, "product_id": list(range(12))})
    unusable(r"'kind' is .*'title' is .*'product_id' looks like an id", sources.open_source, csv)
    table(csv, {"title": CUPS, "label": LABEL})
    unusable(r"'title' is neither .*'cup 0' in row 1", sources.open_source, csv)
    for option in ({"ignore": "ti*"}, {"features": "f*"}):
        read = sources.open_source(csv, **option)
        assert (read.points.shape, list(read.labels)) == ((12, 5), LABEL)
    assert sources.open_source(csv, label="title", ignore="label").labels[1] == "cup 1"


def test_list_columns_are_chosen_by_name_and_must_be_alike(tmp_path):
    path, lists = tmp_path / "z.parquet", [[1.0, 2.0], [3.0, 4.0]]
    parquet.write_table(arrow.table({"text": lists, "image": lists, "label": [0.0, 1.0]}), path)
    unusable("columns 'text', 'image' all hold lists", sources.open_source, path)
    assert sources.open_source(path, features="image").points.tolist() == lists
    assert sources.open_source(path, features="image").labels.tolist() == [0, 1]
    for columns, message in (
        ({"z": [[1.0], [2.0, 3.0]]}, "'z' holds lists of 1 to 2 numbers"),
        ({"z": lists, "label": [0.5, 1.0]}, r"'label' holds 0\.5 in row 1"),
    ):
        parquet.write_table(arrow.table(columns), path)
        unusable(message, sources.open_source, path)


@pytest.mark.parametrize("option", ["features", "ignore", "label", "id"])
def test_a_name_that_no_column_has_is_named(csv, option):
    table(csv, {"label": LABEL})
    with pytest.raises(DataError, match=r"lable: no such column \(did you mean 'label"):
        sources.open_source(csv, **{option: "lable"})


@pytest.mark.parametrize(
    "labels", [["1", "01", "1", "2"] * 3, [10**30, 10**30 + 1] * 6], ids=["1 and 01", "huge"]
)
def test_labels_are_what_was_written(csv, labels):
    assert sources.open_source(table(csv, {"label": labels})).labels.tolist() == labels


def test_a_file_of_labels_may_have_one_column_of_any_name(tmp_path, csv):
    csv.write_text("category\ncup\nplate\n")
    assert sources.read_labels(csv).tolist() == ["cup", "plate"]
    csv.write_text("number,category\n1,cup\n2,plate\n")
    unusable(r"z\.csv: columns number, category", sources.read_labels, csv)
    np.save(tmp_path / "z.npy", SMALL[:2])
    np.save(tmp_path / "y.npy", np.array([7, 3]))
    read = sources.open_source(tmp_path / "z.npy", csv, label="category")
    assert read.labels.tolist() == ["cup", "plate"]
    assert sources.open_source(tmp_path / "z.npy", tmp_path / "y.npy").labels.tolist() == [7, 3]
