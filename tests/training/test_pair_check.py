"""Pairs of a split: runs on a small LFW, and on one's own folders, are judged by verification."""

import numpy as np
import pytest
import torch
from PIL import Image

from support.configs import small_config
from support.small_copies import paint_lfw
from uncollapse.cli import app
from uncollapse.cli.printing import run as command
from uncollapse.data import DataError, LabelledImages, TensorSource, load
from uncollapse.metrics import verification
from uncollapse.report import run_report
from uncollapse.report.run_page import History, curve_content
from uncollapse.training import embed, train
from uncollapse.training.evaluation import NotFiniteError, PairCheck, evaluate_splits, find_judges
from uncollapse.training.sections import EvaluateConfig


def figures(z, check):
    """What a run logs of pairs, from the library's own figures, which have their own oracles."""
    pairs = {"pairs": check.rows, "same": check.same, "folds": check.folds}
    values = verification(z, **pairs, far=[0.01]).to_dict()
    names = ("fold_accuracy", "fold_standard_error", "auc", "eer", "tar@0.01")
    logged = {name: values.get(name) for name in names}
    return {f"verification/{k}": v for k, v in logged.items() if v is not None and np.isfinite(v)}


def random_check(count=240, rows=60, seed=0):
    rng = np.random.default_rng(seed)
    every = np.array([(a, b) for a in range(rows) for b in range(a)])
    pairs = rng.permutation(every)[:count]
    return PairCheck(pairs, np.arange(count) % 2 == 0, np.arange(count) // 24, "pairs.txt", 999)


def random_split(rows=60, seed=1):
    z = torch.randn(rows, 5, generator=torch.Generator().manual_seed(seed))
    return LabelledImages(TensorSource(z), torch.arange(rows) // 3)


@pytest.mark.parametrize("most", [None, 40])
def test_figures_are_those_of_the_definition_whatever_else_is_judged(most):
    data, check, settings = random_split(), random_check(), EvaluateConfig(max_samples=most)
    model = torch.nn.Identity()
    plain = evaluate_splits(model, {"test": data}, settings)
    found = evaluate_splits(model, {"test": data}, settings, judges={"test": check})
    of_pairs = {k: v for k, v in found.scores["test"].items() if k.startswith("verification/")}
    assert of_pairs == pytest.approx(figures(data.source.samples, check))
    assert plain.scores["test"].items() <= found.scores["test"].items()  # retrieval is as it was
    assert torch.equal(plain.embeddings["test"], found.embeddings["test"])


def test_without_folds_accuracy_is_that_of_the_best_threshold():
    check = random_check()
    z = random_split().source.samples
    plain = PairCheck(check.rows, check.same, None, "pairs.csv", len(check.rows))
    found = plain.scores(z, torch.arange(60))
    best = verification(z, pairs=check.rows, same=check.same).accuracy
    assert found["verification/accuracy"] == best
    assert not any("fold" in name for name in found)
    assert plain.describe() == "verification: 240 pairs of pairs.csv, 120 the same"
    assert check.describe().endswith("240 of the 999 pairs of pairs.txt, 120 the same, in 10 folds")


def test_a_diverged_network_is_said_though_only_a_pair_shows_it():
    data, check = random_split(), random_check()
    lost = int(check.rows[0, 0])
    rows = torch.linspace(0, 59, 3).round().long().tolist()  # what max_samples = 3 judges
    assert lost not in rows
    data.source.samples[lost] = torch.nan
    settings = EvaluateConfig(max_samples=3)
    with pytest.raises(NotFiniteError):
        evaluate_splits(torch.nn.Identity(), {"test": data}, settings, judges={"test": check})


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    return paint_lfw(tmp_path_factory.mktemp("data") / "lfw")


@pytest.fixture(autouse=True)
def _no_other_data(monkeypatch):
    monkeypatch.delenv("UNCOLLAPSE_DATA", raising=False)


def config(root, **data):
    return small_config(
        data={"name": "lfw", "root": str(root), "size": 12} | data,
        model={"backbone": "conv2", "dim": 8, "hidden": None},
        train={"steps": 4, "evaluate_every": 2, "log_every": 1},
    )


@pytest.fixture(scope="module")
def trained(faces, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNCOLLAPSE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        return train(config(faces), tmp_path_factory.mktemp("r") / "run")


@pytest.mark.slow
def test_a_run_on_faces_logs_measures_and_shows_its_pairs(trained, faces, tmp_path):
    data = load("lfw", faces, "test", size=12)
    check = find_judges(config(faces), {"test": data})[0]["test"]
    names = [f.rpartition("/")[2].removesuffix(".jpg") for f in data.files]
    named = [(names[a], names[b]) for a, b in check.rows]
    assert named[1] == ("Fold_3_b_0002", "Fold_3_b_0003")
    assert named[3] == ("Fold_3_a_0002", "Fold_3_b_0001")
    assert check.same.tolist() == [True, True, True, False, False, False] * 2
    assert check.folds.tolist() == [2] * 6 + [3] * 6
    logged = trained.summary["metrics"]
    for name, value in figures(embed(trained.choose().model, data), check).items():
        assert logged[f"test/{name}"] == pytest.approx(value)
    assert "test/recall@1" in logged
    assert "test/verification/tar@0.01" not in logged  # six different pairs do not show it
    measures = trained.measures()
    for moment in (measures.before, measures.after):
        assert {"verification/eer", "recall@1"} <= moment.splits["test"].scores.keys()
    scores = measures.after.splits["test"].scores
    assert scores["verification/eer"] == logged["test/verification/eer"]
    lines = list(trained.metrics())
    assert [line["step"] for line in lines if "test/verification/eer" in line] == [0, 2, 4]
    events = [line["event"] for line in lines if "event" in line]
    assert "test: verification: 12 of the 24 pairs of pairs.txt, 6 the same, in 2 folds" in events
    page = run_report([trained], tmp_path / "page.html").read_text(encoding="utf-8")
    expected = ("verification accuracy on test", "EER on test", "Accuracy over folds, pairs, test")
    assert all(words in page for words in expected)
    assert "Fold standard error" not in page


@pytest.mark.slow
def test_evaluate_prints_the_pairs_and_warns_of_people_that_were_trained_on(trained, capsys):
    assert command(app, ["evaluate", str(trained.path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for word in ("R@1", "MAP@R", "pairs of", "fold accuracy", "EER", "12 of the 24 pairs"):
        assert word in text
    assert f"{100 * trained.summary['metrics']['test/verification/eer']:.2f}" in text
    assert command(app, ["evaluate", str(trained.path), "--split", "all"]) == 0
    warning = " ".join(capsys.readouterr().err.split())
    assert "all: 12 of 24 pairs have someone of the training split" in warning


def test_rates_share_one_chart_as_ranks_do():
    keys = [f"test/verification/tar@{rate}" for rate in (0.01, 0.001)]
    history = History({key: [(0, 0.1), (1, 0.2)] for key in keys})
    (chart,) = curve_content({"run": history})["curves"]
    assert chart.title == "TAR at FAR, pairs, test"
    page = chart.__html__()
    assert page.index("TAR@0.001") < page.index("TAR@0.01<")


@pytest.fixture
def tableware(tmp_path):
    """Folders whose files are called alike: only the folder tells them apart."""
    rng = np.random.default_rng(0)
    for split, names in (("train", ("cup", "plate")), ("test", ("fork", "spoon"))):
        for name in names:
            (tmp_path / "own" / split / name).mkdir(parents=True)
            for number in range(4):
                pixels = rng.integers(0, 256, (8, 8, 3)).astype(np.uint8)
                Image.fromarray(pixels).save(tmp_path / "own" / split / name / f"{number}.png")
    return tmp_path / "own"


def own(root, pairs, text):
    pairs.write_text(text)
    made = config(root, name="folder", pairs=str(pairs))
    return find_judges(made, {"test": load("folder", root, "test", size=8)})


def test_pairs_of_ones_own_name_files_by_their_last_folders(tableware, tmp_path):
    text = "first,second,same\nfork/0.png,fork/1.png,1\ntest/spoon/2.png,fork/3,0\n"
    text += "cup/0.png,fork/0.png,0\ncup/0.png,cup/1.png,1\n"  # of the training split
    checks, warnings = own(tableware, tmp_path / "pairs.csv", text)
    assert checks["test"].rows.tolist() == [[0, 1], [6, 3]]
    assert checks["test"].same.tolist() == [True, False]
    assert checks["test"].folds is None
    assert warnings == []
    # Labels say which pairs are the same where the list does not.
    text = "first,second\nfork/0.png,fork/1.png\nspoon/2.png,fork/3.png\n"
    checks, _ = own(tableware, tmp_path / "pairs.csv", text)
    assert checks["test"].same.tolist() == [True, False]


def test_a_name_that_several_files_have_is_an_error(tableware, tmp_path):
    with pytest.raises(DataError, match=r"several rows are named '0\.png'"):
        own(tableware, tmp_path / "pairs.csv", "first,second,same\n0.png,fork/1.png,1\n")


@pytest.mark.parametrize(
    ("rows", "warning"),
    [
        ("cup/0.png,cup/1.png,1\n", "test is not verified by"),  # of another split
        ("fork/0.png,fork/1.png,1\nfork/0.png,fork/2.png,1\n", "2 same and 0 different pairs"),
    ],
)
def test_pairs_of_another_split_or_of_one_kind_are_a_warning(tableware, tmp_path, rows, warning):
    checks, warnings = own(tableware, tmp_path / "pairs.csv", f"first,second,same\n{rows}")
    assert checks == {}
    assert warning in warnings[0]


def test_a_list_that_is_not_there_is_said_before_anything_is_trained(tableware, tmp_path):
    made = config(tableware, name="folder", pairs=str(tmp_path / "none.csv"))
    with pytest.raises(DataError, match=r"none\.csv: no such file"):
        train(made.with_changes({"batch": {"p": 2}}), tmp_path / "run")


def test_datasets_without_pairs_are_not_checked(tableware):
    data = load("folder", tableware, "test", size=8)
    assert find_judges(config(tableware, name="folder"), {"test": data}) == ({}, [])
