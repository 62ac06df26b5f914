"""Run reports: read from run directories alone, whatever of them is there."""

from __future__ import annotations

import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from uncollapse import backbones, data, losses
from uncollapse._base.check import InputError
from uncollapse.report import diagnose_run, run_report, write_report
from uncollapse.report.run_page import read_history, take_snapshot
from uncollapse.training import NotMeasuredError, Run, parse_config, train
from uncollapse.training.assemble import build_model
from uncollapse.training.measures import write_measures


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


def test_mode_drift_is_told_where_it_was_measured(copied: Run):
    measures = copied.measures()
    assert measures.after is not None
    before, after = (
        replace(one, batches=replace(one.batches, modes=rate))
        for one, rate in ((measures.before, -0.25), (measures.after, 1.5))
    )
    write_measures(copied.path, replace(measures, before=before, after=after))
    text = write_report(copied).read_text(encoding="utf-8")
    assert "mode drift at the start" in text
    assert "-0.25" in text
    assert "+1.50" in text
    unknown = replace(before, batches=replace(before.batches, modes=None))
    write_measures(copied.path, replace(measures, before=unknown, after=after))
    assert "mode drift at the start" not in write_report(copied).read_text(encoding="utf-8")


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


def test_without_measures_the_last_logged_verdict_is_told_and_what_to_do(copied: Run):
    (copied.path / "measures.json").unlink()
    log(copied, {"step": 6, "verdict": "class-collapse"})
    text = write_report(copied).read_text(encoding="utf-8")
    assert "Class collapse: classes have become points" in text
    assert "Nothing is known of the embeddings of test" in text
    assert "uncollapse report RUN --measure" in text
    assert "This is the last verdict that was logged." in text
    assert "Loss" in text


def test_the_page_needs_neither_dataset_nor_network_nor_loss(tmp_path: Path, monkeypatch):
    rng = np.random.default_rng(0)
    for split, kind, i in itertools.product(("train", "test"), ("odd", "even"), range(4)):
        pixels = rng.integers(0, 255, (12, 12, 3), dtype=np.uint8)
        place = tmp_path / "data" / split / kind
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(place / f"{i}.png")
    settings = {
        "data": {"name": "folder", "root": str(tmp_path / "data"), "size": 8, "channels": 3},
        "model": {"backbone": "mlp", "dim": 3, "hidden": [8]},
        "batch": {"p": 2, "k": 2},
        "train": {"steps": 2},
    }
    run = train(parse_config(settings), tmp_path / "run")
    whole = run_report([run], tmp_path / "with.html").read_text(encoding="utf-8")
    assert "neighbours share the query" in whole
    assert "Measured on all 8 samples of test" in whole
    run_verdict = run.measures().after.splits["test"].health.verdict
    shutil.rmtree(tmp_path / "data")
    shutil.rmtree(run.path / "checkpoints")

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a page builds no loss, loads no data and no networks")

    for module, name in ((data, "load"), (backbones, "build"), (losses.Loss, "__init__")):
        monkeypatch.setattr(module, name, forbidden)
    assert run_report([run], tmp_path / "without.html").read_text(encoding="utf-8") == whole
    assert diagnose_run(run).verdict == run_verdict


def test_a_run_that_has_not_ended_is_still_reported(copied: Run):
    copied.summary_file.unlink()
    measures = copied.measures()
    write_measures(copied.path, replace(measures, after=None))
    text = write_report(copied).read_text(encoding="utf-8")
    assert "not ended" in text
    assert "has no measures after training: it has not ended" in text


def test_a_damaged_file_of_measures_is_named_on_the_page(copied: Run):
    (copied.path / "embeddings-after.safetensors").write_bytes(b"x")
    assert "embeddings-after.safetensors is damaged" in write_report(copied).read_text("utf-8")


def test_a_run_named_twice_is_one_run(easy_run: Run, tmp_path: Path):
    text = run_report([easy_run, easy_run.path], tmp_path / "x.html").read_text("utf-8")
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
    found = take_snapshot(easy_run, "test")
    rows = easy_run.rows("after", "test").rows
    first = build_model(easy_run.config, easy_run.sample_shape).eval()
    with torch.no_grad():
        expected = first(data.load("digits", split="test")[rows][0])
    torch.testing.assert_close(found.before, expected)
    assert not torch.equal(found.after, found.before)
    assert found.health.relative_diameter is not None
    assert found.sampled == "all 599 samples of test"
    with pytest.raises(NotMeasuredError, match="train"):
        take_snapshot(easy_run, "train")


def test_no_run_and_no_such_run_are_clear_errors(tmp_path: Path):
    with pytest.raises(InputError, match="at least one run"):
        run_report([], tmp_path / "x.html")
    with pytest.raises(InputError, match=r"no config\.toml"):
        run_report([tmp_path], tmp_path / "x.html")
