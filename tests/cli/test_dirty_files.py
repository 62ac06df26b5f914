"""Files as people have them: spoiled rows are counted, named and left out; gates fail."""

import json

import numpy as np
import pytest

import uncollapse as uc
from support.dirty_files import KINDS, clean, spoilt
from uncollapse.health import Thresholds


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with clean.npz and one file for each kind of dirt; rows are named sku0000 and on."""
    place, (z, labels) = tmp_path_factory.mktemp("files"), clean()
    names = np.array([f"sku{i:04d}" for i in range(len(z))])
    for kind in ("clean", *KINDS):
        rows = z if kind == "clean" else spoilt(kind, z)
        np.savez(place / f"{kind}.npz", embeddings=rows, labels=labels, names=names)
    return place


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("zero", "10 of 2,000 rows are zero (sku"),
        ("copies", "599 of 2,000 rows are copies of earlier ones (sku"),
        ("hub", "1 row is a hub (sku"),
    ],
)
def test_rows_that_spoil_are_named_with_what_r1_is_without_them(files, cli, kind, words):
    said = cli("diagnose", files / f"{kind}.npz", "--fail-on", "any", code=1)
    assert said.out.startswith("spoiled-rows\n")
    assert words in said.text
    assert "without these rows: by label R@1 8" in said.text


def test_a_clean_file_is_healthy_and_says_nothing_of_spoiled_rows(files, cli):
    said = cli("diagnose", files / "clean.npz", "--fail-on", "any").text
    assert said.startswith("healthy")
    assert "without these rows" not in said


def test_one_row_that_is_not_finite_ends_no_command(files, cli):
    for command in (["diagnose"], ["evaluate"], ["suspects"], ["search", "-k", "2"]):
        said = cli(command[0], files / "nan.npz", *command[1:]).text
        assert "1 of 2,000 rows is NaN or infinite (sku1883); left out" in said
    report = uc.diagnose(*(np.load(files / "nan.npz")[name] for name in ("embeddings", "labels")))
    assert report.verdict == "healthy"
    assert report.figures["invalid_rows"] == 1


def test_many_such_rows_stop_a_command_unless_they_are_dropped(files, cli):
    said = cli("diagnose", files / "many nan.npz", code=2).text
    assert "at most 5 % of such rows, or --drop invalid" in said
    assert "200 of 2,000 rows are NaN or infinite" in said
    assert cli("diagnose", files / "many nan.npz", "--drop", "invalid").out.startswith("healthy")


def test_dropped_rows_are_left_out_wherever_a_file_is_read(files, cli):
    name, drop = files / "zero.npz", ("--drop", "zero")
    said = cli("search", name, "sku0000", "-k", "5")
    assert said.out.count("✗         1\n") == 5, "zero rows lie at distance 1 from all others"
    assert "rows are zero" in said.err
    assert "--drop zero" in said.err
    zero = set(np.load(name)["names"][~np.load(name)["embeddings"].any(axis=1)])
    assert not zero & set(cli("search", name, "sku0000", "-k", "5", *drop).out.split())
    assert "1,990 rows x 96" in cli("evaluate", name, *drop).text
    assert cli("diagnose", name, *drop).out.startswith("healthy")
    assert "drop: expected one or several of" in cli("diagnose", name, "--drop", "no", code=2).err


@pytest.mark.parametrize("kind", ["noise", "copies", "dead dimensions", "zero"])
def test_a_baseline_fails_what_verdicts_pass(files, cli, folder, kind):
    cli("diagnose", files / "clean.npz", "--json", "good.json")
    cli("diagnose", files / "clean.npz", "--baseline", "good.json")
    said = cli("diagnose", files / f"{kind}.npz", "--baseline", "good.json", code=1)
    assert f"{kind}.npz: R@1 fell from 83.4" in said.text


def test_a_baseline_fails_a_scale_that_is_gone(files, cli, folder):
    cli("diagnose", files / "clean.npz", "--json", "good.json")
    rows = dict(np.load(files / "clean.npz"))
    np.savez("small.npz", **(rows | {"embeddings": rows["embeddings"] / 1000}))
    said = cli("diagnose", "small.npz", "--baseline", "good.json", code=1)
    assert said.out.startswith("healthy"), "without a reference nobody can tell"
    assert "diameter fell from" in said.err


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"verdict": "healthy", "figures": {}, "intervals": {}},
        {"verdict": "healthy", "figures": {"rows": 9}, "intervals": {"R@1": [0.1, 0.2]}},
        {"verdict": "healthy", "figures": {"rows": "many"}, "intervals": {}},
    ],
)
def test_a_baseline_that_diagnose_has_not_written_is_refused(files, cli, folder, content):
    (folder / "other.json").write_text(json.dumps(content))
    said = cli("diagnose", files / "clean.npz", "--baseline", "other.json", code=2)
    assert "--baseline" in said.err
    assert not said.out, "it is read before the embeddings"


def test_a_baseline_may_have_figures_that_were_not_known(files, cli, folder):
    figures = {"rows": 9, "R@1": None, "effective_rank": None}
    good = {"verdict": "diverging", "figures": figures, "intervals": {"R@1": [0.1, 0.2]}}
    (folder / "good.json").write_text(json.dumps(good))
    cli("diagnose", files / "clean.npz", "--baseline", "good.json")


def test_a_row_far_from_all_others_is_left_out_by_what_the_advice_says(files, cli, folder):
    rows = dict(np.load(files / "clean.npz"))
    rows["embeddings"][9] *= 1000
    np.savez("far.npz", **rows)
    said = cli("diagnose", "far.npz")
    assert said.out.startswith("spoiled-rows")
    assert "--drop zero,duplicates,far,hubs" in said.text
    assert cli("diagnose", "far.npz", "--drop", "zero,duplicates,far,hubs").out.startswith(
        "healthy"
    )
    assert "1,999 rows" in cli("evaluate", "far.npz", "--drop", "far").text


def test_rules_on_figures_fail_and_unknown_figures_are_refused(files, cli, folder):
    name = files / "zero.npz"
    said = cli("diagnose", name, "--fail-if", "R@1<0.80", "--fail-if", "zero_rows>0", code=1).err
    assert said.count("failed: ") == 2
    cli("diagnose", name, "--fail-if", "R@1<3%", "--fail-if", "invalid_rows>0")
    assert "did you mean 'R@1'" in cli("diagnose", name, "--fail-if", "R1>0", code=2).err
    unread = cli("diagnose", name, "--fail-if", "R@1", code=2)
    assert "--fail-if" in unread.err
    assert not unread.out, "rules are read before the embeddings"


def test_the_json_file_has_every_figure_and_the_intervals_of_scores(files, cli, folder):
    cli("diagnose", files / "copies.npz", "--json", "d.json", "--title", "Shoes")
    known = json.loads((folder / "d.json").read_text("utf-8"))
    assert known["verdict"] == "spoiled-rows"
    assert known["title"] == "Shoes"
    assert known["figures"]["duplicate_rows"] == 599
    low, high = known["intervals"]["R@1"]
    assert low < known["figures"]["R@1"] < high


def test_a_diameter_below_the_margin_is_a_collapse_whatever_the_cosine(cli, folder):
    rng = np.random.default_rng(0)
    z = 1 + 0.004 * rng.normal(size=(300, 16))
    np.save("z.npy", z)
    assert cli("diagnose", "z.npy").out.startswith("cone\n")
    said = cli("diagnose", "z.npy", "--margin", "0.2").text
    assert said.startswith("network-collapse diameter 0.0")
    assert "of the margin 0.2: no triplet can reach it" in said
    judged = uc.measure(z, thresholds=Thresholds(margin=0.2, margin_ratio=1.0))
    assert judged.verdict == "network-collapse"


def test_a_reference_is_a_number_or_a_file(cli, folder):
    z = np.random.default_rng(0).normal(size=(200, 8))
    np.save("start.npy", z)
    np.save("end.npy", 0.1 * z)
    said = cli("diagnose", "end.npy", "--reference", "start.npy").text
    assert said.startswith("shrinking")
    assert "of 200 rows of start.npy" in said
    diameter = uc.measure(z).diameter
    assert cli("diagnose", "end.npy", "--reference", diameter).out.startswith("shrinking\n")
    assert "--reference" in cli("diagnose", "end.npy", "--reference", "-1", code=2).err
    assert "nowhere.npy" in cli("diagnose", "end.npy", "--reference", "nowhere.npy", code=2).err


def test_tighter_classes_excuse_no_scale_that_is_nearly_gone():
    z, labels = clean(rows=400, classes=8, dim=16)
    start, centres = uc.measure(z, labels), np.stack([z[labels == c].mean(0) for c in range(8)])
    tight = centres[labels] + 0.5 * (z - centres[labels])
    small = uc.measure(0.02 * tight, labels, reference=start)
    assert small.verdict == "shrinking" == uc.measure(0.02 * z, labels, reference=start).verdict
    excused = uc.measure(0.15 * tight, labels, reference=start)
    assert excused.verdict == "healthy"
    assert "that is no shrinking, for the classes' variability fell to" in excused.reasons[0]
