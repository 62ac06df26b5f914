"""`uncollapse verify`: all pairs, listed pairs, LFW's list, and scores of another tool."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import roc_auc_score

import uncollapse as uc
from uncollapse.cli import app
from uncollapse.cli.errors import run

COSINE = ["--metric", "cosine"]


@pytest.fixture
def people(tmp_path, monkeypatch):
    """Four pictures each of six people, and a list of pairs as LFW has it: 2 folds of 3 and 3."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    rng = np.random.default_rng(0)
    labels = np.repeat([f"P_{c}" for c in "abcdef"], 4)
    names = np.array([f"{y}/{y}_{i % 4 + 1:04d}.jpg" for i, y in enumerate(labels)])
    x = rng.normal(size=(6, 8))[np.arange(24) // 4] + 0.8 * rng.normal(size=(24, 8))
    np.savez("named.npz", embeddings=x, labels=labels, names=names)
    np.savez("labelled.npz", embeddings=x, labels=labels)
    lines, pairs = ["2\t3"], []
    for fold in range(2):
        for c in range(3):
            p = 3 * fold + c
            lines.append(f"P_{'abcdef'[p]}\t{c + 1}\t4")
            pairs.append((4 * p + c, 4 * p + 3))
        for c in range(3):
            p, q = 3 * fold + c, (3 * fold + c + 1) % 6
            lines.append(f"P_{'abcdef'[p]}\t2\tP_{'abcdef'[q]}\t1")
            pairs.append((4 * p + 1, 4 * q))
    with open("pairs.txt", "w") as file:
        file.write("\n".join(lines) + "\n")
    return x, labels, names, np.array(pairs)


def written(words):
    assert run(app, ["verify", *words, "--json", "found.json"]) == 0
    with open("found.json") as file:
        return json.load(file)


def test_all_pairs_by_label_are_those_of_the_library(people, capsys):
    x, labels, _, _ = people
    found = written(["labelled.npz", "--metric", "euclidean", "--far", "0.1,0.01"])
    expected = uc.verification(x, labels, far=[0.1, 0.01], progress=False)
    for name in ("auc", "eer", "accuracy", "tar@0.1", "tar@0.01", "same", "different"):
        assert found[name] == expected.to_dict()[name]
    said = capsys.readouterr().out
    assert "TAR at FAR 1e-1" in said
    assert "all pairs of 24 rows, euclidean" in said
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.parametrize("file", ["named.npz", "labelled.npz"])
def test_the_list_of_lfw_is_read_with_its_folds(people, capsys, file):
    x, _, _, pairs = people
    found = written([file, "--pairs", "pairs.txt", "--far", "0.5", *COSINE])
    same = np.tile([True] * 3 + [False] * 3, 2)
    options = {"pairs": pairs, "same": same, "folds": np.repeat([0, 1], 6), "normalize": True}
    expected = uc.verification(x, far=[0.5], **options)
    assert found["auc"] == expected.auc
    assert found["folds"] == list(expected.folds)
    said = capsys.readouterr()
    assert ("no names" in said.err) == (file == "labelled.npz")
    assert "2 folds" in said.out


def test_a_table_of_pairs_by_name_or_by_row(people):
    x, labels, names, pairs = people
    same = labels[pairs[:, 0]] == labels[pairs[:, 1]]
    with open("names.csv", "w") as file:
        file.write("name1,name2,same\n")
        for (i, j), one in zip(pairs, same, strict=True):
            file.write(f"{names[i]},elsewhere/{names[j].split('/')[1]},{int(one)}\n")
    with open("rows.csv", "w") as file:
        file.write("first,second\n" + "\n".join(f"{i},{j}" for i, j in pairs))
    named = written(["named.npz", "--pairs", "names.csv", *COSINE])
    by_row = written(
        ["labelled.npz", "--pairs", "rows.csv", *COSINE]
    )  # the labels say who is the same
    assert named["auc"] == by_row["auc"]
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    cosine = (unit[pairs[:, 0]] * unit[pairs[:, 1]]).sum(1)
    assert named["auc"] == pytest.approx(roc_auc_score(same, cosine))
    assert named["tar@0.1"] is None


def test_scores_of_another_tool_need_no_embeddings(people, capsys):
    rng = np.random.default_rng(1)
    same = rng.random(80) < 0.5
    scores = rng.normal(size=80) + same
    with open("scores.csv", "w") as file:
        file.write("score,same,fold\n")
        rows = zip(scores, same, np.arange(80) // 20, strict=True)
        file.writelines(f"{s},{t},{fold}\n" for s, t, fold in rows)
    found = written(["scores.csv"])
    assert found["auc"] == pytest.approx(roc_auc_score(same, scores))
    assert found["unit"] == "score"
    assert len(found["folds"]) == 4
    assert "80 scored pairs" in capsys.readouterr().out


@pytest.mark.parametrize("ending", ["html", "png", "svg"])
def test_the_curve_is_a_page_or_a_plot(people, ending, capsys):
    assert run(app, ["verify", "labelled.npz", "--out", f"roc.{ending}"]) == 0
    assert f"wrote roc.{ending}" in capsys.readouterr().out
    if ending == "png":
        with Image.open("roc.png") as image:
            assert image.width > image.height > 100
        return
    with open(f"roc.{ending}", encoding="utf-8") as file:
        text = file.read()
    assert "false accept rate" in text
    assert ("TAR at FAR 1e-1" in text) == (ending == "html")


def test_pairs_whose_samples_are_missing_are_named_or_left_out(people, capsys):
    x, labels, names, _ = people
    np.savez("few.npz", embeddings=x[1:], labels=labels[1:], names=names[1:])
    assert run(app, ["verify", "few.npz", "--pairs", "pairs.txt"]) == 2
    said = capsys.readouterr().err
    assert "2 of 12 pairs name samples that few.npz does not have" in said
    assert "the first P_a 1 and P_a 4; it has names such as 'P_a/P_a_0002.jpg'" in said
    assert "--skip-missing" in said
    words = ["verify", "few.npz", "--pairs", "pairs.txt", "--skip-missing"]
    assert run(app, words) == 0
    assert "10 pairs of pairs.txt (2 left out: samples missing)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text", "sentence"),
    [
        (["--pairs", "p.csv"], "x,y\n1,2\n", "no column 'first'.*there is: 'x', 'y'"),
        (["--pairs", "p.csv"], "a,b,same\n1,2,maybe\n", "'same' holds 'maybe' in row 1"),
        (["--pairs", "p.csv"], "a,b\n", "no pairs below its header"),
        (["--pairs", "p.csv"], "a,b,same\n0,1,1\n", "same: expected at least one of each"),
        (["--pairs", "p.txt"], "hello\n", "first line is"),
        (["--pairs", "p.txt"], "1\t2\nP_a\t1\t2\n", "has 1 pairs; its first line says 4"),
        (["--pairs", "p.txt"], "1\t1\nP_a\t1\t2\nP_a\t1\n", "line 3 is 'P_a 1'"),
        (["--pairs", "p.md"], "", "ending in .parquet, .csv, .txt"),
        (["--pairs", "gone.csv"], "", "gone.csv: no such file"),
        (["--far", "2"], "", "--far: expected numbers between 0 and 1"),
        (["--out", "roc.pdf"], "", "--out: expected a file ending in .html, .png, .svg"),
    ],
)
def test_bad_input_is_a_sentence(people, capsys, words, text, sentence):
    import re
    from pathlib import Path

    place = Path(words[1])
    if text:
        place.write_text(text)
    elif place.suffix == ".md":
        place.touch()
    assert run(app, ["verify", "labelled.npz", *words]) == 2
    assert re.search(sentence, capsys.readouterr().err)


def test_a_file_without_labels_needs_pairs(people, capsys):
    np.save("bare.npy", people[0])
    assert run(app, ["verify", "bare.npy"]) == 2
    assert "--pairs, or labels" in capsys.readouterr().err


def test_a_name_that_two_rows_have_is_refused(people, capsys):
    x, labels, names, _ = people
    twice = names.copy()
    twice[1] = twice[0]
    np.savez("twice.npz", embeddings=x, labels=labels, names=twice)
    assert run(app, ["verify", "twice.npz", "--pairs", "pairs.txt"]) == 2
    assert "several rows are named 'P_a_0001'" in capsys.readouterr().err
