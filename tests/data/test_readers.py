import pytest

from support.errors import unusable
from uncollapse.data import DataError
from uncollapse.data.readers import read_arrays, read_lines, read_table


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".safetensors"])
def test_a_damaged_or_missing_array_file_is_named(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    for _ in range(2):
        unusable(rf"a{suffix}: cannot be read", read_arrays, path)
        path.write_bytes(b"damaged")


def test_tables_come_by_column_whose_rows_are_not_longer_than_the_header(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"a": [1, 2], "b": ["x", None]}), tmp_path / "a.parquet")
    assert read_table(tmp_path / "a.parquet") == {"a": [1, 2], "b": ["x", None]}
    (tmp_path / "a.csv").write_bytes(b'a,b\r\n1,"x\ny"\r\n\r\n2,\r\n')
    assert read_table(tmp_path / "a.csv") == {"a": ["1", "2"], "b": ["x\ny", ""]}
    twice = arrow.Table.from_arrays([arrow.array([1.0]), arrow.array([2.0])], names=["a", "a"])
    parquet.write_table(twice, tmp_path / "z.parquet")
    unusable("column 'a' occurs 2 times", read_table, tmp_path / "z.parquet")
    (tmp_path / "a.csv").write_text("a,b\n1,2,3\n")
    unusable("line 2 has 3 cells, the header 2", read_table, tmp_path / "a.csv", fill=True)


def test_a_list_of_a_dataset_that_is_missing_or_no_text_is_named(tmp_path):
    unusable(r"cub200: no file .*images\.txt", read_lines, tmp_path / "images.txt", "cub200")
    (tmp_path / "images.txt").write_bytes(b"1 \xff\n")
    with pytest.raises(DataError, match=r"cub200: .*images\.txt is not text in UTF-8"):
        read_lines(tmp_path / "images.txt", "cub200")
