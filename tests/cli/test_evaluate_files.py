"""`uncollapse evaluate FILE`: the figures are those of the library, whatever the file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import uncollapse as uc
from uncollapse.cli import app
from uncollapse.cli.errors import run
from uncollapse.metrics import ReRanking, retrieval


@pytest.fixture
def rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(1, 9), 15)
    return {
        "embeddings": (rng.normal(size=(9, 5))[labels] + rng.normal(size=(120, 5))).astype("f4"),
        "labels": labels,
        "fine_labels": np.arange(120) % 3,
        "cam": np.arange(120) % 4,
        "role": np.array(["query", "gallery", "gallery", "train"])[np.arange(120) // 2 % 4],
    }


def evaluated(tmp_path: Path, *words: str) -> dict[tuple[str, str], dict]:
    out = tmp_path / "scores.json"
    assert run(app, ["evaluate", *words, "--json", str(out)]) == 0
    found = json.loads(out.read_text())["figures"]
    return {(one["by"], one["name"]): one for one in found}


@pytest.mark.parametrize("ending", ["npz", "npy", "safetensors", "csv", "parquet"])
def test_figures_of_any_file_are_those_of_the_library(tmp_path, rows, ending):
    path, x = tmp_path / f"z.{ending}", rows["embeddings"]
    words = [str(path)]
    if ending == "npz":
        np.savez(path, embeddings=x, labels=rows["labels"])
    elif ending == "npy":
        np.save(path, x)
        np.save(tmp_path / "y.npy", rows["labels"])
        words += ["--labels", str(tmp_path / "y.npy")]
    elif ending == "safetensors":
        save_file({"embeddings": torch.tensor(x), "labels": torch.tensor(rows["labels"])}, path)
    else:
        pandas = pytest.importorskip("pandas")
        table = pandas.DataFrame({f"f{i}": x[:, i] for i in range(5)} | {"kind": rows["labels"]})
        table.to_csv(path, index=False) if ending == "csv" else table.to_parquet(path)
        words += ["--label", "kind"]
    found = evaluated(tmp_path, *words, "-k", "1,3")
    expected = uc.retrieval(x.astype(float), rows["labels"], ks=(1, 3), full_map=True)
    for name in ("recall@1", "recall@3", "mAP", "map@r", "r_precision", "mrr"):
        line = found["label", name]
        assert line["value"] == pytest.approx(expected.to_dict()[name], abs=1e-9)
        interval = uc.confidence(expected, name)
        assert (line["low"], line["high"]) == pytest.approx((interval.low, interval.high))
        assert line["over"] == "120 queries"
    assert found["label", "nmi"]["value"] == uc.clustering(x.astype(float), rows["labels"]).nmi
    assert found["label", "nmi"]["over"] == "120 rows, 8 clusters"


def test_fine_labels_cosine_and_nmi_plus(tmp_path, rows):
    np.savez(tmp_path / "z.npz", **rows)
    words = [str(tmp_path / "z.npz"), "--metric", "cosine", "--clusters", "3", "-k", "1"]
    found = evaluated(tmp_path, *words)
    x = rows["embeddings"].astype(float)
    coarse = retrieval(x, rows["labels"], ks=(1,), normalize=True)
    fine = retrieval(x, 3 * rows["labels"] + rows["fine_labels"], ks=(1,), normalize=True)
    assert found["label", "recall@1"]["value"] == pytest.approx(coarse.recall[1])
    assert found["fine label", "recall@1"]["value"] == pytest.approx(fine.recall[1])
    assert found["fine label", "map@r"]["value"] == pytest.approx(fine.map_at_r)
    plus = uc.clustering(x, rows["labels"], multiplier=3, normalize=True)
    assert found["label", "nmi+"]["value"] == pytest.approx(plus.nmi)


def test_a_second_file_is_the_gallery(tmp_path, rows, capsys):
    x, y, role = rows["embeddings"].astype(float), rows["labels"], rows["role"]
    q, g = role == "query", role == "gallery"
    expected = uc.retrieval(x[q], y[q], x[g], y[g], ks=(1,), full_map=True)
    for part, keep in (("q", q), ("g", g)):
        np.savez(tmp_path / f"{part}.npz", **{name: v[keep] for name, v in rows.items()})
    files = [str(tmp_path / "q.npz"), "--gallery", str(tmp_path / "g.npz"), "-k", "1"]
    found = evaluated(tmp_path, *files)
    assert "queries x 5 against 60 rows of g.npz" in " ".join(capsys.readouterr().out.split())
    for name in ("recall@1", "mAP", "map@r"):
        assert found["label", name]["value"] == pytest.approx(expected.to_dict()[name])
    assert ("label", "nmi") not in found  # unless it is asked for
    fine = y * 3 + rows["fine_labels"]
    by_fine = uc.retrieval(x[q], fine[q], x[g], fine[g], ks=(1,))
    assert found["fine label", "recall@1"]["value"] == pytest.approx(by_fine.recall[1])


@pytest.mark.parametrize("words", [False, True], ids=["numbers", "words"])
def test_cameras_mean_the_protocol_of_market_1501(tmp_path, rows, capsys, words):
    x, y, cam = rows["embeddings"].astype(float), rows["labels"].copy(), rows["cam"]
    y[y == 7], y[y == 8] = -1, 0
    labels = np.array([f"{i:04d}" if i >= 0 else str(i) for i in y]) if words else y
    for part, keep in (("q", (y > 0) & (cam == 0)), ("g", cam > -1)):
        np.savez(tmp_path / f"{part}.npz", embeddings=x[keep], labels=labels[keep], cam=cam[keep])
    q = (y > 0) & (cam == 0)
    expected = uc.reid(x[q], y[q], cam[q], x, y, cam, ks=(1, 2))
    files = [str(tmp_path / "q.npz"), "--gallery", str(tmp_path / "g.npz")]
    found = evaluated(tmp_path, *files, "--cameras", "cam", "-k", "1,2")
    for name in ("mAP", "cmc@1", "cmc@2", "mINP"):
        assert found["label", name]["value"] == pytest.approx(expected.to_dict()[name])
    said = capsys.readouterr().out
    assert "15 junk rows (-1) left out" in said
    assert "15 distractors (0)" in said
    # One file: each person against all rows, itself out as the same camera is.
    alone = evaluated(tmp_path, str(tmp_path / "g.npz"), "--cameras", "cam", "--clusters", "1")
    whole = uc.reid(x[y > 0], y[y > 0], cam[y > 0], x, y, cam)
    assert alone["label", "mAP"]["value"] == pytest.approx(whole.map)
    assert alone["label", "mAP"]["over"] == "90 queries"
    nmi = uc.clustering(x[y > 0], y[y > 0]).nmi
    assert alone["label", "nmi"]["value"] == pytest.approx(nmi)


def two_files(tmp_path, rows) -> list[str]:
    for part, keep in (("q", rows["cam"] == 0), ("g", rows["cam"] > 0)):
        some = {name: rows[name][keep] for name in ("embeddings", "labels", "cam")}
        np.savez(tmp_path / f"{part}.npz", **some)
    return [str(tmp_path / "q.npz"), "--gallery", str(tmp_path / "g.npz"), "--cameras", "cam"]


def test_re_ranked_figures_stand_beside_the_plain_ones(tmp_path, rows, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    files = two_files(tmp_path, rows)
    found = evaluated(tmp_path, *files, "--rerank", "-k", "1,5")
    said = capsys.readouterr().out
    x, y, cam = rows["embeddings"].astype(float), rows["labels"], rows["cam"]
    q, g = cam == 0, cam > 0
    sides = (x[q], y[q], cam[q], x[g], y[g], cam[g])
    how = ReRanking()
    for prefix, settings in (("", None), ("reranked/", how)):
        expected = uc.reid(*sides, ks=(1, 5), rerank=settings)
        for name in ("mAP", "cmc@1", "cmc@5", "mINP"):
            line = found["re-ranked" if settings else "label", prefix + name]
            assert line["value"] == pytest.approx(expected.to_dict()[name])
            interval = uc.confidence(expected, name)
            assert (line["low"], line["high"]) == pytest.approx((interval.low, interval.high))
    written = json.loads((tmp_path / "scores.json").read_text())["rerank"]
    assert written == {"k1": 20, "k2": 6, "lambda_value": 0.3}
    assert "k1 = 20, k2 = 6, λ = 0.3" in said
    pair = [found["label", "mAP"]["value"], found["re-ranked", "reranked/mAP"]["value"]]
    rows_of = [one for one in said.splitlines() if "mAP" in one]
    assert [f"{100 * value:.2f}" in row for value, row in zip(pair, rows_of, strict=True)]
    assert "re-ranked" in rows_of[1]
    assert max(len(one) for one in said.splitlines() if "─" in one or "│" in one) <= 80


def test_re_ranking_leaves_room_for_nmi(tmp_path, rows, capsys):
    found = evaluated(tmp_path, *two_files(tmp_path, rows), "--rerank", "--clusters", "1")
    assert ("label", "nmi") in found
    assert "NMI" in capsys.readouterr().out


def test_a_limit_is_said_in_the_line_of_the_figure(tmp_path, rows, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    np.savez(tmp_path / "z.npz", embeddings=rows["embeddings"], labels=rows["labels"])
    assert run(app, ["evaluate", str(tmp_path / "z.npz"), "--max-rows", "50"]) == 0
    said = capsys.readouterr().out
    line = next(one for one in said.splitlines() if "R@1 " in one)
    assert "50 of 120 queries" in line
    nmi = next(one for one in said.splitlines() if "NMI" in one)
    assert "50 of 120 rows, 8 clusters" in nmi
    assert max(map(len, said.splitlines())) <= 80


def test_queries_without_a_match_are_counted(tmp_path, rows):
    labels = rows["labels"].copy()
    labels[0] = 99
    np.savez(tmp_path / "z.npz", embeddings=rows["embeddings"], labels=labels)
    found = evaluated(tmp_path, str(tmp_path / "z.npz"), "-k", "1")
    line = found["label", "recall@1"]
    assert line["over"] == "120 queries, less 1 without a match"
    result = uc.retrieval(rows["embeddings"].astype(float), labels, ks=(1,))
    expected = uc.confidence(result, "recall@1")
    assert (line["low"], line["high"]) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--cameras", "camera"], r"--cameras camera: no such column.*did you mean 'cam'"),
        (["--metric", "cosin"], "--metric: .*did you mean 'cosine'"),
        (["-k", "one"], "-k: expected whole numbers"),
        (["--split", "test"], "--split is only for runs"),
        (["--best"], "--best is only for runs"),
        (["--gallery", "narrow.npz"], "--gallery: expected a file of 5 dimensions"),
        (["--gallery", "bare.npz"], "no labels among embeddings, other"),
        (["--gallery", "narrow.npz", "--cameras", "cam"], "narrow.npz: --cameras cam: no such"),
        (["--rerank"], "--rerank needs --cameras and --gallery"),
        (["--rerank", "--cameras", "cam"], "--rerank needs --cameras and --gallery"),
    ],
)
def test_bad_input_names_option_and_column_and_what_there_is(
    tmp_path, rows, capsys, monkeypatch, words, sentence
):
    monkeypatch.chdir(tmp_path)
    np.savez("z.npz", **rows)
    np.savez("narrow.npz", embeddings=np.ones((4, 2)), labels=np.arange(4))
    np.savez("bare.npz", embeddings=np.ones((4, 5)), other=np.arange(4))
    assert run(app, ["evaluate", "z.npz", *words]) == 2
    said = capsys.readouterr().err
    pattern = sentence.replace("(", r"\(").replace(")", r"\)")
    assert re.search(pattern, said), said


def test_a_column_of_a_table_is_no_dimension(tmp_path, rows, capsys):
    lines = ["f0,f1,f2,f3,f4,label,cam"]
    for x, y, c in zip(rows["embeddings"], rows["labels"], rows["cam"], strict=True):
        lines.append(",".join(map(str, [*x, y, c])))
    path = tmp_path / "z.csv"
    path.write_text("\n".join(lines))
    found = evaluated(tmp_path, str(path), "--cameras", "cam")
    x = np.array([list(map(float, one.split(",")[:5])) for one in lines[1:]])
    expected = uc.reid(x, rows["labels"], rows["cam"], x, rows["labels"], rows["cam"])
    assert found["label", "mAP"]["value"] == pytest.approx(expected.map)


def test_options_of_files_are_refused_beside_a_run(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    assert run(app, ["evaluate", str(tmp_path / "run"), "--cameras", "cam"]) == 2
    assert "--cameras is only for files of embeddings" in capsys.readouterr().err


def test_recall_at_1_is_that_of_a_flat_index(tmp_path, rows):
    faiss = pytest.importorskip("faiss")
    np.savez(tmp_path / "z.npz", embeddings=rows["embeddings"], labels=rows["labels"])
    index = faiss.IndexFlatL2(5)
    index.add(rows["embeddings"])
    _, near = index.search(rows["embeddings"], 2)  # the first is the row itself
    expected = (rows["labels"][near[:, 1]] == rows["labels"]).mean()
    found = evaluated(tmp_path, str(tmp_path / "z.npz"))
    assert found["label", "recall@1"]["value"] == pytest.approx(expected)


def test_what_is_taken_by_default_is_seen_in_the_help(capsys):
    assert run(app, ["evaluate", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "[default: each row searches all others]" in shown
