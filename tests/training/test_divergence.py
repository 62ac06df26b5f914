"""A run whose learning rate is far too high: a verdict, a sentence or a rescue; no traceback."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from rich.console import Console

from uncollapse.cli import app
from uncollapse.cli.errors import run as run_cli
from uncollapse.data import load
from uncollapse.training import Config, Run, TrainingError, parse_config, train
from uncollapse.training.evaluation import NotFiniteError, evaluate

pytestmark = pytest.mark.slow

VALUES = {
    "data": {"name": "digits"},
    "model": {"backbone": "mlp", "dim": 4, "hidden": [16]},
    "batch": {"p": 5, "k": 4},
    "optimizer": {"lr": 1e18},
    "evaluate": {"max_samples": 100},
    "train": {"steps": 120, "evaluate_every": 1000},
}


def config(**changes: dict[str, object]) -> Config:
    return parse_config({**VALUES, **{k: {**VALUES.get(k, {}), **v} for k, v in changes.items()}})


@pytest.mark.parametrize("action", ["off", "warn", "stop"])
def test_the_sentence_has_the_step_and_advice(action: str, tmp_path: Path) -> None:
    told = (
        r"diverging: the loss became nan at step \d; no checkpoint was written yet\. Begin in a "
        r"new folder with a lower optimizer\.lr, such as 0\.01, with optimizer\.clip = 1\.0 "
        r"or guard\.action = 'rescue'"
    )
    with pytest.raises(TrainingError, match=told):
        train(config(guard={"action": action}), tmp_path / "run")
    assert list(Run.open(tmp_path / "run").metrics())[-1]["verdict"] == "diverging"


def test_a_rescue_rolls_back_and_goes_on_at_a_lower_rate(tmp_path: Path) -> None:
    told = Console(file=io.StringIO(), width=200)
    run = train(config(guard={"action": "rescue"}), tmp_path / "run", console=told)
    assert run.finished
    said = told.file.getvalue()
    assert "diverging: embeddings: NaN or infinite. Rolled back to step 0; going on at lr x" in said
    lines = list(run.metrics())
    assert lines[-2]["verdict"] == "healthy"
    assert lines[-2]["lr"] <= 1.0
    assert lines[-1]["test/recall@1"] > 0.5  # chance is 0.1
    assert '": NaN' not in run.metrics_file.read_text(encoding="utf-8")  # which is no JSON


def test_a_rescued_run_resumes_exactly(tmp_path: Path) -> None:
    changes = {"optimizer": {"lr": 1e3}, "guard": {"action": "rescue"}}
    rescued = config(**changes, train={"steps": 30})
    whole = train(rescued, tmp_path / "whole")
    assert any("Rolled back" in line.get("event", "") for line in whole.metrics())
    shorter = rescued.with_changes({"train": {"steps": 13}})
    train(shorter, tmp_path / "parts")
    parts = train(rescued, tmp_path / "parts", resume=True)
    weights = [run.checkpoints.load_last()[0].weights for run in (whole, parts)]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


def test_weights_that_are_not_finite_are_neither_saved_nor_finished(tmp_path: Path) -> None:
    each = {"steps": 12, "evaluate_every": 1, "checkpoint_every": 1}
    with pytest.raises(TrainingError, match="diverging: embeddings became NaN or infinite at"):
        train(config(train=each), tmp_path / "run")
    run = train(config(train=each, guard={"action": "rescue"}), tmp_path / "rescued")
    assert run.finished
    last, complaints = run.checkpoints.load_last()
    assert complaints == []
    assert all(bool(torch.isfinite(value).all()) for value in last.weights.values())


def test_a_network_that_has_diverged_is_not_evaluated(tmp_path: Path) -> None:
    data = load("digits", split="test")
    z = torch.randn(len(data), 4)
    z[3] = float("nan")
    with pytest.raises(NotFiniteError, match="1 of 599 embeddings are NaN or infinite"):
        evaluate(z, data)


def test_on_the_command_line_it_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.toml").write_text(config().to_toml(), encoding="utf-8")
    words = ["train", str(tmp_path / "run.toml"), "--out", str(tmp_path / "run")]
    assert run_cli(app, words) == 2
    assert "error: diverging: the loss became nan at step " in capsys.readouterr().err
