"""Run reports: read from run directories alone, whatever of them is there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from uncollapse._base.check import InputError
from uncollapse.data import load
from uncollapse.report import run_report, write_report
from uncollapse.report.history import read_history
from uncollapse.report.snapshot import Snapshot, settle, take_snapshot
from uncollapse.training import Run
from uncollapse.training.assemble import build_model


@pytest.fixture
def copied(easy_run: Run, tmp_path: Path) -> Run:
    """A run that a test may change."""
    shutil.copytree(easy_run.path, tmp_path / "copied")
    return Run(tmp_path / "copied")


def log(run: Run, *lines: dict[str, object]) -> None:
    with run.metrics_file.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def test_a_report_of_one_run_lies_in_its_directory_and_tells_everything(copied: Run):
    path = write_report(copied)
    assert path == copied.path / "report.html"
    text = path.read_text(encoding="utf-8")
    for piece in (
        "Run copied", "Loss", "Diameter", "R@k, test", ">Before<", ">After<", "mining.positives",
        "neighbours share the query", "the reference is the untrained network", "versions",
    ):  # fmt: skip
        assert piece in text


def test_events_and_changes_of_the_verdict_are_marked(copied: Run):
    copied.metrics_file.unlink()
    log(
        copied,
        {"step": 1, "loss": 0.5, "verdict": "healthy"},
        {"step": 4, "loss": 0.4, "verdict": "shrinking"},
        {"step": 5, "event": "guard: rolled back to step 3"},
        {"step": 6, "verdict": "healthy"},
        {"step": 6, "verdict": "healthy"},
    )
    assert read_history(copied).events == [
        (4, "verdict: healthy → shrinking"),
        (5, "guard: rolled back to step 3"),
        (6, "verdict: shrinking → healthy"),
    ]
    text = write_report(copied).read_text(encoding="utf-8")
    assert "Events marked in the curves" in text
    assert "guard: rolled back to step 3" in text
    assert "2 at 5: guard: rolled back to step 3" in text  # the flag in the curves


def test_without_the_data_the_last_logged_verdict_is_told_and_the_reason(copied: Run):
    config = copied.config_file.read_text(encoding="utf-8").replace('"digits"', '"cub200"')
    copied.config_file.write_text(config.replace("[data]", '[data]\nroot = "nowhere"'), "utf-8")
    log(copied, {"step": 6, "verdict": "class-collapse"})
    text = write_report(copied).read_text(encoding="utf-8")
    assert "Class collapse: classes have become points" in text
    assert "Nothing could be embedded from test" in text
    assert "This is the last verdict that was logged." in text
    assert "Loss" in text


def test_a_run_that_has_not_ended_or_has_no_checkpoint_is_still_reported(copied: Run):
    copied.summary_file.unlink()
    shutil.rmtree(copied.path / "checkpoints")
    text = write_report(copied).read_text(encoding="utf-8")
    assert "not ended" in text
    assert "no usable checkpoint" in text


def test_a_run_named_twice_is_one_run(easy_run: Run, tmp_path: Path):
    text = run_report([easy_run, easy_run.path], tmp_path / "x.html", rows=20).read_text("utf-8")
    assert "<h1>Run easy</h1>" in text


def test_several_runs_stand_side_by_side_with_their_differences(
    easy_run: Run, hard_run: Run, tmp_path: Path
):
    text = run_report([easy_run.path, hard_run.path], tmp_path / "two.html").read_text("utf-8")
    assert "2 runs" in text
    assert "runs healthy" in text
    differences = text[text.index('id="config"') : text.index("keys that are the same")]
    assert "mining.positives" in differences
    assert "mining.negatives" not in differences
    assert text.count(">After<") >= 2


def test_runs_of_the_same_name_are_told_apart(easy_run: Run, tmp_path: Path):
    twin = tmp_path / "elsewhere" / easy_run.path.name
    shutil.copytree(easy_run.path, twin)
    text = run_report([easy_run, twin], tmp_path / "two.html").read_text("utf-8")
    assert f"elsewhere/{easy_run.path.name}" in text


def test_the_map_before_training_is_that_of_the_networks_first_weights(easy_run: Run):
    found = take_snapshot(easy_run, "test", rows=50)
    assert isinstance(found, Snapshot)
    first = build_model(easy_run.config, easy_run.sample_shape).eval()
    with torch.no_grad():
        expected = first(found.data[:][0])
    assert torch.equal(found.before, expected)
    assert not torch.equal(found.after, expected)
    assert found.health.relative_diameter is not None
    assert len(found.data) == 50
    assert found.sampled == "50 of 599 samples of test"


def test_an_untrained_network_with_batch_norm_is_measured_as_training_first_sees_it():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 2)
    )
    data = load("digits", split="test")
    settle(model, data, batch=256)
    images = data[torch.linspace(0, len(data) - 1, 256).long()][0]
    with torch.no_grad():
        settled = model(images)
        seen = model.train()(images)
    assert not torch.equal(settled, torch.zeros_like(settled))
    torch.testing.assert_close(settled, seen, rtol=0.01, atol=1e-3)


def test_no_run_and_no_such_run_are_clear_errors(tmp_path: Path):
    with pytest.raises(InputError, match="at least one run"):
        run_report([], tmp_path / "x.html")
    with pytest.raises(InputError, match=r"no config\.toml"):
        run_report([tmp_path], tmp_path / "x.html")
