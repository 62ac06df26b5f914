import io
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from rich.console import Console

from support.errors import refused
from uncollapse._base.check import InputError
from uncollapse._base.lock import FolderOwner, InUseError
from uncollapse.training import Run, TrainingError, parse_config, train
from uncollapse.training.checkpoint import CheckpointError

pytestmark = pytest.mark.slow

# Every part that has a state: random mining, a learned β a class, momentum, a schedule, clipping.
SMALL = {
    "seed": 3,
    "data": {"name": "digits"},
    "model": {"backbone": "mlp", "dim": 4, "hidden": [16], "normalize": True},
    "batch": {"p": 5, "k": 4},
    "mining": {"positives": "random", "negatives": "distance"},
    "loss": {"name": "margin", "beta_per": "class"},
    "optimizer": {"name": "adam", "lr": 1e-2, "schedule": "cosine", "warmup": 5, "clip": 1.0},
    "evaluate": {"max_samples": 150},
    "train": {"steps": 40, "log_every": 4, "evaluate_every": 15, "checkpoint_every": 3},
}


def config(**changes):
    return parse_config({**SMALL, **{k: {**SMALL.get(k, {}), **v} for k, v in changes.items()}})


def outcome(run: Run) -> tuple[dict[str, torch.Tensor], bytes]:
    last, complaints = run.checkpoints.load_last()
    assert complaints == []
    weights = {f"model.{k}": v for k, v in last.weights.items()}
    weights |= {f"loss.{k}": v for k, v in last.state["loss"].items()}
    return weights, run.metrics_file.read_bytes()


def same(a, b) -> bool:
    return (
        a[1] == b[1]
        and a[0].keys() == b[0].keys()
        and all(torch.equal(a[0][k], b[0][k]) for k in a[0])
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return outcome(train(config(), tmp_path_factory.mktemp("runs") / "undisturbed"))


def test_the_run_directory_holds_what_others_read(tmp_path):
    run = train(config(), tmp_path / "run")
    assert run.config == config()
    assert run.finished
    assert run.summary["step"] == 40
    lines = list(run.metrics())
    assert [line["step"] for line in lines if "loss" in line] == list(range(4, 41, 4))
    assert [line["step"] for line in lines if "test/recall@1" in line] == [0, 15, 30, 40]
    assert lines[-1]["test/recall@1"] > 0.3  # chance is 0.1
    model = Run.open(run.path).load_model()
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 4)
    assert not model.training
    assert Run.open(run.path).load_model("best") is not None


def test_the_same_config_gives_the_same_run(undisturbed, tmp_path):
    assert same(outcome(train(config(), tmp_path / "again")), undisturbed)


def test_another_seed_gives_another_run(undisturbed, tmp_path):
    other = config().model_copy(update={"seed": 4})
    assert not same(outcome(train(other, tmp_path / "other")), undisturbed)


def test_reading_ahead_in_workers_changes_nothing(undisturbed, tmp_path):
    run = train(config(data={"workers": 1}), tmp_path / "ahead")
    assert same(outcome(run), undisturbed)


def _train_quietly(out: str) -> None:
    torch.set_num_threads(1)
    train(config(), out, resume=True)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_run_killed_at_random_moments_ends_as_if_left_alone(undisturbed, tmp_path, seed):
    moments, out = random.Random(seed), tmp_path / "killed"
    fork = multiprocessing.get_context("fork")
    begun = time.monotonic()
    train(config(), tmp_path / "timed")
    whole = time.monotonic() - begun
    killed = 0
    while killed < 6:
        child = fork.Process(target=_train_quietly, args=(str(out),))
        child.start()
        child.join(moments.uniform(0, whole * 0.7))
        if child.is_alive():
            os.kill(child.pid, signal.SIGKILL)
            killed += 1
        child.join()
        if (out / "summary.json").exists():  # it got to the end: begin another
            assert same(outcome(Run.open(out)), undisturbed)
            out = tmp_path / f"killed-{killed}"
    run = train(config(), out, resume=True)
    assert same(outcome(run), undisturbed)


def test_a_damaged_checkpoint_costs_only_the_steps_since_the_one_before(undisturbed, tmp_path):
    out = tmp_path / "run"
    train(config(train={"steps": 20}), out)
    (out / "summary.json").unlink()
    newest = out / "checkpoints" / "step-00000020" / "weights.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    # steps = 20 with a cosine schedule is another run; resume it as what it was
    run = train(config(train={"steps": 20}), out, resume=True)
    assert same(outcome(run), outcome(train(config(train={"steps": 20}), tmp_path / "alone")))


def test_without_any_good_checkpoint_the_error_names_them(tmp_path):
    out = tmp_path / "run"
    train(config(train={"steps": 3}), out)
    (out / "summary.json").unlink()
    for file in out.glob("checkpoints/*/state.pt"):
        file.write_bytes(b"")
    with pytest.raises(CheckpointError, match="damaged"):
        train(config(train={"steps": 3}), out, resume=True)


def test_an_existing_run_is_not_overwritten(tmp_path):
    train(config(train={"steps": 1}), tmp_path / "run")
    with pytest.raises(ValueError, match="out: expected a new folder, or --resume"):
        train(config(train={"steps": 1}), tmp_path / "run")


def test_resuming_with_another_config_is_refused(tmp_path):
    train(config(train={"steps": 1}), tmp_path / "run")
    with pytest.raises(ValueError, match=r"optimizer\.lr: .*got 0\.5 \(the run was started with"):
        train(config(optimizer={"lr": 0.5}, train={"steps": 1}), tmp_path / "run", resume=True)


def test_a_finished_run_is_returned_as_it_is(tmp_path):
    run = train(config(train={"steps": 2}), tmp_path / "run")
    before = run.summary_file.stat().st_mtime_ns
    assert train(config(train={"steps": 2}), tmp_path / "run", resume=True).finished
    assert run.summary_file.stat().st_mtime_ns == before


def test_a_request_to_stop_saves_and_resumes_exactly(undisturbed, tmp_path, monkeypatch):
    from uncollapse.training.session import Session

    advance = Session.advance

    def interrupted(self):
        values = advance(self)
        if self.step == 10:
            os.kill(os.getpid(), signal.SIGINT)
        return values

    monkeypatch.setattr(Session, "advance", interrupted)
    run = train(config(), tmp_path / "run")
    assert run.summary["status"] == "interrupted"
    assert run.summary["step"] == 10
    monkeypatch.setattr(Session, "advance", advance)
    assert same(outcome(train(config(), tmp_path / "run", resume=True)), undisturbed)


def test_the_bar_of_a_resumed_run_starts_where_the_run_was(tmp_path):
    out = tmp_path / "run"
    train(config(), out)
    (out / "summary.json").unlink()
    shutil.rmtree(max((out / "checkpoints").glob("step-*")))
    last = int(max((out / "checkpoints").glob("step-*")).name.removeprefix("step-"))
    assert 0 < last < 40
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    train(config(), out, resume=True, console=console)
    shown = [int(step) for step in re.findall(r"(\d+)/40", screen.getvalue())]
    assert shown[0] == last
    assert shown[-1] == 40


def test_a_loss_that_becomes_nan_stops_with_advice_and_keeps_the_checkpoint(tmp_path, monkeypatch):
    from uncollapse.training.session import Session

    advance = Session.advance
    monkeypatch.setattr(
        Session,
        "advance",
        lambda self: advance(self) | ({"loss": float("nan")} if self.step == 7 else {}),
    )
    with pytest.raises(TrainingError, match=r"became nan at step 7; step 6 is saved.*lower"):
        train(config(), tmp_path / "run")


def test_an_unwritable_folder_is_an_error_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        train(config(), tmp_path / "file" / "run")


@pytest.mark.parametrize(
    "loss",
    [
        {"name": "triplet", "scale_free": True},
        {"name": "contrastive"},
        {"name": "multi-similarity"},
        {"name": "proxy-nca"},
        {"name": "n-pair"},
        {"name": "sup-con", "temperature": 0.2},
        {"name": "margin", "beta_per": "sample"},
        {"name": "triplet", "trim": 0.5, "trim_on": "positives"},
        {"name": "triplet", "identity": {"label_smoothing": 0.1}},
        {"name": "triplet", "scale_free": "hardest-negative"},
        {"name": "triplet", "regularizer": {"name": "variance-covariance"}},
        {"name": "triplet", "regularizer": {"name": "coding-rate"}, "identity": {}},
        {"name": "sup-con", "regularizer": {"name": "sigreg", "weight": 0.02}},
    ],
)
def test_every_loss_trains_from_a_config(loss, tmp_path):
    values = SMALL | {"loss": loss, "mining": {}, "train": {"steps": 3, "evaluate_every": 10}}
    run = train(parse_config(values), tmp_path / "run")
    assert all(json.dumps(line) for line in run.metrics())
    assert run.finished


def test_a_key_the_loss_does_not_have_is_named(tmp_path):
    values = SMALL | {"loss": {"name": "sup-con", "beta": 1.0}}
    with pytest.raises(ValueError, match=r"loss\.beta: expected a key of sup-con: .*temperature"):
        train(parse_config(values), tmp_path / "run")


def test_half_precision_needs_a_device_that_has_it(tmp_path):
    with pytest.raises(ValueError, match=r"train\.precision"):
        train(config(train={"precision": "float16", "device": "cpu"}), tmp_path / "run")
    with pytest.raises(ValueError, match=r"train\.device: expected 'auto' or 'cpu'"):
        train(config(train={"device": "nonsense"}), tmp_path / "run3")


def test_bfloat16_trains_on_a_cpu(tmp_path):
    # Some virtual machines name instructions for it that they do not let through: torch then dies.
    product = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); x @ x"
    linear = "torch.nn.functional.linear(x, x).float().sum()"
    if subprocess.run([sys.executable, "-c", f"{product}; {linear}"], check=False).returncode < 0:
        pytest.skip("torch's bfloat16 kills the process on this processor")
    run = train(config(train={"precision": "bfloat16", "steps": 2}), tmp_path / "run2")
    assert run.finished


def test_a_rescue_that_cannot_measure_its_drift_is_refused_before_training(tmp_path):
    per_sample = config(loss={"beta_per": "sample"}, guard={"action": "rescue"})
    with refused("guard.action"):
        train(per_sample, tmp_path / "run")
    run = train(  # the folder was left as it was
        config(loss={"beta_per": "sample", "trim": 0.8}, train={"steps": 2}), tmp_path / "run"
    )
    assert run.finished


def test_a_run_begins_only_in_a_new_or_empty_folder(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "me.jpg").touch()
    for resume in (False, True):
        with pytest.raises(InputError, match=r"a new or empty folder, got .*me\.jpg"):
            train(config(train={"steps": 1}), tmp_path / "photos", resume=resume)
    assert [p.name for p in (tmp_path / "photos").iterdir()] == ["me.jpg"]
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / ".gitkeep").touch()
    assert train(config(train={"steps": 1}), tmp_path / "empty").finished


def test_a_folder_that_another_process_writes_is_refused(tmp_path):
    with FolderOwner(tmp_path / "run"):
        for resume in (False, True):
            with pytest.raises(InUseError, match="is being written by process"):
                train(config(train={"steps": 1}), tmp_path / "run", resume=resume)
        assert [p.name for p in (tmp_path / "run").iterdir()] == [".lock"]


def test_a_process_that_lost_its_folder_writes_no_checkpoint(tmp_path, monkeypatch):
    from uncollapse.training.session import Session

    advance = Session.advance

    def robbed(self):
        if self.step == 4:
            (tmp_path / "taken").write_text("elsewhere 2 y")
            (tmp_path / "taken").replace(tmp_path / "run" / ".lock")
        return advance(self)

    monkeypatch.setattr(Session, "advance", robbed)
    with pytest.raises(InUseError, match="taken over"):
        train(config(), tmp_path / "run")
    assert Run(tmp_path / "run").checkpoints.steps() == [3]


def test_a_full_disk_says_what_is_saved_and_what_to_do(tmp_path, monkeypatch):
    from uncollapse.training.log import Log

    write = Log.write

    def full(self, step, values):
        if step == 8:
            raise OSError(28, "No space left on device")
        write(self, step, values)

    monkeypatch.setattr(Log, "write", full)
    with pytest.raises(TrainingError, match=r"disk of .* is full .*step 6 is saved: make room"):
        train(config(), tmp_path / "run")
