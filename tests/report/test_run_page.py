"""Run reports: read from run directories alone, whatever of them is there."""

import json
import math
import shutil
import tomllib
from dataclasses import replace

import pytest
import torch

from report.examples import RACE, copy_run, log, log_races
from support.errors import refused
from uncollapse import backbones, data, losses
from uncollapse.report import diagnose_run, run_report, write_report
from uncollapse.report.run_page import config_content, read_history, resolved, take_snapshot
from uncollapse.training import NotMeasuredError, parse_config
from uncollapse.training.assemble import build_model
from uncollapse.training.measures import dotted, write_measures

LINE = RACE.to_dict()


def test_a_report_of_one_run_lies_in_its_directory_and_tells_everything(copied):
    path = write_report(copied)
    assert path == copied.path / "report.html"
    text = path.read_text(encoding="utf-8")
    assert all(piece in text for piece in ("neighbours share the query", "mining.epsilon"))
    for piece in ("Run copied", "Loss", "Diameter", "R@k, test", ">Before<", ">After<", "versions"):
        assert piece in text


def test_mode_drift_is_told_where_it_was_measured(copied):
    measures = copied.measures()
    after = replace(measures.after, batches=replace(measures.after.batches, modes=1.5))
    for rate, told in ((-0.25, True), (None, False)):
        before = replace(measures.before, batches=replace(measures.before.batches, modes=rate))
        write_measures(copied.path, replace(measures, before=before, after=after))
        text = write_report(copied).read_text(encoding="utf-8")
        assert ("mode drift at the start" in text) == ("-0.25" in text) == told
        assert "+1.50" in text


def test_events_and_changes_of_the_verdict_are_marked(copied):
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
    assert "2 at 5: guard: rolled back to step 3" in text  # the flag in the curves


def test_without_measures_the_last_logged_verdict_is_told_and_what_to_do(copied):
    (copied.path / "measures.json").unlink()
    log(copied, {"step": 6, "verdict": "class-collapse"})
    text = write_report(copied).read_text(encoding="utf-8")
    for piece in ("Class collapse: classes", "RUN --measure", "last verdict that was logged"):
        assert piece in text


@pytest.mark.slow
def test_the_page_needs_neither_dataset_nor_network_nor_loss(copied, monkeypatch):
    verdict = copied.measures().after.splits["test"].health.verdict
    whole = write_report(copied).read_text(encoding="utf-8")
    assert "Measured on all 599 samples of test" in whole
    shutil.rmtree(copied.path / "checkpoints")

    def forbidden(*_, **__):
        raise AssertionError("a page builds no loss, loads no data and no networks")

    for module, name in ((data, "load"), (backbones, "build"), (losses.Loss, "__init__")):
        monkeypatch.setattr(module, name, forbidden)
    monkeypatch.setattr("uncollapse.training.config.parse_config", forbidden)
    assert write_report(copied.path).read_text(encoding="utf-8") == whole
    assert diagnose_run(copied.path).verdict == verdict


def test_a_run_that_has_not_ended_or_is_damaged_is_still_reported(copied):
    copied.summary_file.unlink()
    measures = copied.measures()
    write_measures(copied.path, replace(measures, after=None))
    text = write_report(copied).read_text(encoding="utf-8")
    assert "has no measures after training: it has not ended" in text
    write_measures(copied.path, measures)
    (copied.path / "embeddings-after.safetensors").write_bytes(b"x")
    assert "embeddings-after.safetensors is damaged" in write_report(copied).read_text("utf-8")


def test_several_runs_stand_side_by_side_with_their_differences(plain_run, hard_run, tmp_path):
    text = run_report([plain_run.path, hard_run.path], tmp_path / "two.html").read_text("utf-8")
    assert "2 runs" in text
    differences = text[text.index('id="config"') : text.index("keys that are the same")]
    assert "mining.positives" in differences
    assert "mining.epsilon" not in differences


def test_runs_of_the_same_name_are_told_apart_and_one_named_twice_is_one(copied, tmp_path):
    twin = copy_run(tmp_path / "elsewhere" / "copied")
    text = run_report([copied, twin], tmp_path / "two.html").read_text("utf-8")
    assert "elsewhere/copied" in text
    text = run_report([copied, copied.path], tmp_path / "one.html").read_text("utf-8")
    assert "<h1>Run copied</h1>" in text


@pytest.mark.slow
def test_the_map_before_training_is_that_of_the_networks_first_weights(plain_run):
    found = take_snapshot(plain_run, "test")
    rows = plain_run.rows("after", "test").rows
    first = build_model(plain_run.config, plain_run.sample_shape).eval()
    with torch.no_grad():
        expected = first(data.load("digits", split="test")[rows][0])
    torch.testing.assert_close(found.before, expected)
    assert not torch.equal(found.after, found.before)
    assert found.health.relative_diameter is not None
    assert found.sampled == "all 599 samples of test"
    with pytest.raises(NotMeasuredError, match="train"):
        take_snapshot(plain_run, "train")


def test_no_run_and_no_such_run_are_refused(tmp_path):
    for name, runs in (("runs", []), ("run", [tmp_path])):
        with refused(name):
            run_report(runs, tmp_path / "x.html")


@pytest.mark.parametrize(
    ("values", "changed"),
    [
        ({}, {}),
        (
            {"loss": {"name": "contrastive", "margin": 1.0, "pos_margin": 0.25}},  # 1.0 is usual
            {"loss.name": "contrastive", "loss.pos_margin": "0.25"},
        ),
    ],
)
def test_a_config_is_compared_with_the_defaults_of_its_loss(values, changed):
    config = parse_config(values)
    written = dotted(tomllib.loads(config.to_toml()))
    shown = config_content(resolved(written, config.defaults()), config.defaults())
    assert shown["changed"] == changed
    assert shown["every"] == {k: str(v) for k, v in config.flat().items() if v is not None}


def test_a_run_measured_without_the_defaults_shows_its_keys_alone(copied):
    write_measures(copied.path, replace(copied.measures(), defaults={}))
    text = write_report(copied).read_text(encoding="utf-8")
    assert "What differs from the defaults" not in text
    assert "All defaults" not in text
    assert "batch.p" in text


# Races of strategies, and lines of a log that are no race.


def test_the_races_of_a_run_are_shown_under_its_name(copied, hard_run, tmp_path):
    assert 'id="races"' not in write_report(copied).read_text(encoding="utf-8")
    first_version = {("laps" if key == "scores" else key): value for key, value in LINE.items()}
    log_races(copied, LINE, first_version)
    assert read_history(copied).races == [(3, RACE), (4, RACE)]
    text = write_report(copied).read_text(encoding="utf-8")
    assert all(f"Race at step {step}" in text for step in (3, 4))
    text = run_report([copied, hard_run], tmp_path / "two.html").read_text(encoding="utf-8")
    assert "copied: race at step 3" in text
    assert "hard: race" not in text


def of_score(**values):
    return {**LINE, "scores": [{**LINE["scores"][0], **values}]}


DAMAGED = [
    None, "race", 7, [], {}, {"chosen": "a"},
    *({**LINE, "scores": wrong} for wrong in ([], None, {"a": 1}, ["a"], [None])),
    *({**LINE, "chosen": wrong} for wrong in ("nobody", ["easy x hard"])),
    *({**LINE, "rows": wrong} for wrong in ("many", True, -1)),
    {**LINE, "spent": math.inf},
    *(of_score(recall=wrong) for wrong in ("high", math.nan, 1.5, None)),
    *(of_score(steps=wrong) for wrong in (math.inf, 10**400, [6])),
    *(of_score(strategy=wrong) for wrong in ({"a": 1}, None)),
    of_score(more=1),
]  # fmt: skip


@pytest.mark.parametrize("race", DAMAGED, ids=[json.dumps(one)[:60] for one in DAMAGED])
def test_what_is_no_race_is_named_and_the_rest_of_its_line_is_read(copied, race):
    log_races(copied, race, LINE)
    history = read_history(copied)
    assert [step for step, _ in history.races] == [4]
    assert any("metrics.jsonl is damaged: the race of step 3" in x for x in history.complaints)
    assert (3, 0.5) in history.curves["loss"]


def test_the_page_of_a_run_with_damaged_races_is_still_written(copied):
    log_races(copied, *DAMAGED)
    assert 'id="races"' not in write_report(copied).read_text(encoding="utf-8")
