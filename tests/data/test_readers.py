import numpy as np
import pytest
from safetensors.numpy import save_file

from uncollapse.data import DataError
from uncollapse.data.readers import read_arrays, read_lines, read_table

POINTS = np.arange(6.0).reshape(3, 2)


def test_arrays_come_by_name_from_every_kind_of_file(tmp_path):
    np.savez(tmp_path / "a.npz", x=POINTS, y=np.arange(3))
    np.save(tmp_path / "a.npy", POINTS)
    save_file({"x": POINTS}, tmp_path / "a.safetensors")
    assert list(read_arrays(tmp_path / "a.npz")) == ["x", "y"]
    np.testing.assert_array_equal(read_arrays(tmp_path / "a.npy")["embeddings"], POINTS)
    np.testing.assert_array_equal(read_arrays(tmp_path / "a.safetensors")["x"], POINTS)


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".safetensors"])
def test_a_damaged_or_missing_array_file_is_named(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    for _ in range(2):
        with pytest.raises(DataError, match=rf"a{suffix}: cannot be read"):
            read_arrays(path)
        path.write_bytes(b"damaged")


def test_tables_come_by_column(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"a": [1, 2], "b": ["x", None]}), tmp_path / "a.parquet")
    assert read_table(tmp_path / "a.parquet") == {"a": [1, 2], "b": ["x", None]}
    (tmp_path / "a.csv").write_bytes(b'a,b\r\n1,"x\ny"\r\n\r\n2,\r\n')
    assert read_table(tmp_path / "a.csv") == {"a": ["1", "2"], "b": ["x\ny", ""]}
    twice = arrow.Table.from_arrays([arrow.array([1.0]), arrow.array([2.0])], names=["a", "a"])
    parquet.write_table(twice, tmp_path / "z.parquet")
    with pytest.raises(DataError, match="column 'a' occurs 2 times"):
        read_table(tmp_path / "z.parquet")


def test_a_short_row_is_an_error_or_filled_as_asked(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1\n")
    assert read_table(tmp_path / "a.csv", fill=True) == {"a": ["1"], "b": [""]}
    with pytest.raises(DataError, match="line 2 has 1 cells, the header 2"):
        read_table(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("a,b\n1,2,3\n")
    with pytest.raises(DataError, match="line 2 has 3 cells, the header 2"):
        read_table(tmp_path / "a.csv", fill=True)
    (tmp_path / "empty.csv").touch()
    assert read_table(tmp_path / "empty.csv") == {}


def test_a_list_of_a_dataset_that_is_missing_or_no_text_is_named(tmp_path):
    with pytest.raises(DataError, match=r"cub200: no file .*images\.txt"):
        read_lines(tmp_path / "images.txt", "cub200")
    (tmp_path / "images.txt").write_bytes(b"1 \xff\n")
    with pytest.raises(DataError, match=r"cub200: .*images\.txt is not text in UTF-8"):
        read_lines(tmp_path / "images.txt", "cub200")
