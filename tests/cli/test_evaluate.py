"""`uncollapse evaluate`: the figures are those of the library, whatever the file."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from typer.main import get_command

import uncollapse as uc
from support.runs import copy_of
from uncollapse.cli import app
from uncollapse.metrics import ReRanking
from uncollapse.metrics.ranking import QUERIES
from uncollapse.training import Run
from uncollapse.training.measures import write_measures


@pytest.fixture
def rows(folder):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(1, 9), 15)
    return {
        "embeddings": (rng.normal(size=(9, 5))[labels] + rng.normal(size=(120, 5))).astype("f4"),
        "labels": labels,
        "fine_labels": np.arange(120) % 3,
        "cam": np.arange(120) % 4,
    }


@pytest.fixture
def evaluated(cli):
    """The lines of the JSON file by kind of labels and name; and what was printed."""

    def evaluate(*words):
        said = cli("evaluate", *words, "--json", "scores.json").out
        with open("scores.json") as file:
            lines = json.load(file)["figures"]
        return {(line["by"], line["name"]): line for line in lines}, said

    return evaluate


def save_parts(rows, **parts):
    """A file for each name, of the rows that its mask keeps."""
    for part, keep in parts.items():
        np.savez(f"{part}.npz", **{name: values[keep] for name, values in rows.items()})


def assert_same(lines, by, expected, names, prefix=""):
    """Values and intervals are those of the library's result."""
    for name in names:
        line, interval = lines[by, prefix + name], uc.confidence(expected, name)
        assert line["value"] == pytest.approx(expected.to_dict()[name], abs=1e-9)
        assert (line["low"], line["high"]) == pytest.approx((interval.low, interval.high))


@pytest.mark.parametrize("words", [["z.npy", "--labels", "y.npy"], ["z.npz", "--labels", "kind"]])
def test_figures_of_any_file_are_those_of_the_library(rows, evaluated, words):
    x, y = rows["embeddings"], rows["labels"]
    np.savez("z.npz", embeddings=x, kind=y)
    np.save("z.npy", x)
    np.save("y.npy", y)
    lines, _ = evaluated(*words, "-k", "1,3")
    expected = uc.retrieval(x.astype(float), y, ks=(1, 3), full_map=True)
    names = ("recall@1", "recall@3", "mAP", "map@r", "r_precision", "mrr")
    assert_same(lines, "label", expected, names)
    assert lines["label", "recall@1"]["over"] == "all 120 rows"
    assert lines["label", "nmi"]["value"] == uc.clustering(x.astype(float), y).nmi
    assert lines["label", "nmi"]["over"] == "all 120 rows, 8 clusters"


@pytest.mark.slow
def test_fine_labels_cosine_and_nmi_plus(rows, evaluated):
    np.savez("z.npz", **rows)
    lines, _ = evaluated("z.npz", "--metric", "cosine", "--clusters", "2", "-k", "1")
    x, fine = rows["embeddings"].astype(float), 3 * rows["labels"] + rows["fine_labels"]
    for by, labels in (("label", rows["labels"]), ("fine label", fine)):
        expected = uc.retrieval(x, labels, ks=(1,), normalize=True)
        assert_same(lines, by, expected, ("recall@1", "map@r"))
    plus = uc.clustering(x, rows["labels"], multiplier=2, normalize=True)
    assert lines["label", "nmi+"]["value"] == pytest.approx(plus.nmi)
    assert "nmi" not in {name for _, name in evaluated("z.npz", "--clusters", "0")[0]}


@pytest.mark.slow
def test_a_second_file_is_the_gallery(rows, evaluated, cli):
    x, y = rows["embeddings"].astype(float), rows["labels"]
    q = np.arange(120) // 2 % 4 == 0
    fine = y * 3 + rows["fine_labels"]
    save_parts(rows, q=q, g=~q)
    lines, said = evaluated("q.npz", "--gallery", "g.npz", "-k", "1", "--max-rows", "30")
    assert "30 queries x 5 against 90 rows of g.npz" in " ".join(said.split())
    for by, labels in (("label", y), ("fine label", fine)):
        expected = uc.retrieval(x[q], labels[q], x[~q], labels[~q], ks=(1,), full_map=True)
        assert_same(lines, by, expected, ("recall@1", "mAP", "map@r"))
    assert ("label", "nmi") not in lines  # unless it is asked for
    lines, _ = evaluated("q.npz", "--gallery", "g.npz", "--max-rows", "10")
    assert lines["label", "mAP"]["over"] == "a sample of 10 of 30 rows"
    np.save("y.npy", y[q])
    beside, _ = evaluated("q.npz", "--labels", "y.npy", "--gallery", "g.npz", "--max-rows", "10")
    assert beside["label", "mAP"] == lines["label", "mAP"]  # the gallery has its labels in it
    words = ["evaluate", "q.npz", "--labels", "labels", "--labels", "y.npy", "--gallery", "g.npz"]
    assert "both files need a column" in cli(*words, code=2).err


@pytest.mark.parametrize("words", [False, True], ids=["numbers", "words"])
def test_cameras_mean_the_protocol_of_market_1501(rows, evaluated, words):
    x, y, cam = rows["embeddings"].astype(float), rows["labels"].copy(), rows["cam"]
    y[y == 7], y[y == 8] = -1, 0
    labels = np.array([f"{i:04d}" if i >= 0 else str(i) for i in y]) if words else y
    q = (y > 0) & (cam == 0)
    save_parts({"embeddings": x, "labels": labels, "cam": cam}, q=q, g=cam > -1)
    lines, said = evaluated("q.npz", "--gallery", "g.npz", "--cameras", "cam", "-k", "1,2")
    expected = uc.reid(x[q], y[q], cam[q], x, y, cam, ks=(1, 2))
    assert_same(lines, "label", expected, ("mAP", "cmc@1", "cmc@2", "mINP"))
    assert "15 junk rows (-1) left out; 15 distractors (0)" in " ".join(said.split())
    # One file: each person against all rows, itself out as the same camera is.
    lines, _ = evaluated("g.npz", "--cameras", "cam", "--clusters", "1")
    whole = uc.reid(x[y > 0], y[y > 0], cam[y > 0], x, y, cam)
    assert_same(lines, "label", whole, ("mAP",))
    assert lines["label", "mAP"]["over"] == "all 90 rows"
    nmi = uc.clustering(x[y > 0], y[y > 0]).nmi
    assert lines["label", "nmi"]["value"] == pytest.approx(nmi)


def test_re_ranked_figures_stand_beside_the_plain_ones(rows, evaluated):
    x, y, cam = rows["embeddings"].astype(float), rows["labels"], rows["cam"]
    q = cam == 0
    save_parts({"embeddings": x, "labels": y, "cam": cam}, q=q, g=~q)
    files = ["q.npz", "--gallery", "g.npz", "--cameras", "cam"]
    lines, said = evaluated(*files, "--rerank", "-k", "1,5", "--clusters", "1")
    sides = (x[q], y[q], cam[q], x[~q], y[~q], cam[~q])
    for by, prefix, settings in (("label", "", None), ("re-ranked", "reranked/", ReRanking())):
        expected = uc.reid(*sides, ks=(1, 5), rerank=settings)
        assert_same(lines, by, expected, ("mAP", "cmc@1", "cmc@5", "mINP"), prefix)
    with open("scores.json") as file:
        assert json.load(file)["rerank"] == {"k1": 20, "k2": 6, "lambda_value": 0.3}
    assert "k1 = 20, k2 = 6, λ = 0.3" in said
    shown = [line for line in said.splitlines() if "mAP" in line]
    assert ["re-ranked" in line for line in shown] == [False, True]
    assert ("label", "nmi") in lines


def test_a_limit_is_said_in_the_line_of_the_figure(rows, cli):
    np.savez("z.npz", embeddings=rows["embeddings"], labels=rows["labels"])
    lines = cli("evaluate", "z.npz", "--max-rows", "50").out.splitlines()
    assert "a sample of 50 of 120 rows" in next(line for line in lines if "R@1 " in line)
    assert "50 of 120 rows, 8 clusters" in next(line for line in lines if "NMI" in line)


def test_queries_without_a_match_are_counted(rows, evaluated):
    x, labels = rows["embeddings"], rows["labels"].copy()
    labels[0] = 99
    np.savez("z.npz", embeddings=x, labels=labels)
    lines, _ = evaluated("z.npz", "-k", "1")
    assert lines["label", "recall@1"]["over"] == "all 120 rows, less 1 without a match"
    expected = uc.retrieval(x.astype(float), labels, ks=(1,))
    assert_same(lines, "label", expected, ("recall@1",))
    np.savez("z.npz", embeddings=x, labels=np.arange(120))
    lines, _ = evaluated("z.npz", "--clusters", "0")
    assert {line["value"] for line in lines.values()} == {None}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--cameras", "camera"], "did you mean 'cam'"),
        (["--metric", "cosin"], "did you mean 'cosine'"),
        (["-k", "one"], "-k: expected whole numbers"),
        (["--split", "test"], "--split is only for runs"),
        (["--best"], "--best is only for runs"),
        (["--gallery", "narrow.npz"], "--gallery: expected a file of 5 dimensions"),
        (["--gallery", "bare.npz"], "no labels among embeddings, other"),
        (["--gallery", "narrow.npz", "--cameras", "cam"], "narrow.npz: --cameras cam: no such"),
        (["--rerank"], "--rerank needs --cameras and --gallery"),
        (["--rerank", "--cameras", "cam"], "--rerank needs --cameras and --gallery"),
        (["--cameras", "cam", "--labels", "junk"], "labels: expected ids of persons"),
    ],
)
def test_bad_input_names_option_and_column_and_what_there_is(rows, cli, words, sentence):
    np.savez("z.npz", **rows, junk=np.zeros(120, int))
    np.savez("narrow.npz", embeddings=np.ones((4, 2)), labels=np.arange(4))
    np.savez("bare.npz", embeddings=np.ones((4, 5)), other=np.arange(4))
    assert sentence in cli("evaluate", "z.npz", *words, code=2).err


def test_options_of_files_are_refused_beside_a_run(folder, cli):
    for option in ("--cameras", "--gallery", "--json", "--labels"):
        assert f"{option} is only for files" in cli("evaluate", folder, option, "x", code=2).err


def test_every_command_on_files_has_the_same_column_options():
    commands = get_command(app).commands
    assert len(commands["evaluate"].params) <= 19
    columns = {"labels", "id", "text", "info", "features", "drop"}
    for name in ("diagnose", "evaluate", "verify", "search", "suspects", "report"):
        assert columns <= {option.name for option in commands[name].params}


# Runs


@pytest.mark.slow
def test_start_and_end_stand_beside_each_other_and_a_fall_is_said(plain, folder, cli):
    lines = cli("evaluate", plain).out.splitlines()
    measures = Run(plain).measures()
    for word, moment in (("before", measures.before), ("after", measures.after)):
        line = next(line for line in lines if word in line)
        assert f"{100 * moment.splits['test'].scores['recall@1']:.2f}" in line
    home = copy_of("plain", folder)
    before = measures.before.splits["test"]
    better = replace(before, scores={**before.scores, "recall@1": 0.999})
    start = replace(measures.before, splits={"test": better})
    write_measures(home / "run", replace(measures, before=start))
    said = cli("evaluate", home / "run").text
    assert "R@1 on test ends below the network before training: " in said
    assert "% against 99.9 %." in said
    words = ["train", home / "run.toml", "--out", home / "run", "--resume"]
    assert "R@1 on test ends below" in cli(*words).text
    with (home / "run" / "measures.json").open("a") as file:
        file.write(" ")
    damaged = cli("evaluate", home / "run")
    assert "measures.json is damaged: its checksum differs" in damaged.text
    assert "ends below" not in damaged.out  # nor is it believed


@pytest.mark.slow
def test_evaluate_shows_a_table_for_any_split(plain, cli):
    shown = cli("evaluate", plain, "--split", "train", "--clusters", "10").out
    assert all(title in shown for title in ("R@1", "NMI", "NMI+"))
    assert "before" not in shown  # the run measured another split


@pytest.mark.slow
def test_what_stands_in_for_a_damaged_checkpoint_is_said_with_its_step(folder, cli):
    run = copy_of("plain", folder) / "run"
    newest = run / "checkpoints" / "step-00000012" / "weights.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    for words in (["evaluate"], ["embed", "--out", "z.npz"], ["search", "--", "0"]):
        said = cli(words[0], run, *words[1:])
        assert "its checksum differs; using the checkpoint of step 6" in said.text
        assert "network of step 6" in said.text
    with pytest.warns(UserWarning, match="using the checkpoint of step 6"):
        Run.open(run).load_model()


@pytest.mark.slow
def test_a_run_without_measures_is_measured_for_its_page(plain, folder, cli):
    old = copy_of("plain", folder) / "run"
    for name in ("measures.json", "embeddings-after.safetensors"):
        (old / name).unlink()
    assert "wrote" in cli("report", old, "--measure").out
    for name in ("measures.json", "embeddings-after.safetensors"):
        assert (old / name).read_bytes() == (plain / name).read_bytes()


@pytest.mark.slow
def test_one_file_has_one_recall_wherever_it_is_printed(cli, folder):
    rng = np.random.default_rng(0)
    labels = np.arange(6_400) // 8
    z = rng.normal(size=(800, 4))[labels] + 0.1 * rng.normal(size=(6_400, 4))
    labels[:40] = 1_000 + np.arange(40)  # alone in their class
    np.savez("z.npz", embeddings=z, labels=labels)
    cli("evaluate", "z.npz", "--json", "scores.json")
    lines = json.loads((folder / "scores.json").read_text())["figures"]
    evaluated = {line["name"]: line for line in lines}
    scores = uc.metrics.evaluate_rows(z, labels, max_rows=QUERIES, clusters=[1])
    result = uc.diagnose(z, labels, modes=False)
    known = result.intervals["label"]["R@1"]
    assert known == uc.confidence(scores.ranked, "recall@1")
    line = evaluated["recall@1"]
    assert (line["value"], line["low"], line["high"]) == (known.value, known.low, known.high)
    assert line["over"].startswith("a sample of 5,000 of 6,400 rows, less ")
    assert known.value == result.scores["label"]["R@1"] == scores.values["recall@1"]
    assert evaluated["nmi"]["value"] == result.scores["label"]["NMI"] == scores.values["nmi"]
    words = f"R@1 {100 * known.value:.3g}\N{NO-BREAK SPACE}%"
    assert words in cli("diagnose", "z.npz", "--html", "page.html").out
    shown = re.sub(r"<[^>]*>|\s", " ", (folder / "page.html").read_text())
    assert f"{100 * known.value:.3g} %" in shown
    few = uc.diagnose(z, labels, modes=False, max_rows=1_000)  # the gallery stays whole
    about = few.intervals["label"]["R@1"]
    assert about.low <= known.value <= about.high
