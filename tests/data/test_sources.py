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
        ("z.csv", "", r"z\.csv: cannot be read.*it is empty"),
        ("z.csv", "\n\n", r"z\.csv: cannot be read.*it is empty"),
        ("z.csv", "f0,f1,label\n", r"has no rows below its header \(f0, f1, label\)"),
        ("z.csv", "f0,f1\n1,2\n3\n", r"cannot be read.*: line 3 has 1 cells, the header 2$"),
        ("z.csv", "f0,f1\n1,\n2,nan\n", "column 'f1' is empty"),
        ("z.csv", "label\na\n", "no columns of numbers; it holds label"),
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


@pytest.mark.parametrize("ending", [".npy", ".safetensors"])
def test_a_file_that_is_mapped_is_never_changed_through_its_rows(tmp_path, ending):
    np.save(tmp_path / "z.npy", SMALL)
    save_file({"embeddings": SMALL}, tmp_path / "z.safetensors")
    before = (tmp_path / f"z{ending}").read_bytes()
    points = sources.open_source(tmp_path / f"z{ending}").points
    assert (points.flags.owndata, points.flags.writeable) == (False, True)  # as torch wants them
    points[:] = 0
    assert (tmp_path / f"z{ending}").read_bytes() == before


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


# Numbers of a table.


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_a_csv_of_numbers_without_a_header_keeps_its_first_row_and_says_so(csv, mark):
    csv.write_text("\n".join(mark.join(map(str, row)) for row in POINTS))
    read = sources.open_source(csv)
    np.testing.assert_array_equal(read.points, POINTS)
    assert read.held == ("f0", "f1", "f2", "f3", "f4")
    assert "z.csv has no header" in read.notes[0]


@pytest.mark.parametrize("start", [0, 1])
def test_numbers_that_count_the_columns_are_a_header(csv, start):
    header = ",".join(str(i + start) for i in range(5))
    csv.write_text("\n".join([header, *(",".join(map(str, row)) for row in POINTS)]))
    read = sources.open_source(csv)
    np.testing.assert_array_equal(read.points, POINTS)
    assert read.notes == ()


def test_decimal_commas_between_semicolons_are_numbers(csv):
    rows = [";".join(str(x).replace(".", ",") for x in row) for row in POINTS]
    csv.write_text("\n".join(["f0;f1;f2;f3;f4;label", *(f'{row};"a; b"' for row in rows)]))
    read = sources.open_source(csv)
    np.testing.assert_array_equal(read.points, POINTS)
    assert set(read.labels) == {"a; b"}


@pytest.mark.parametrize("empty", ["", "nan", "NaN", "NA", "null", " "])
def test_empty_cells_of_dimensions_are_nan(csv, empty):
    csv.write_text(f"f0,f1,label\n1.5,{empty},a\n{empty},inf,b\n2,3,c\n")
    expected = [[1.5, np.nan], [np.nan, np.inf], [2, 3]]
    np.testing.assert_array_equal(sources.open_source(csv).points, expected)


def test_cells_are_numbers_beyond_the_block_that_is_read_at_once(csv, monkeypatch):
    monkeypatch.setattr("uncollapse.data.readers._CELLS", 14)  # two rows
    table(csv, {"label": LABEL, "note": [*["1"] * 10, "oops", "1"]})
    unusable("'note' is neither .*'oops' in row 11", sources.open_source, csv)
    read = sources.open_source(csv, ignore="note")
    np.testing.assert_array_equal(read.points, POINTS)
    assert read.labels.tolist() == LABEL


@pytest.mark.parametrize("kind", ["list", "large_list", "fixed"])
def test_list_columns_keep_their_float_type_and_missing_lists_are_rows_of_nan(tmp_path, kind):
    vector = arrow.list_(arrow.float16()) if kind == "list" else arrow.large_list(arrow.float32())
    vector = arrow.list_(arrow.float64(), 2) if kind == "fixed" else vector
    lists = arrow.array([None, [1, 2], [3, None], [5, 6]], vector)
    names = arrow.array(["a", None, "c", "d"])
    parquet.write_table(
        arrow.table({"z": lists, "name": names}), tmp_path / "z.parquet", row_group_size=1
    )
    read = sources.open_source(tmp_path / "z.parquet")
    assert read.points.dtype == {"list": "f2", "large_list": "f4", "fixed": "f8"}[kind]
    np.testing.assert_array_equal(read.points, [[np.nan] * 2, [1, 2], [3, np.nan], [5, 6]])
    assert read.names.tolist() == ["a", "", "c", "d"]


def test_columns_of_a_parquet_file_that_are_no_numbers_are_refused(tmp_path):
    days = np.array(["2026-01-01", "2026-01-02"], "M8[ns]")
    for odd in (days, ["a", "b"], [None, None], [["a"], ["b"]]):
        columns = {"f0": [1.5, 2.5], "odd": odd}
        parquet.write_table(arrow.table(columns), tmp_path / "z.parquet")
        unusable("column 'odd' is ", sources.open_source, tmp_path / "z.parquet")
        assert sources.open_source(tmp_path / "z.parquet", ignore="odd").points.shape == (2, 1)


def test_missing_lists_may_fill_whole_blocks(tmp_path):
    lists = [*[None] * 1500, *[[1.0, 2.0]] * 10, *[None] * 3000, [3.0, 4.0]]
    parquet.write_table(arrow.table({"z": lists}), tmp_path / "z.parquet")
    points = sources.open_source(tmp_path / "z.parquet").points
    assert points.shape == (4511, 2)
    assert np.flatnonzero(~np.isnan(points[:, 0])).tolist() == [*range(1500, 1510), 4510]
    assert points[-1].tolist() == [3, 4]


def test_columns_of_a_parquet_file_keep_their_float_type_and_nulls_are_nan(tmp_path):
    columns = {"f0": np.array([1, 2], np.float32), "f1": arrow.array([None, 3.5], arrow.float32())}
    parquet.write_table(arrow.table({**columns, "label": ["a", "b"]}), tmp_path / "z.parquet")
    points = sources.open_source(tmp_path / "z.parquet").points
    assert points.dtype == np.float32
    np.testing.assert_array_equal(points, [[1, np.nan], [2, 3.5]])
    columns["f1"] = np.array([1, 2])  # with integers, float64
    parquet.write_table(arrow.table(columns), tmp_path / "z.parquet")
    assert sources.open_source(tmp_path / "z.parquet").points.dtype == np.float64


# Labels, names, texts and pictures of other files.


@pytest.fixture
def rows(tmp_path):
    """Embeddings with names, and the labels of those names in another order."""
    np.savez(tmp_path / "z.npz", embeddings=SMALL, names=np.array(list("abcde")))
    (tmp_path / "y.csv").write_text("name,label\nc,2\na,1\ne,3\nb,1\nd,2\nf,9\n")
    return tmp_path


def test_labels_are_joined_by_name_where_both_files_have_names(rows):
    read = sources.open_source(rows / "z.npz", rows / "y.csv")
    assert read.labels.tolist() == [1, 1, 2, 2, 3]
    assert read.notes == ("y.csv joined by names = name: 5 of 5 rows",)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_labels_of_a_table_are_joined_by_its_chosen_id(tmp_path, ending):
    path, ids = tmp_path / f"z{ending}", [f"p{i}" for i in range(12)]
    if ending == ".csv":
        table(path, {"sku": ids})
    else:
        columns = {f"f{i}": POINTS[:, i] for i in range(5)}
        parquet.write_table(arrow.table({"sku": ids, **columns}), path)
    (tmp_path / "y.csv").write_text(
        "sku,kind\n" + "\n".join(f"p{i},k{i}" for i in range(11, -1, -1))
    )
    read = sources.open_source(path, tmp_path / "y.csv", id="sku")
    assert read.labels.tolist() == [f"k{i}" for i in range(12)]
    assert read.names.tolist() == ids
    assert read.notes == ("y.csv joined by sku: 12 of 12 rows",)


def test_rows_are_joined_by_position_where_nothing_is_in_common_and_that_is_said(rows):
    np.save(rows / "z.npy", SMALL)
    (rows / "y.csv").write_text(
        "sku,description,label\n" + "\n".join(f"{i},d {i},{i % 2}" for i in range(5))
    )
    read = sources.open_source(rows / "z.npy", rows / "y.csv", id="sku", text="description")
    assert read.labels.tolist() == [0, 1, 0, 1, 0]
    assert read.names.tolist() == list("01234")
    assert read.texts.tolist() == [f"d {i}" for i in range(5)]
    assert read.notes == ("y.csv joined by row",)
    (rows / "y.csv").write_text("label\na\nb\n")
    unusable(
        r"y\.csv: 2 rows for 5 embeddings, and .*no names",
        sources.open_source,
        rows / "z.npz",
        rows / "y.csv",
    )


def test_keys_that_match_in_part_are_an_error_with_counts_and_an_example(rows):
    (rows / "y.csv").write_text("name,label\na,1\nb,1\nx,2\nd,2\ne,3\n")
    unusable(
        r"y\.csv: joined by .*4 of 5 rows, but there is no 'c'",
        sources.open_source,
        rows / "z.npz",
        rows / "y.csv",
    )


def test_a_key_with_two_labels_is_an_error_and_with_one_label_is_none(rows):
    text = (rows / "y.csv").read_text()
    (rows / "y.csv").write_text(f"{text}a,1\n")
    assert sources.open_source(rows / "z.npz", rows / "y.csv").labels.tolist() == [1, 1, 2, 2, 3]
    (rows / "y.csv").write_text(f"{text}a,7\n")
    unusable(
        r"y\.csv: 'a' occurs with the label '1' and '7'",
        sources.open_source,
        rows / "z.npz",
        rows / "y.csv",
    )


def test_rows_without_a_key_are_no_key(rows):
    (rows / "y.csv").write_text((rows / "y.csv").read_text() + ",8\n,9\n")
    assert sources.open_source(rows / "z.npz", rows / "y.csv").labels.tolist() == [1, 1, 2, 2, 3]


def test_names_that_repeat_in_both_files_in_the_same_order_are_joined_in_that_order(rows):
    np.savez(rows / "z.npz", embeddings=SMALL, name=np.array(list("aabba")))
    (rows / "y.csv").write_text("name,label\na,1\na,2\nb,3\nb,4\na,5\n")
    assert sources.open_source(rows / "z.npz", rows / "y.csv").labels.tolist() == [1, 2, 3, 4, 5]


def test_a_third_file_gives_texts_pictures_and_further_columns(rows):
    lines = [f"{name},text of {name},{name}.png,{ord(name)}" for name in "edcba"]
    (rows / "more.csv").write_text("\n".join(["id,text,image,cam", *lines]))
    for name in "abcde":
        (rows / f"{name}.png").touch()
    read = sources.open_source(
        rows / "z.npz", rows / "y.csv", info=rows / "more.csv", columns={"--cameras": "cam"}
    )
    assert read.labels.tolist() == [1, 1, 2, 2, 3]
    assert read.names.tolist() == list("abcde")
    assert read.texts[1] == "text of b"
    assert [path.name for path in read.find_pictures(rows)] == [f"{name}.png" for name in "abcde"]
    assert read.columns["cam"].tolist() == [97, 98, 99, 100, 101]
    assert len(read.notes) == 2
    some = read.select(np.array([4, 0]))
    assert (some.texts.tolist(), some.images.tolist()) == (
        ["text of e", "text of a"],
        ["e.png", "a.png"],
    )
    for ending in ENDINGS:
        again = sources.open_source(sources.write_embeddings(some, rows / f"some{ending}"))
        assert again.texts.tolist() == some.texts.tolist()
        assert again.images.tolist() == some.images.tolist()


def test_a_column_that_no_file_has_is_named_with_those_of_all_files(rows):
    with pytest.raises(DataError, match=r"--text descr: no such column.*'label'"):
        sources.open_source(rows / "z.npz", rows / "y.csv", text="descr")
    with pytest.raises(DataError, match=r"y\.csv: columns name, label \(did you mean 'label'"):
        sources.open_source(rows / "z.npz", rows / "y.csv", label="labl")


def test_a_file_of_labels_may_have_one_column_of_any_name(tmp_path, csv):
    np.save(tmp_path / "z.npy", SMALL[:2])
    csv.write_text("category\ncup\nplate\n")
    assert sources.open_source(tmp_path / "z.npy", csv).labels.tolist() == ["cup", "plate"]
    csv.write_text("number,category\n1,cup\n2,plate\n")
    unusable(r"z\.csv: columns number, category", sources.open_source, tmp_path / "z.npy", csv)
    np.save(tmp_path / "y.npy", np.array([7, 3]))
    read = sources.open_source(tmp_path / "z.npy", csv, label="category")
    assert read.labels.tolist() == ["cup", "plate"]
    assert sources.open_source(tmp_path / "z.npy", tmp_path / "y.npy").labels.tolist() == [7, 3]
