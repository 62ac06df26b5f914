import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch

from support.errors import unusable
from uncollapse.data import DataError
from uncollapse.data.readers import read_arrays, read_lines, read_table


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".safetensors"])
def test_a_missing_truncated_or_damaged_array_file_is_named(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    unusable(rf"a{suffix}: no such file", read_arrays, path)
    rows = np.arange(400.0).reshape(20, 20)
    if suffix == ".safetensors":
        save_file({"embeddings": rows}, path)
    else:
        (np.save if suffix == ".npy" else np.savez)(path, rows)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:5], b"", b"damaged"):
        path.write_bytes(content)
        unusable(rf"a{suffix}: cannot be read: it is truncated or damaged", read_arrays, path)


def test_a_truncated_parquet_file_is_named(tmp_path):
    path = tmp_path / "a.parquet"
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"a": list(range(1000))}), path)
    path.write_bytes(path.read_bytes()[:-100])
    unusable(r"a\.parquet: cannot be read: it is truncated or damaged", read_table, path)


def test_a_file_that_may_not_be_read_is_not_called_damaged(tmp_path, monkeypatch):
    def denied(*_args, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(np, "load", denied)
    with pytest.raises(DataError, match=r"a\.npy: cannot be read \(Permission denied\)"):
        read_arrays(tmp_path / "a.npy")


def test_bfloat16_tensors_are_read_as_float32(tmp_path):
    save_torch(
        {"embeddings": torch.tensor([[1.5, -2.0]], dtype=torch.bfloat16)},
        tmp_path / "a.safetensors",
    )
    rows = read_arrays(tmp_path / "a.safetensors")["embeddings"]
    assert (rows.dtype, rows.tolist()) == (np.float32, [[1.5, -2.0]])


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("a;b\n1;x\n", {"a": ["1"], "b": ["x"]}),
        ("a\tb\n1\tx, y\n", {"a": ["1"], "b": ["x, y"]}),
        ("a|b\n1|x\n", {"a": ["1"], "b": ["x"]}),
        ("a;b,c\n1,2\n", {"a;b": ["1"], "c": ["2"]}),  # a name with a semicolon
        ('"a;b",c\n1,2\n', {"a;b": ["1"], "c": ["2"]}),
    ],
)
def test_the_separator_of_a_csv_is_found(tmp_path, text, columns):
    (tmp_path / "a.csv").write_text(text)
    assert read_table(tmp_path / "a.csv") == columns


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
