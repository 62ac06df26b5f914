"""`uncollapse verify`: all pairs, listed pairs, LFW's list, and scores of another tool."""

import json

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import uncollapse as uc

COSINE = ["--metric", "cosine"]


@pytest.fixture
def people(folder):
    """Four pictures each of six people, and a list of pairs as LFW has it: 2 folds of 3 and 3."""
    rng = np.random.default_rng(0)
    who = [f"P_{c}" for c in "abcdef"]
    labels = np.repeat(who, 4)
    names = np.array([f"{y}/{y}_{i % 4 + 1:04d}.jpg" for i, y in enumerate(labels)])
    x = rng.normal(size=(6, 8))[np.arange(24) // 4] + 0.8 * rng.normal(size=(24, 8))
    np.savez("named.npz", embeddings=x, labels=labels, names=names)
    np.savez("labelled.npz", embeddings=x, labels=labels)
    lines, pairs = ["2\t3"], []
    for fold in range(2):
        people = range(3 * fold, 3 * fold + 3)
        lines += [f"{who[p]}\t{p % 3 + 1}\t4" for p in people]
        pairs += [(4 * p + p % 3, 4 * p + 3) for p in people]
        lines += [f"{who[p]}\t2\t{who[(p + 1) % 6]}\t1" for p in people]
        pairs += [(4 * p + 1, 4 * ((p + 1) % 6)) for p in people]
    (folder / "pairs.txt").write_text("\n".join(lines) + "\n")
    return x, labels, names, np.array(pairs)


@pytest.fixture
def verified(cli):
    """The figures of the JSON file, and what was printed."""

    def verify(*words):
        said = cli("verify", *words, "--json", "figures.json")
        with open("figures.json") as file:
            return json.load(file), said

    return verify


def test_all_pairs_by_label_are_those_of_the_library(people, verified):
    x, labels, _, _ = people
    figures, said = verified("labelled.npz", "--metric", "euclidean", "--far", "0.1,0.01")
    expected = uc.verification(x, labels, far=[0.1, 0.01], progress=False).to_dict()
    for name in ("auc", "eer", "accuracy", "tar@0.1", "tar@0.01", "same", "different"):
        assert figures[name] == expected[name]
    assert "all pairs of 24 rows, euclidean" in said.text


@pytest.mark.parametrize("file", ["named.npz", "labelled.npz"])
def test_the_list_of_lfw_is_read_with_its_folds(people, verified, file):
    x, _, _, pairs = people
    figures, said = verified(file, "--pairs", "pairs.txt", "--far", "0.5", *COSINE)
    same = np.tile([True] * 3 + [False] * 3, 2)
    options = {"pairs": pairs, "same": same, "folds": np.repeat([0, 1], 6), "normalize": True}
    expected = uc.verification(x, far=[0.5], **options)
    assert figures["auc"] == expected.auc
    assert figures["folds"] == list(expected.folds)
    assert ("no names" in said.err) == (file == "labelled.npz")
    assert "2 folds" in said.out


def test_a_table_of_pairs_by_name_or_by_row(people, verified, folder):
    x, labels, names, pairs = people
    same = labels[pairs[:, 0]] == labels[pairs[:, 1]]
    lines = ["name1,name2,same"]
    for (i, j), truth in zip(pairs, same, strict=True):
        lines.append(f"{names[i]},elsewhere/{names[j].split('/')[1]},{int(truth)}")
    (folder / "names.csv").write_text("\n".join(lines))
    (folder / "rows.csv").write_text("first,second\n" + "\n".join(f"{i},{j}" for i, j in pairs))
    named, _ = verified("named.npz", "--pairs", "names.csv", *COSINE)
    by_row, _ = verified("labelled.npz", "--pairs", "rows.csv", *COSINE)  # labels say who is same
    assert named["auc"] == by_row["auc"]
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    cosine = (unit[pairs[:, 0]] * unit[pairs[:, 1]]).sum(1)
    assert named["auc"] == pytest.approx(roc_auc_score(same, cosine))
    assert named["tar@0.1"] is None


def test_scores_of_another_tool_need_no_embeddings(folder, verified):
    rng = np.random.default_rng(1)
    same = rng.random(80) < 0.5
    scores = rng.normal(size=80) + same
    with open("scores.csv", "w") as file:
        file.write("score,same,fold\n")
        rows = zip(scores, same, np.arange(80) // 20, strict=True)
        file.writelines(f"{s},{t},{fold}\n" for s, t, fold in rows)
    figures, said = verified("scores.csv")
    assert figures["auc"] == pytest.approx(roc_auc_score(same, scores))
    assert figures["unit"] == "score"
    assert len(figures["folds"]) == 4
    assert "80 scored pairs" in said.out


@pytest.mark.parametrize("ending", ["html", "png", "svg"])
def test_the_curve_is_a_page_or_a_plot(people, cli, folder, ending):
    assert f"wrote roc.{ending}" in cli("verify", "labelled.npz", "--out", f"roc.{ending}").out
    content = (folder / f"roc.{ending}").read_bytes()
    assert (b"\x89PNG" if ending == "png" else b"false accept rate") in content
    assert (b"TAR at FAR 1e-1" in content) == (ending == "html")


def test_pairs_whose_samples_are_missing_are_named_or_left_out(people, cli):
    x, labels, names, _ = people
    np.savez("few.npz", embeddings=x[1:], labels=labels[1:], names=names[1:])
    said = cli("verify", "few.npz", "--pairs", "pairs.txt", code=2).err
    assert "2 of 12 pairs" in said
    assert "the first P_a 1 and P_a 4" in said
    assert "--skip-missing" in said
    said = cli("verify", "few.npz", "--pairs", "pairs.txt", "--skip-missing").text
    assert "10 pairs of pairs.txt (2 left out: samples missing)" in said


@pytest.mark.parametrize(
    ("words", "text", "sentence"),
    [
        (["--pairs", "p.csv"], "x,y\n1,2\n", "there is: 'x', 'y'"),
        (["--pairs", "p.csv"], "a,b,same\n1,2,maybe\n", "'same' holds 'maybe' in row 1"),
        (["--pairs", "p.csv"], "a,b\n", "no pairs below its header"),
        (["--pairs", "p.csv"], "a,b,same\n0,1,1\n", "same: expected at least one of each"),
        (["--pairs", "p.txt"], "hello\n", "first line is"),
        (["--pairs", "p.txt"], "1\t2\nP_a\t1\t2\n", "has 1 pairs; its first line says 4"),
        (["--pairs", "p.txt"], "1\t1\nP_a\t1\t2\nP_a\t1\n", "line 3 is 'P_a 1'"),
        (["--pairs", "p.md"], "x", "ending in .parquet, .csv, .txt"),
        (["--pairs", "gone.csv"], "", "gone.csv: no such file"),
        (["--far", "x"], "", "far: expected numbers between 0 and 1"),
        (["--out", "roc.pdf"], "", "--out: expected a file ending in .html, .png, .svg"),
    ],
)
def test_bad_input_is_a_sentence(people, cli, folder, words, text, sentence):
    if text:
        (folder / words[1]).write_text(text)
    assert sentence in cli("verify", "labelled.npz", *words, code=2).err


def test_labels_that_are_missing_and_names_that_two_rows_have_are_refused(people, cli):
    x, labels, names, _ = people
    np.save("bare.npy", x)
    assert "--pairs, or labels" in cli("verify", "bare.npy", code=2).err
    names[1] = names[0]
    np.savez("twice.npz", embeddings=x, labels=labels, names=names)
    told = cli("verify", "twice.npz", "--pairs", "pairs.txt", code=2).err
    assert "several rows are named 'P_a_0001'" in told
