import numpy as np
import pytest
from safetensors.numpy import save_file

from uncollapse.data.listing import DataError
from uncollapse.data.sources import Source, open_source, write_embeddings


@pytest.fixture
def sample():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(5, 3)).astype(np.float32)
    names = np.array([f"{i}.png" for i in range(5)])
    return Source(points, np.array([1, 1, 2, 2, 2]), np.arange(5), names)


@pytest.mark.parametrize("ending", [".npz", ".parquet", ".safetensors"])
def test_what_was_written_is_what_is_read(sample, tmp_path, ending):
    found = open_source(write_embeddings(sample, tmp_path / f"deep/z{ending}"))
    np.testing.assert_allclose(found.points, sample.points)
    np.testing.assert_array_equal(found.labels, sample.labels)
    np.testing.assert_array_equal(found.fine_labels, sample.fine_labels)
    assert found.names.tolist() == sample.names.tolist()
    assert [p.name for p in (tmp_path / "deep").iterdir()] == [f"z{ending}"]


def test_plain_arrays_and_a_labels_file(sample, tmp_path):
    np.save(tmp_path / "z.npy", sample.points)
    np.save(tmp_path / "y.npy", sample.labels)
    found = open_source(tmp_path / "z.npy", tmp_path / "y.npy")
    np.testing.assert_array_equal(found.labels, sample.labels)
    assert open_source(tmp_path / "z.npy").labels is None


def test_a_csv_with_a_column_a_dimension(tmp_path):
    (tmp_path / "z.csv").write_text("a,b,label\n1,2,x\n3,4.5,y\n")
    found = open_source(tmp_path / "z.csv")
    np.testing.assert_array_equal(found.points, [[1, 2], [3, 4.5]])
    assert found.labels.tolist() == ["x", "y"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("z.txt", b"", r"file: expected a file ending in \.npz"),
        ("z.npz", b"junk", "cannot be read"),
        ("z.parquet", b"junk", "cannot be read"),
        ("z.csv", b"a,b\n1\n", "cannot be read"),
        ("z.csv", b"a,b\n1,hello\n", "column 'b' is neither numbers nor a known name"),
        ("z.csv", b"a,label\nnan,1\n", "NaN or infinity in row 0"),
    ],
)
def test_files_that_cannot_be_used_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        open_source(tmp_path / name)


def test_a_missing_file_or_array_is_named(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        open_source(tmp_path / "z.npz")
    save_file({"other": np.zeros((2, 2))}, tmp_path / "z.safetensors")
    with pytest.raises(ValueError, match=r"none of embeddings.*it holds other"):
        open_source(tmp_path / "z.safetensors")
    np.savez(tmp_path / "z.npz", x=np.zeros((3, 2)), y=np.zeros(2, int))
    with pytest.raises(ValueError, match="labels of shape"):
        open_source(tmp_path / "z.npz")


def test_an_unknown_ending_is_refused_before_anything_is_written(sample, tmp_path):
    with pytest.raises(ValueError, match=r"path: expected a file ending in \.npz"):
        write_embeddings(sample, tmp_path / "z.bin")
    assert list(tmp_path.iterdir()) == []


def test_pickled_objects_are_not_loaded(tmp_path):
    np.save(tmp_path / "z.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="cannot be read"):
        open_source(tmp_path / "z.npy")


@pytest.mark.parametrize("ending", ["npz", "parquet", "safetensors"])
def test_columns_beside_labels_are_written_and_read_by_name(tmp_path, ending):
    beside = {"cameras": np.array([3, 1, 2]), "role": np.array(["query", "gallery", "query"])}
    path = tmp_path / f"z.{ending}"
    write_embeddings(Source(np.eye(3), np.arange(3), columns=beside), path)
    found = open_source(path, columns={"--cameras": "cameras", "--split-column": "role"})
    assert {name: value.tolist() for name, value in found.columns.items()} == {
        "cameras": [3, 1, 2],
        "role": ["query", "gallery", "query"],
    }
    assert set(found.held) == {"embeddings", "labels", "cameras", "role"}
    assert found.points.shape == (3, 3)
    with pytest.raises(DataError, match=r"--cameras cam: no such column.*there is: .*'cameras'"):
        open_source(path, columns={"--cameras": "cam"})


def test_a_column_that_does_not_fit_the_rows_is_refused(tmp_path):
    np.savez(tmp_path / "z.npz", embeddings=np.eye(3), cameras=np.arange(4))
    with pytest.raises(DataError, match=r"cameras of shape \(4,\) for 3 rows"):
        open_source(tmp_path / "z.npz", columns={"--cameras": "cameras"})
