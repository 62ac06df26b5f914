"""Options that commands on files share: columns of other files, and where output goes."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

LABELS = np.repeat(np.arange(8), 10)


@pytest.fixture
def rows(folder):
    """Separate classes with names, and a table of the same names in another order."""
    rng = np.random.default_rng(0)
    x = 6 * rng.normal(size=(8, 5))[LABELS] + rng.normal(size=(80, 5))
    names = np.array([f"p{i:02d}" for i in range(80)])
    np.savez("z.npz", embeddings=x.astype(np.float32), names=names)
    np.save("z.npy", x.astype(np.float32))
    lines = [f"{names[i]},SKU {i},cup no. {i},{LABELS[i]}" for i in rng.permutation(80)]
    Path("labels.csv").write_text("\n".join(["name,sku,description,label", *lines]))
    return x


def test_labels_in_another_order_are_joined_by_name_and_that_is_said(rows, cli):
    by_name = cli("evaluate", "z.npz", "--labels", "labels.csv", "--json", "scores.json")
    assert "note: labels.csv joined by names = name: 80 of 80 rows" in by_name.err
    assert json.loads(Path("scores.json").read_text())["figures"][0]["value"] == 1.0
    by_row = cli("evaluate", "z.npy", "--labels", "labels.csv", "--json", "scores.json")
    assert "note: labels.csv joined by row" in by_row.err
    assert json.loads(Path("scores.json").read_text())["figures"][0]["value"] < 0.5


def test_ids_of_the_labels_file_or_a_third_one_name_the_rows(rows, cli):
    out = cli("search", "z.npz", "-k", "1", "--labels", "labels.csv", "--id", "sku", "SKU 7").out
    assert "SKU 7" in out
    out = cli("search", "z.npz", "-k", "1", "--info", "labels.csv", "--id", "sku", "SKU 7").out
    assert "SKU 7" in out
    said = cli("search", "z.npz", "--info", "labels.csv", "--id", "skus", code=2).err
    assert "--id skus: no such column (did you mean 'sku'?)" in said


@pytest.mark.skipif(os.name != "posix", reason="a device is a file on POSIX only")
def test_figures_may_go_to_a_device_or_through_a_link(rows, cli):
    words = ("evaluate", "z.npz", "--labels", "labels.csv", "--json")
    cli(*words, os.devnull)
    assert Path(os.devnull).is_char_device()
    Path("far.json").write_text("old")
    Path("near.json").symlink_to("far.json")
    cli(*words, "near.json")
    assert Path("near.json").is_symlink()
    assert json.loads(Path("far.json").read_text())["queries"] == 80


@pytest.mark.parametrize(
    "words", [("suspects", "--html"), ("suspects", "--csv"), ("evaluate", "--json")]
)
def test_a_folder_is_no_output_file_and_no_bug(rows, cli, words):
    command, option = words
    said = cli(command, "z.npz", "--labels", "labels.csv", option, ".", code=2).err
    assert "bug" not in said
    assert "a folder" in said or "is a directory" in said
