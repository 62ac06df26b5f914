"""`uncollapse compare`: rows are joined, what changed is said, gates fail, a page is written."""

import json

import numpy as np
import pytest


@pytest.fixture
def files(folder):
    """old.npz; new.npz, wider and in another order, where class c2 is lost; both as .npy."""
    rng = np.random.default_rng(0)
    ids = np.arange(240) % 6
    z = 2 * rng.normal(size=(6, 8))[ids] + rng.normal(size=(240, 8))
    new = z @ np.linalg.qr(rng.normal(size=(12, 12)))[0][:8]
    new[ids == 2] = 6 * rng.normal(size=(40, 12))
    labels = np.array([f"c{i}" for i in ids])
    names = np.array([f"text [b]{i}[/b]" for i in range(240)])
    order = rng.permutation(240)
    np.savez("old.npz", embeddings=z.astype(np.float32), labels=labels, names=names)
    np.savez("new.npz", embeddings=new[order].astype(np.float16), names=names[order])
    np.save("old.npy", z)
    np.save("new.npy", new)
    np.save("y.npy", labels)
    return folder


def test_shuffled_rows_are_joined_by_name_and_the_class_that_lost_is_listed_first(files, cli):
    said = cli("compare", "old.npz", "new.npz")
    assert "240 rows, joined by name" in said.text
    assert "R@1 falls" in said.text
    assert "pairs of one label" in said.text
    listed = [line.split() for line in said.out.splitlines()]
    classes = [words[0] for words in listed if words and words[0] in {f"c{i}" for i in range(6)}]
    assert classes[0] == "c2"
    assert "[b]" in said.out
    by_row = cli("compare", "old.npy", "new.npy", "--labels", "y.npy").text
    assert "240 rows, joined row by row" in by_row
    assert "R@1 falls" in by_row


def test_figures_are_written_and_rules_on_them_fail_the_command(files, cli):
    words = ["compare", "old.npz", "new.npz", "--metric", "cosine", "--threshold", "0.9"]
    cli(*words, "--json", "found.json", "--fail-if", "R@1<10%")
    found = json.loads((files / "found.json").read_text())
    figures = found["figures"]
    assert figures["R@1_drop"] == pytest.approx(figures["R@1_old"] - figures["R@1"])
    assert figures["threshold_old"] == pytest.approx(0.9)
    assert found["verdicts"]["old"] == "healthy"
    assert found["joined"] == "joined by name"
    said = cli(*words, "--fail-if", "r@1_drop > 1%", "--fail-if", "kept_neighbours<0.99", code=1)
    assert said.err.count("failed:") == 2
    assert "kept_neighbours" in cli(*words, "--fail-if", "kept_neighbour<1", code=2).err


def test_without_labels_neighbours_and_shape_alone_are_compared(files, cli):
    said = cli("compare", "old.npy", "new.npy", "-k", "3", "--fail-if", "kept_neighbours<0.1").text
    assert "of the 3 nearest neighbours are kept" in said
    assert "CKA" in said
    assert "R@1 falls" not in said
    gate = cli("compare", "old.npy", "new.npy", "--fail-if", "R@1<0", code=1)
    assert "R@1 is not known" in gate.err


def test_the_page_has_both_verdicts_both_maps_and_what_lost(files, cli):
    cli("compare", "old.npz", "new.npz", "--html", "page.html")
    page = (files / "page.html").read_text()
    assert "old.npz → new.npz" in page
    named = ("Old: ", "New: ", "turned onto the old ones", "Classes that lost most", "text [b]")
    assert all(words in page for words in named)
    assert "we cannot tell whether this is small" in page
    assert "--reference" not in page  # an option of another command


def test_rows_that_are_invalid_in_one_file_are_left_out_of_both(files, cli):
    words = ["compare", "old.npy", "new.npy", "--labels", "y.npy", "--json"]
    z, kept = np.load("new.npy"), np.delete(np.arange(240), [3, 200])
    z[[3, 200]] = np.nan
    np.save("new.npy", z)
    assert "238 rows, joined row by row" in cli(*words, "holed.json").text
    for name in ("old.npy", "new.npy", "y.npy"):
        np.save(name, np.load(name)[kept])
    cli(*words, "clean.json")
    holed, clean = (json.loads((files / f"{name}.json").read_text()) for name in ("holed", "clean"))
    assert holed == clean


def test_rows_of_zeros_have_no_cosine_and_are_left_out_of_it_alone(files, cli):
    z = np.load("new.npy")
    z[7] = 0
    np.save("new.npy", z)
    assert "240 rows, joined" in cli("compare", "old.npy", "new.npy").text
    said = cli("compare", "old.npy", "new.npy", "--metric", "cosine").text
    assert "1 of 240 rows is zero" in said
    assert "239 rows, joined" in said


def test_names_of_one_file_only_are_left_out_and_said(files, cli):
    new = dict(np.load("new.npz"))
    np.savez("new.npz", **{name: values[:-40] for name, values in new.items()})
    said = cli("compare", "old.npz", "new.npz").text
    assert "200 rows, joined by name" in said
    assert "40 rows of old.npz, 0 of new.npz" in said


def test_labels_that_differ_are_said(files, cli):
    new = dict(np.load("new.npz"))
    np.savez("new.npz", **new, labels=np.full(240, "c0"))
    assert "200 rows have another label in new.npz" in cli("compare", "old.npz", "new.npz").text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda new: {"embeddings": new["embeddings"][:9]}, "9 rows"),
        (lambda new: new | {"names": np.full(240, "same")}, "239 names that others have too"),
        (lambda new: new | {"names": np.arange(240)}, "0 names in common"),
    ],
)
def test_rows_that_cannot_be_joined_are_refused(files, cli, change, message):
    np.savez("other.npz", **change(dict(np.load("new.npz"))))
    assert message in cli("compare", "old.npz", "other.npz", code=2).err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--threshold", "2", "--metric", "cosine"], "threshold"),
        (["--metric", "dot"], "'euclidean', 'cosine'"),
        (["--fail-if", "R@1"], "--fail-if"),
    ],
)
def test_wrong_options_are_refused(files, cli, words, message):
    assert message in cli("compare", "old.npz", "new.npz", *words, code=2).err
