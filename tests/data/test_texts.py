"""Texts: files of the user's own, and CLINC150."""

import csv
import json

import pytest
import torch

from support.errors import refused, unusable
from uncollapse.data import DataError, check, describe, load
from uncollapse.data.own import read_texts

ROWS = [
    {"text": "freeze my card, please", "label": "cards", "fine_label": "freeze", "split": "train"},
    {"text": "a new\ncard", "label": "cards", "fine_label": "order", "split": "train"},
    {"text": "wie ist es in Köln nun?", "label": "weather", "fine_label": "rain", "split": "test"},
]  # fmt: skip


def write(folder, ending):
    path = folder / f"requests{ending}"
    if ending == ".csv":
        with path.open("w", encoding="utf-8-sig", newline="") as file:
            table = csv.DictWriter(file, list(ROWS[0]))
            table.writeheader()
            table.writerows(ROWS)
    elif ending == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    else:
        arrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(arrow.Table.from_pylist(ROWS), path)
    return path


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_every_kind_of_file_gives_the_same(tmp_path, ending):
    path = write(tmp_path, ending)
    train, test = load("texts", path), load("texts", path, "test")
    assert (train.split, train.labels.tolist()) == ("train", [0, 0])
    assert train.fine_labels.tolist() == [0, 1]
    assert train.texts() == ["freeze my card, please", "a new\ncard"]
    assert test.texts() == ["wie ist es in Köln nun?"]
    assert test.class_names[int(test.labels[0])] == "weather"
    assert test.fine_names[int(test.fine_labels[0])] == "rain"
    assert test.files is None
    assert len(load("texts", path, "all")) == 3


def test_a_text_is_a_row_of_bytes_that_subsets_keep_and_nothing_scales(tmp_path):
    data = load("texts", write(tmp_path, ".csv"), "all")
    assert data.shape == (len("wie ist es in Köln nun?".encode()),)
    samples, labels = data[[1, 2]]
    assert samples.dtype == torch.int16
    assert bytes(samples[0, :5].tolist()) == b"a new"
    assert labels.tolist() == [0, 1]
    part = data.by_fine_labels().subset([2, 0]).subset([1])
    assert (part.texts(), part.holds_texts) == (["freeze my card, please"], True)


def test_whole_numbers_stay_no_split_is_all_and_a_very_long_text_is_cut_and_reported(tmp_path):
    path = tmp_path / "long.jsonl"
    rows = [{"text": "a", "label": 7}, {"text": "b" * 70_000, "label": -3}]
    path.write_text("\n".join(map(json.dumps, rows)))
    data = load("texts", path)
    assert (data.split, data.labels.tolist(), data.fine_labels) == ("all", [7, -3], None)
    assert data.shape == (65_536,)
    assert data.report.converted == {"texts above 65,536 bytes": ("row 2",)}
    unusable("strict: 1 converted from texts above 65,536 bytes", load, "texts", path, strict=True)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "words,label\na,1\n", "no column 'text'; its columns are words, label"),
        ("a.csv", 'text,label\nb,1\n" \n",1\n', "column 'text' is empty in row 2"),
        ("a.csv", "text,label\n", "no usable texts"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b"}\n', "'label' is empty in row 2"),
        ("a.jsonl", '{"text": ["a"], "label": 1}\n', "column 'text' holds a list in row 1"),
        ("a.jsonl", '{"text": "a", "label": 1}\nno\n', "line 2 is not JSON"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b", "la', "line 2 is not JSON"),
        ("a.jsonl", "[1]\n", "line 1 is not a JSON object"),
        ("a.txt", "a\n", r"expected a \.csv, \.jsonl or \.parquet file, got a\.txt"),
    ],
)
def test_files_that_cannot_be_understood_are_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    unusable(message, load, "texts", tmp_path / name)


def test_a_missing_file_an_unknown_split_and_what_is_for_images_are_refused(tmp_path):
    path = write(tmp_path, ".csv")
    with pytest.raises(DataError, match=r"texts: root must be a \.csv, \.jsonl or \.parquet file"):
        load("texts", tmp_path / "none.csv")
    unusable("no rows of split 'val'; there is: test, train, all", load, "texts", path, "val")
    with refused("split"):
        load("texts", path, "dev")
    for option in ({"size": 32}, {"channels": 1}, {"fit": "cover"}):
        with pytest.raises(ValueError, match="not decoded from image files"):
            load("texts", path, **option)


def test_unlabelled_files_give_their_texts(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\n  two \n")
    assert read_texts(tmp_path / "a.txt") == ["one", "  two "]
    assert read_texts(write(tmp_path, ".jsonl"))[1] == "a new\ncard"
    for name, content, message in [
        ("b.txt", "\n", "no texts in it"),
        ("b.csv", "x\n1\n", "no column 'text'; its columns are x"),
        ("b.pdf", "", "expected a file of texts, ending in .txt, .csv"),
        ("c.csv", None, "no such file"),
    ]:
        if content is not None:
            (tmp_path / name).write_text(content)
        unusable(message, read_texts, tmp_path / name)


CLINC = {
    "train": [["freeze it", "freeze_account"], ["rain today", "weather"]],
    "val": [["is it cold", "weather"]],
    "test": [["how warm is it", "weather"], ["block my account", "freeze_account"]],
    "oos_train": [["who am i", "oos"]],
    "oos_val": [["why", "oos"]],
    "oos_test": [["what is love", "oos"]],
}
DOMAINS = {"utility": ["weather"], "banking": ["freeze_account"]}


@pytest.fixture
def clinc(tmp_path):
    folder = tmp_path / "clinc150"
    folder.mkdir()
    (folder / "data_full.json").write_text(json.dumps(CLINC))
    (folder / "domains.json").write_text(json.dumps(DOMAINS))
    return folder


def test_clinc_has_domains_as_labels_intents_as_fine_labels_and_official_counts(clinc):
    data = load("clinc150", clinc.parent, "test")
    assert data.texts() == ["how warm is it", "block my account"]
    assert [data.class_names[label] for label in data.labels.tolist()] == ["utility", "banking"]
    fine = [data.fine_names[label] for label in data.fine_labels.tolist()]
    assert fine == ["weather", "freeze_account"]
    assert [len(load("clinc150", clinc, s)) for s in ("train", "validation", "all")] == [2, 1, 5]
    survey = check("clinc150", clinc)
    assert not survey.complete
    assert str(survey.found["train"]) == "2 texts, 2 classes, 2 fine"
    assert str(describe("clinc150").official["train"]) == "15,000 texts, 10 classes, 150 fine"


def test_requests_out_of_scope_are_a_split_of_their_own(clinc):
    data = load("clinc150", clinc, "oos")
    assert data.texts() == ["who am i", "why", "what is love"]
    assert {data.class_names[label] for label in data.labels.tolist()} == {"oos"}
    inside = load("clinc150", clinc, "all")
    assert not set(inside.labels.tolist()) & set(data.labels.tolist())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data_full.json", "[]", "data_full.json"),
        ("data_full.json", '{"train": [["only one"]]}', "row 1 of 'train'"),
        ("data_full.json", '{"test": []}', "no rows of 'train'"),
        ("domains.json", '{"banking": ["freeze_account"]}', "'weather'"),
        ("domains.json", None, r"no file .*domains\.json"),
    ],
)
def test_files_of_clinc_that_are_not_as_published_are_refused(clinc, name, content, message):
    (clinc / name).unlink()
    if content is not None:
        (clinc / name).write_text(content)
    unusable(message, load, "clinc150", clinc, "train")
