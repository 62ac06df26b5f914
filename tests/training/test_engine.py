"""Runs into a folder: the same again, interrupted, resumed, diverging, refused. Kills: faults."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
import torch
from rich.console import Console

from support.configs import STATEFUL, merged, small_config
from support.errors import refused
from support.runs import copy_of, disturbed
from uncollapse._base.lock import InUseError
from uncollapse.cli import app
from uncollapse.cli.printing import run as run_command
from uncollapse.training import Run, TrainingError, train
from uncollapse.training.checkpoint import CheckpointError
from uncollapse.training.log import Log
from uncollapse.training.session import Session

pytestmark = pytest.mark.slow


def config(seed=3, **changes):
    each = {"steps": 20, "log_every": 4, "evaluate_every": 8, "checkpoint_every": 3}
    settings = {"batch": {"p": 5, "k": 4}, "evaluate": {"max_samples": 150}, "train": each}
    base = merged(STATEFUL, {**settings, "optimizer": {"name": "adam", "lr": 1e-2}})
    return small_config(seed, **merged(base, changes))


def outcome(run: Run):
    last, complaints = run.checkpoints.load_last()
    assert complaints == []
    parts = {**last.weights, **{f"loss.{k}": v for k, v in last.state["loss"].items()}}
    return {name: tensor.tolist() for name, tensor in parts.items()}, run.metrics_file.read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train(config(), tmp_path_factory.mktemp("runs") / "whole")


@pytest.fixture
def at_step(monkeypatch):
    """`at_step(n, event)`: something happens after step n, in this process."""
    return lambda *event: monkeypatch.setattr(Session, "advance", disturbed(*event))


def test_the_run_directory_holds_what_others_read(whole):
    assert whole.config == config()
    assert whole.finished
    assert whole.summary["step"] == 20
    lines = list(whole.metrics())
    assert [line["step"] for line in lines if "loss" in line] == list(range(4, 21, 4))
    scored = {line["step"]: line["test/recall@1"] for line in lines if "test/recall@1" in line}
    assert list(scored) == [0, 8, 16, 20]
    assert lines[-1]["test/recall@1"] > 0.3  # chance is 0.1
    assert whole.summary["best_step"] == max(list(scored)[1:], key=lambda step: scored[step])
    model = Run.open(whole.path).load_model()
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 4)
    assert not model.training
    assert Run.open(whole.path).load_model("best") is not None


def test_the_same_config_gives_the_same_run_and_another_seed_another(whole, tmp_path):
    assert outcome(train(config(), tmp_path / "again")) == outcome(whole)
    assert outcome(train(config(seed=4), tmp_path / "other")) != outcome(whole)


def test_the_best_checkpoint_is_the_first_with_the_highest_score(tmp_path, monkeypatch):
    scores = iter([0.9, 0.2, 0.3, 0.1, 0.3])  # of the untrained network first, which has none
    names = ("test/fine/recall@1", "test/recall@1")

    def logged(_):
        return dict(zip(names, (0.5, next(scores)), strict=True))

    monkeypatch.setattr("uncollapse.training.engine.by_split", logged)
    often = {"steps": 4, "evaluate_every": 1, "checkpoint_every": 1}
    run = train(config(train=often), tmp_path / "run")
    assert run.summary["best_step"] == 2
    assert run.checkpoints.steps() == [2, 3, 4]


@pytest.mark.processes
def test_reading_ahead_in_workers_changes_nothing(whole, tmp_path):
    assert outcome(train(config(data={"workers": 1}), tmp_path / "ahead")) == outcome(whole)


def test_a_request_to_stop_saves_and_resumes_exactly(whole, tmp_path, at_step, monkeypatch):
    at_step(10, lambda _: os.kill(os.getpid(), signal.SIGINT))
    run = train(config(), tmp_path / "run")
    assert (run.summary["status"], run.summary["step"]) == ("interrupted", 10)
    monkeypatch.undo()
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    assert outcome(train(config(), run.path, resume=True, console=console)) == outcome(whole)
    shown = [int(step) for step in re.findall(r"(\d+)/20", screen.getvalue())]
    assert (shown[0], shown[-1]) == (10, 20)  # the bar begins where the run was


def test_a_damaged_checkpoint_costs_only_the_steps_since_the_one_before(whole, tmp_path):
    run = Run(shutil.copytree(whole.path, tmp_path / "run"))
    run.summary_file.unlink()
    newest = run.checkpoints.place(20) / "weights.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    assert outcome(train(config(), run.path, resume=True)) == outcome(whole)
    for file in run.path.glob("checkpoints/*/state.pt"):
        file.write_bytes(b"")
    run.summary_file.unlink()
    with pytest.raises(CheckpointError, match="damaged"):
        train(config(), run.path, resume=True)


def test_a_finished_run_is_neither_overwritten_nor_made_again_nor_changed(tmp_path):
    run = Run(copy_of("plain", tmp_path) / "run")
    before = run.summary_file.stat().st_mtime_ns
    with refused("out"):
        train(run.config, run.path)
    with refused("optimizer.lr"):
        train(run.config.with_changes({"optimizer": {"lr": 0.5}}), run.path, resume=True)
    assert train(run.config, run.path, resume=True).finished
    assert run.summary_file.stat().st_mtime_ns == before
    run.summary_file.write_text("{")  # a damaged summary is written again
    assert train(run.config, run.path, resume=True).finished


@pytest.mark.parametrize(
    "loss",
    [
        {"name": "margin", "beta_per": "sample", "trim": 0.8},
        {"scale_free": "hardest-negative", "memory": {"size": 60}, "identity": {}},
        {"name": "sup-con", "regularizer": {"name": "sigreg", "weight": 0.02}},
    ],
)
def test_losses_of_every_kind_train_from_a_config(loss, tmp_path):
    settings = {"batch": {"p": 5, "k": 4}, "train": {"steps": 3, "evaluate_every": 10}}
    run = train(small_config(loss=loss, **settings), tmp_path / "run")
    assert all(json.dumps(line) for line in run.metrics())
    assert run.finished


@pytest.mark.processes
def test_bfloat16_trains_on_a_cpu(tmp_path):
    # Some virtual machines name instructions for it that they do not let through: torch then dies.
    product = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); x @ x"
    linear = "torch.nn.functional.linear(x, x).float().sum()"
    if subprocess.run([sys.executable, "-c", f"{product}; {linear}"], check=False).returncode < 0:
        pytest.skip("torch's bfloat16 kills the process on this processor")
    assert train(config(train={"precision": "bfloat16", "steps": 2}), tmp_path / "run").finished


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"train": {"precision": "float16", "device": "cpu"}}, "train.precision"),
        ({"train": {"device": "nonsense"}}, "train.device"),
        ({"loss": {"beta_per": "sample"}, "guard": {"action": "rescue"}}, "guard.action"),
    ],
)
def test_what_cannot_be_trained_leaves_the_folder_as_it_was(tmp_path, changes, key):
    with refused(key):
        train(config(**changes), tmp_path / "run")
    assert not [p for p in (tmp_path / "run").glob("*") if not p.name.startswith(".")]


def test_a_run_begins_only_in_a_new_or_empty_folder(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "me.jpg").touch()
    for resume in (False, True):
        with refused("out"):
            train(config(train={"steps": 1}), tmp_path / "photos", resume=resume)
    assert [p.name for p in (tmp_path / "photos").iterdir()] == ["me.jpg"]
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / ".gitkeep").touch()
    assert train(config(train={"steps": 1}), tmp_path / "empty").finished
    with pytest.raises(OSError, match=r"me\.jpg"):
        train(config(), tmp_path / "photos" / "me.jpg" / "run")


def test_a_process_that_lost_its_folder_writes_no_checkpoint(tmp_path, at_step):
    def rob(_):
        (tmp_path / "taken").write_text("elsewhere 2 y")
        (tmp_path / "taken").replace(tmp_path / "run" / ".lock")

    at_step(4, rob)
    with pytest.raises(InUseError, match="taken over"):
        train(config(), tmp_path / "run")
    assert Run(tmp_path / "run").checkpoints.steps() == [3]


def test_a_full_disk_says_what_is_saved_and_what_to_do(tmp_path, monkeypatch):
    write = Log.write

    def full(self, step, values):
        if step == 8:
            raise OSError(28, "No space left on device")
        write(self, step, values)

    monkeypatch.setattr(Log, "write", full)
    with pytest.raises(TrainingError, match=r"disk of .* is full .*step 6 is saved: make room"):
        train(config(), tmp_path / "run")


# A learning rate that is far too high: a verdict, a sentence or a rescue; no traceback.


def diverging(action="warn", lr=1e18, **steps):
    base = {"batch": {"p": 5, "k": 4}, "guard": {"action": action}, "optimizer": {"lr": lr}}
    return small_config(**base, train={"steps": 120, "evaluate_every": 1000, **steps})


@pytest.mark.parametrize("action", ["off", "warn", "stop"])
def test_a_diverging_run_ends_with_the_step_and_advice(action, tmp_path, capsys):
    (tmp_path / "run.toml").write_text(diverging(action).to_toml(), encoding="utf-8")
    words = ["train", str(tmp_path / "run.toml"), "--out", str(tmp_path / "run")]
    assert run_command(app, words) == 2
    text = " ".join(capsys.readouterr().err.split())
    assert re.search(
        r"error: diverging: the loss became nan at step \d; no checkpoint was written yet\. Begin "
        r"in a new folder with a lower optimizer\.lr, such as 0\.01, with optimizer\.clip = 1\.0 "
        r"or guard\.action = 'rescue'",
        text,
    )
    assert list(Run.open(tmp_path / "run").metrics())[-1]["verdict"] == "diverging"


def test_a_loss_that_becomes_nan_keeps_the_checkpoint(tmp_path, at_step):
    at_step(7, lambda values: values | {"loss": float("nan")})
    with pytest.raises(TrainingError, match=r"became nan at step 7; step 6 is saved.*lower"):
        train(config(), tmp_path / "run")


def test_a_rescue_rolls_back_and_goes_on_at_a_lower_rate(tmp_path):
    console = Console(file=io.StringIO(), width=200)
    run = train(diverging("rescue"), tmp_path / "run", console=console)
    assert run.finished
    text = console.file.getvalue()
    assert "diverging: embeddings: NaN or infinite. Rolled back to step 0; going on at lr x" in text
    lines = list(run.metrics())
    assert lines[-2]["verdict"] == "healthy"
    assert lines[-2]["lr"] <= 1.0
    assert lines[-1]["test/recall@1"] > 0.5  # chance is 0.1
    assert '": NaN' not in run.metrics_file.read_text(encoding="utf-8")  # which is no JSON


def test_a_rescued_run_resumes_exactly(tmp_path):
    rescued = diverging("rescue", lr=1e3, steps=30)
    whole = train(rescued, tmp_path / "whole")
    assert any("Rolled back" in line.get("event", "") for line in whole.metrics())
    train(rescued.with_changes({"train": {"steps": 13}}), tmp_path / "parts")
    parts = train(rescued, tmp_path / "parts", resume=True)
    assert outcome(parts)[0] == outcome(whole)[0]


def test_weights_that_are_not_finite_are_neither_saved_nor_finished(tmp_path):
    each = {"steps": 12, "evaluate_every": 1, "checkpoint_every": 1}
    with pytest.raises(TrainingError, match="diverging: embeddings became NaN or infinite at"):
        train(diverging(**each), tmp_path / "run")
    run = train(diverging("rescue", **each), tmp_path / "rescued")
    assert run.finished
    weights = run.checkpoints.load_last()[0].weights.values()
    assert all(bool(torch.isfinite(value).all()) for value in weights)
