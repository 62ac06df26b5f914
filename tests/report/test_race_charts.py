"""Races on pages: a line per strategy, who was chosen, and lines of a log that are no race."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from uncollapse.charts import png
from uncollapse.charts.marks import Polyline
from uncollapse.health.race import Race, RaceScore
from uncollapse.report import run_report, write_report
from uncollapse.report.parts import race_chart, race_table
from uncollapse.report.run_page import read_history
from uncollapse.training import Run

if TYPE_CHECKING:
    from conftest import Browser

LAPS = (
    RaceScore("inside x hard, scale-free", 6, 0.5),
    RaceScore("easy x hard", 6, 0.625),
    RaceScore("hard x hard", 6, 0.0),
    RaceScore("inside x hard, scale-free", 20, 0.75),
    RaceScore("easy x hard", 20, 0.625),
)
RACE = Race(LAPS, "inside x hard, scale-free", 96, 57.0)
LINE = RACE.to_dict()


@pytest.fixture
def copied(easy_run: Run, tmp_path: Path) -> Run:
    """A run that a test may change."""
    shutil.copytree(easy_run.path, tmp_path / "copied")
    return Run(tmp_path / "copied")


def log(run: Run, *races: object) -> None:
    with run.metrics_file.open("a", encoding="utf-8") as file:
        for step, race in enumerate(races, start=3):
            file.write(json.dumps({"step": step, "loss": 0.5, "race": race}) + "\n")


def test_each_strategy_is_a_line_that_ends_where_it_is_out():
    chart = race_chart(RACE, "Race")
    lines = [mark for mark in chart.marks if isinstance(mark, Polyline)]
    ends = [line.points[-1][0] for line in lines]
    assert ends[0] == ends[1] > ends[2]
    assert "easy x hard: from 0.625 to 0.625" in chart.description
    names = [entry.name for entry in chart.legend]
    assert names == ["inside x hard, scale-free (chosen)", "easy x hard", "hard x hard"]
    assert chart.note == "R@1 of 96 held-out training samples; chosen: inside x hard, scale-free"


def test_lines_begin_at_the_start_where_it_is_known():
    chart = race_chart(RACE, "Race", start=0.25)
    assert "hard x hard: from 0.25 to 0" in chart.description


@pytest.mark.parametrize("recall", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("steps", [0, 1, 10**12])
def test_a_race_of_one_round_or_of_equals_can_be_drawn(recall: float, steps: int):
    laps = RaceScore("a", steps, recall), RaceScore("b", steps, recall)
    chart = race_chart(Race(laps, "b", 96, 1.0), "Race")
    assert png(chart)[:4] == b"\x89PNG"
    assert "<svg" in chart.__html__()


def test_the_table_has_the_last_lap_of_each_the_chosen_one_first():
    rows = [[str(cell.text) for cell in line] for line in race_table(RACE).lines]
    assert [row[0] for row in rows] == ["inside x hard, scale-free", "easy x hard", "hard x hard"]
    assert [row[1] for row in rows] == ["20", "20", "6"]
    assert [row[-1] for row in rows] == ["✓ chosen", "out", "out"]


def test_the_page_of_a_run_shows_its_races_and_without_races_nothing(copied: Run):
    assert 'id="races"' not in write_report(copied).read_text(encoding="utf-8")
    log(copied, LINE, LINE)
    assert [step for step, _ in read_history(copied).races] == [3, 4]
    assert read_history(copied).races[0][1] == RACE
    text = write_report(copied).read_text(encoding="utf-8")
    for piece in ("Race at step 3", "Race at step 4", "chosen: inside x hard, scale-free"):
        assert piece in text


def test_the_race_of_a_run_of_the_first_version_is_read(copied: Run):
    log(copied, {("laps" if key == "scores" else key): value for key, value in LINE.items()})
    assert [race for _, race in read_history(copied).races] == [RACE]


def test_races_of_several_runs_are_told_apart(copied: Run, hard_run: Run, tmp_path: Path):
    log(copied, LINE)
    text = run_report([copied, hard_run], tmp_path / "two.html").read_text(encoding="utf-8")
    assert "copied: race at step 3" in text
    assert "hard: race" not in text


def changed(**values: Any) -> dict[str, Any]:
    return {**LINE, **values}


def of_lap(**values: Any) -> dict[str, Any]:
    return changed(scores=[{**LINE["scores"][0], **values}])


DAMAGED = [
    None,
    "race",
    7,
    [],
    {},
    {"chosen": "a"},
    changed(scores=[]),
    changed(scores=None),
    changed(scores={"a": 1}),
    changed(scores=["a"]),
    changed(scores=[None]),
    changed(chosen="nobody"),
    changed(chosen=["easy x hard"]),
    changed(rows="many"),
    changed(rows=True),
    changed(rows=-1),
    changed(spent=float("inf")),
    of_lap(recall="high"),
    of_lap(recall=float("nan")),
    of_lap(recall=1.5),
    of_lap(recall=None),
    of_lap(steps=float("inf")),
    of_lap(steps=10**400),
    of_lap(steps=[6]),
    of_lap(strategy={"a": 1}),
    of_lap(strategy=None),
    of_lap(more=1),
]


@pytest.mark.parametrize("race", DAMAGED, ids=[json.dumps(one)[:60] for one in DAMAGED])
def test_what_is_no_race_is_named_and_the_rest_of_its_line_is_read(copied: Run, race: object):
    log(copied, race, LINE)
    history = read_history(copied)
    assert [step for step, _ in history.races] == [4]
    assert any("step 3" in line for line in history.complaints)
    assert (3, 0.5) in history.curves["loss"]


def test_the_page_of_a_run_with_damaged_races_is_still_written(copied: Run):
    log(copied, *DAMAGED)
    text = write_report(copied).read_text(encoding="utf-8")
    assert 'id="races"' not in text
    assert "metrics.jsonl is damaged: the race of step 3" in text


@pytest.mark.parametrize("width", [375, 1280])
def test_races_open_without_complaint_or_overflow(browser: Browser, copied: Run, width: int):
    log(copied, LINE)
    visit = browser.open(write_report(copied), width)
    assert visit.complaints == []
    assert visit.value("document.querySelectorAll('#races svg').length") >= 1
    assert visit.value("document.documentElement.scrollWidth") == width
