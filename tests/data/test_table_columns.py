"""Columns of a table: what is a dimension, what is not, and what is refused with a way out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from uncollapse.data import DataError
from uncollapse.data.readers import read_table
from uncollapse.data.sources import open_source, read_labels

POINTS = np.random.default_rng(0).normal(size=(12, 5)).round(4)


def table(path: Path, extra: dict[str, list[object]], stem: str = "f") -> Path:
    """A CSV with the columns f0 to f4 and others before them."""
    lines = [",".join([*extra, *(f"{stem}{i}" for i in range(5))])]
    for row, point in enumerate(POINTS):
        lines.append(",".join([str(v[row]) for v in extra.values()] + [str(x) for x in point]))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


LABEL = [f"class {i % 3}" for i in range(12)]


@pytest.mark.parametrize("name", ["product_id", "ProductID", "", "Unnamed: 0", "row", "sku"])
def test_a_column_that_is_called_an_id_is_refused_with_the_way_out(
    tmp_path: Path, name: str
) -> None:
    path = table(tmp_path / "z.csv", {name: list(range(12)), "label": LABEL}, stem="axis ")
    with pytest.raises(DataError, match=rf"column '{name}' looks like an id") as refused:
        open_source(path)
    for way in (f"--features '!{name}'", f"--id '{name}'", "--features 'axis *'"):
        assert way in str(refused.value)
    assert open_source(path, ignore=[name]).points.shape == (12, 5)
    named = open_source(path, id=name)
    assert named.points.shape == (12, 5)
    assert named.names.tolist() == [str(i) for i in range(12)]
    np.testing.assert_allclose(open_source(path, features="axis *").points, POINTS)


def test_whole_numbers_among_fractions_are_refused_whatever_their_name(tmp_path: Path) -> None:
    lines = ["one,two,three,article"]
    lines += [f"{p[0]},{p[1]},{p[2]},{1000 + i}" for i, p in enumerate(POINTS)]
    (tmp_path / "z.csv").write_text("\n".join(lines))
    with pytest.raises(DataError, match=r"column 'article' looks like an id \(such as 1000\)"):
        open_source(tmp_path / "z.csv")
    found = open_source(tmp_path / "z.csv", features=["one", "t*"])
    np.testing.assert_allclose(found.points, POINTS[:, :3])


def test_a_number_outside_the_numbered_series_is_refused(tmp_path: Path) -> None:
    path = table(tmp_path / "z.csv", {"price": [i + 0.5 for i in range(12)], "label": LABEL})
    with pytest.raises(DataError, match=r"column 'price' is not one of the columns f0, f1"):
        open_source(path)
    assert open_source(path, features="*[0-9]").points.shape == (12, 5)
    assert open_source(path, features=["f*", "price"]).points.shape == (12, 6)


def test_embeddings_of_whole_numbers_and_a_dead_dimension_are_read(tmp_path: Path) -> None:
    whole = np.random.default_rng(0).integers(-127, 128, (12, 5))
    lines = ["f0,f1,f2,f3,f4"] + [",".join(map(str, row)) for row in whole]
    (tmp_path / "int8.csv").write_text("\n".join(lines))
    np.testing.assert_array_equal(open_source(tmp_path / "int8.csv").points, whole)
    lines = ["a,b,c"] + [f"{p[0]},0,{p[1]}" for p in POINTS]
    (tmp_path / "dead.csv").write_text("\n".join(lines))
    assert open_source(tmp_path / "dead.csv").points.shape == (12, 3)


def test_text_is_refused_with_the_way_out(tmp_path: Path) -> None:
    path = table(tmp_path / "z.csv", {"title": [f"cup {i}" for i in range(12)], "label": LABEL})
    with pytest.raises(
        DataError, match=r"'title' is neither .*'cup 0' in row 1.*--features '!title'"
    ):
        open_source(path)
    path = table(path, {"title": LABEL, "kind": LABEL, "product_id": list(range(12))})
    with pytest.raises(DataError, match=r"'title' is .*'kind' is .*'product_id' looks like an id"):
        open_source(path)  # all at once
    path = table(path, {"title": [f"cup {i}" for i in range(12)], "label": LABEL})
    assert open_source(path, ignore="ti*").labels.tolist() == LABEL
    assert open_source(path, features="f*").points.shape == (12, 5)
    assert open_source(path, label="title", ignore="label").labels[1] == "cup 1"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("f0,label,f0\n1,a,2\n", r"z\.csv: column 'f0' occurs 2 times \(columns 1, 3\)"),
        ("f0,label,label\n1,a,b\n", "column 'label' occurs 2 times"),
        ("", r"z\.csv: is empty"),
        ("\n\n", r"z\.csv: cannot be read.*it is empty"),
        ("f0,f1,label\n", r"z\.csv: has no rows below its header \(f0, f1, label\)"),
        ("f0,f1\n1,2\n3\n", r"z\.csv: cannot be read.*: line 3 has 1 cells, the header 2$"),
        ("f0;f1;label\n1;2;a\n", "separated by ';'; save it with commas"),
        ("f0,f1\n1,\n", "column 'f1' is empty in row 1"),
        ("f0,f1,label\n1,2,a\n1,2,\n", "column 'label' is empty in row 2; each row needs a label"),
    ],
)
def test_a_file_that_holds_no_table_gets_a_sentence(
    tmp_path: Path, content: str, message: str
) -> None:
    (tmp_path / "z.csv").write_text(content)
    with pytest.raises(DataError, match=message):
        open_source(tmp_path / "z.csv")


def test_a_repeated_column_of_a_parquet_file_is_refused(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    twice = arrow.Table.from_arrays([arrow.array([1.0]), arrow.array([2.0])], names=["a", "a"])
    parquet.write_table(twice, tmp_path / "z.parquet")
    with pytest.raises(DataError, match="column 'a' occurs 2 times"):
        read_table(tmp_path / "z.parquet")


def test_list_columns_are_chosen_by_name_and_must_be_alike(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "z.parquet"
    lists = [[1.0, 2.0], [3.0, 4.0]]
    parquet.write_table(arrow.table({"text": lists, "image": lists, "label": [0.0, 1.0]}), path)
    with pytest.raises(DataError, match="columns 'text', 'image' all hold lists"):
        open_source(path)
    assert open_source(path, features="image").points.tolist() == lists
    assert open_source(path, features="image").labels.tolist() == [0, 1]
    parquet.write_table(arrow.table({"z": [[1.0], [2.0, 3.0]]}), path)
    with pytest.raises(DataError, match="'z' holds lists of 1 to 2 numbers"):
        open_source(path)
    parquet.write_table(arrow.table({"z": lists, "label": [0.5, 1.0]}), path)
    with pytest.raises(DataError, match=r"'label' holds 0\.5 in row 1; labels are whole numbers"):
        open_source(path)


def test_coordinates_called_x_and_y_are_both_kept_beside_a_label(tmp_path: Path) -> None:
    (tmp_path / "z.csv").write_text("x,y,label\n0.5,1.5,a\n2.5,3.5,b\n")
    assert open_source(tmp_path / "z.csv").points.tolist() == [[0.5, 1.5], [2.5, 3.5]]


@pytest.mark.parametrize("option", ["features", "ignore", "label", "id"])
def test_a_name_that_no_column_has_is_named(tmp_path: Path, option: str) -> None:
    path = table(tmp_path / "z.csv", {"label": LABEL})
    with pytest.raises(DataError, match=r"lable: no such column \(did you mean 'label"):
        open_source(path, **{option: "lable"})


def test_labels_are_what_was_written(tmp_path: Path) -> None:
    labels = ["1", "01", "1", "2"] * 3  # 1 and 01 are two classes
    path = table(tmp_path / "z.csv", {"label": labels})
    assert open_source(path).labels.tolist() == labels
    huge = [10**30 + i % 2 for i in range(12)]
    assert open_source(table(path, {"label": huge})).labels.tolist() == huge


def test_a_file_of_labels_may_have_one_column_of_any_name(tmp_path: Path) -> None:
    (tmp_path / "y.csv").write_text("category\ncup\nplate\n")
    assert read_labels(tmp_path / "y.csv").tolist() == ["cup", "plate"]
    (tmp_path / "y.csv").write_text("number,category\n1,cup\n2,plate\n")
    with pytest.raises(
        DataError, match=r"y\.csv: columns number, category: choose one with --labels"
    ):
        read_labels(tmp_path / "y.csv")
    assert read_labels(tmp_path / "y.csv", "category").tolist() == ["cup", "plate"]
    np.save(tmp_path / "z.npy", POINTS[:2])
    found = open_source(tmp_path / "z.npy", tmp_path / "y.csv", label="category")
    assert found.labels.tolist() == ["cup", "plate"]


def test_arrays_are_chosen_by_name_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "z.npz", before=POINTS, after=2 * POINTS, kind=np.arange(12))
    found = open_source(tmp_path / "z.npz", features="after", label="kind")
    np.testing.assert_allclose(found.points, 2 * POINTS)
    assert found.labels.tolist() == list(range(12))
    with pytest.raises(DataError, match=r"--features: arrays before, after; choose one"):
        open_source(tmp_path / "z.npz", features="*e*r*")
