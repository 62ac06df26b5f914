"""What a file of embeddings says of its rows: kept by every format; odd notes get a sentence."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from uncollapse._base.check import InputError
from uncollapse.data import load
from uncollapse.data.listing import DataError
from uncollapse.data.sources import (
    Origin,
    Source,
    StartScale,
    _Note,
    open_source,
    write_embeddings,
)

ENDINGS = (".npz", ".parquet", ".safetensors")
START = StartScale(1.85, 0.9, None, "test", 200)
ORIGIN = Origin("stuck", 60, "test", START)
POINTS = np.random.default_rng(0).normal(size=(5, 3))
NAMES = ["a/1.png", "b/é\n2.png", "c", "", "5"]


def write(path: Path, note: object) -> Path:
    """A file whose note is what is given, by the file's ending."""
    if path.suffix == ".npz":
        np.savez(path, embeddings=POINTS, labels=np.arange(5), uncollapse=np.array(note))
    elif path.suffix == ".safetensors":
        save_file({"embeddings": POINTS}, path, {"uncollapse": str(note)})
    else:
        import pyarrow as pa
        import pyarrow.parquet

        table = pa.table({"embeddings": POINTS.tolist()}, metadata={"uncollapse": str(note)})
        pyarrow.parquet.write_table(table, path)
    return path


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_keeps_names_labels_and_origin(tmp_path: Path, ending: str) -> None:
    given = Source(POINTS, np.arange(5), None, np.array(NAMES), ORIGIN)
    found = open_source(write_embeddings(given, tmp_path / f"z{ending}"))
    assert found.origin == ORIGIN
    assert found.names is not None
    assert found.names.tolist() == NAMES
    assert found.labels is not None
    assert found.labels.tolist() == list(range(5))
    assert found.complaint == ""


@pytest.mark.parametrize("ending", ENDINGS)
def test_words_as_labels_are_kept_by_every_format(tmp_path: Path, ending: str) -> None:
    labels = np.array(["cat", "dog", "cat", "dog", "cow"])
    found = open_source(write_embeddings(Source(POINTS, labels), tmp_path / f"z{ending}"))
    assert found.labels is not None
    assert found.labels.tolist() == labels.tolist()


def test_more_words_than_a_header_holds_are_refused_with_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uncollapse.data.sources._HEADER", 30)
    given = Source(POINTS, names=np.array(NAMES))
    with pytest.raises(InputError, match=r"bytes of names.*|write \.npz or \.parquet"):
        write_embeddings(given, tmp_path / "z.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_files_without_a_note_are_read_as_before(tmp_path: Path) -> None:
    np.savez(tmp_path / "z.npz", embeddings=POINTS)
    np.save(tmp_path / "z.npy", POINTS)
    save_file({"embeddings": POINTS}, tmp_path / "z.safetensors", {"format": "pt"})
    (tmp_path / "z.csv").write_text("a,b,label\n1,2.5,x\n3,4.5,y\n")
    for ending in ("npz", "npy", "safetensors", "csv"):
        found = open_source(tmp_path / f"z.{ending}")
        assert found.origin is None
        assert found.complaint == ""


def test_a_file_with_a_note_is_a_dataset_still(tmp_path: Path) -> None:
    given = Source(POINTS, np.arange(5), None, np.array(NAMES), ORIGIN)
    for ending in (".npz", ".safetensors"):
        path = write_embeddings(given, tmp_path / f"z{ending}")
        assert load("arrays", path).labels.tolist() == list(range(5))


def changed(**values: object) -> str:
    plain = json.loads(json.dumps(asdict(_Note(ORIGIN))))
    plain["origin"]["start"] |= values
    return json.dumps(plain)


ODD = {
    "nothing": ("", "the note"),
    "no JSON": ("{", "the note"),
    "deep": ("[" * 100_000, "the note"),
    "a list": ("[1]", "the note"),
    "a later format": ('{"format": 2}', "format"),
    "an odd origin": ('{"format": 1, "origin": [3]}', "origin"),
    "no run": ('{"format": 1, "origin": {"step": 3}}', "origin.run"),
    "an odd step": ('{"format": 1, "origin": {"run": "a", "step": true}}', "origin.step"),
    "a negative diameter": (changed(diameter=-1.0), "origin.start.diameter"),
    "no number": (changed(diameter="1.0"), "origin.start.diameter"),
    "NaN": (changed(diameter=float("nan")), "origin.start.diameter"),
    "infinity": (changed(spread=float("inf")), "origin.start.spread"),
    "a huge number": (changed(diameter=10**400), "origin.start.diameter"),
    "no rows": (changed(rows=0), "origin.start.rows"),
    "an impossible share": (changed(fine_agreement=1.69), "origin.start.fine_agreement"),
    "a long name": (changed(split="x" * 5000), "origin.start.split"),
    "odd words": ('{"format": 1, "texts": {"names": [1, 2]}}', "texts.names"),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("kind", ODD)
def test_an_odd_note_is_a_sentence_and_the_rows_are_read(
    tmp_path: Path, kind: str, ending: str
) -> None:
    note, why = ODD[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = open_source(write(tmp_path / f"z{ending}", note))
    np.testing.assert_allclose(found.points, POINTS)
    assert found.origin is None
    assert f"z{ending}: its metadata cannot be used" in found.complaint
    assert f"({why}" in found.complaint
    assert len(found.complaint) < 300 + len(str(tmp_path))


@pytest.mark.parametrize("note", [3.5, ["a", "b"], b"bytes"])
def test_a_note_that_is_no_text_is_a_sentence(tmp_path: Path, note: object) -> None:
    found = open_source(write(tmp_path / "z.npz", note))
    assert "its metadata cannot be used" in found.complaint


def test_words_for_another_number_of_rows_are_an_error(tmp_path: Path) -> None:
    note = json.dumps(asdict(_Note(texts={"names": ["a", "b"]})))
    with pytest.raises(DataError, match=r"names of shape \(2,\) for 5 rows"):
        open_source(write(tmp_path / "z.safetensors", note))


def test_a_pickle_in_place_of_the_note_is_not_loaded(tmp_path: Path) -> None:
    note = np.array([{"a": 1}], dtype=object)
    np.savez(tmp_path / "z.npz", embeddings=POINTS, uncollapse=note)
    with pytest.raises(DataError, match="cannot be read without unpickling"):
        open_source(tmp_path / "z.npz")


def test_the_start_by_fine_labels_is_kept(tmp_path: Path) -> None:
    start = StartScale(1.85, 0.9, None, "test", 200, 0.69, 0.33)
    given = Source(POINTS, origin=Origin("run", 3, "test", start))
    assert open_source(write_embeddings(given, tmp_path / "z.npz")).origin == given.origin
