"""`[train] loggers`: what a run writes elsewhere, once, and goes on with when resumed."""

import importlib
import importlib.util
import json

import pytest

from support.configs import small_config
from support.runs import canonical
from uncollapse.training import log as log_module
from uncollapse.training import train

pytestmark = pytest.mark.slow


def config(*loggers, steps=4):
    often = {"log_every": 1, "evaluate_every": 4, "checkpoint_every": 2}
    return small_config(train={"loggers": list(loggers), "steps": steps, **often})


class Kept:
    """A logger that keeps what it gets, and fails if asked to."""

    def __init__(self, kind, folder, run_id, fails):
        self.kind, self.given_id, self.fails, self.run_id = kind, run_id, fails, "abc"
        self.file, self.lines, self.config, self.closed = folder / "metrics.jsonl", [], {}, 0

    def log(self, scalars, step):
        if self.fails:
            raise ConnectionError("no network")
        assert json.loads(self.file.read_text().splitlines()[-1])["step"] == step  # on disk already
        self.lines.append((step, dict(scalars)))

    def note(self, name, text, step): ...

    def log_config(self, config):
        self.config = dict(config)

    def close(self):
        self.closed += 1


@pytest.fixture
def opened(monkeypatch):
    """The loggers that were opened; mlflow's fail."""
    kept = []

    def open_logger(kind, folder, *, run_id=None):
        kept.append(Kept(kind, folder, run_id, fails=kind == "mlflow"))
        return kept[-1]

    monkeypatch.setattr(log_module, "open_logger", open_logger)
    return kept


def test_a_run_logs_its_numbers_elsewhere_and_goes_on_there(tmp_path, opened):
    run = train(config("wandb", "wandb"), tmp_path / "run")
    (first,) = opened
    assert (first.kind, first.given_id, first.closed) == ("wandb", None, 1)
    assert first.config["batch.p"] == 4
    written = [(line["step"], line["loss"]) for line in run.metrics() if "loss" in line]
    assert [step for step, _ in written] == [1, 2, 3, 4]
    assert written == [(step, line["loss"]) for step, line in first.lines if "loss" in line]
    assert any("test/recall@1" in line for _, line in first.lines)
    assert json.loads((run.path / "loggers.json").read_text()) == {"wandb": "abc"}
    assert not (canonical("plain") / "run" / "loggers.json").exists()  # which names none
    train(config("wandb", steps=6), run.path, resume=True)
    assert (opened[1].kind, opened[1].given_id) == ("wandb", "abc")
    assert [step for step, line in opened[1].lines if "loss" in line] == [5, 6]


def test_one_that_fails_is_left_out_and_the_run_goes_on(tmp_path, opened):
    with pytest.warns(UserWarning, match="left out from now on: no network") as warned:
        run = train(config("mlflow", "wandb"), tmp_path / "run")
    assert len([w for w in warned if "no network" in str(w.message)]) == 1
    assert run.finished
    assert opened[1].lines


@pytest.mark.filterwarnings("ignore")
def test_real_loggers_of_a_real_run(tmp_path, monkeypatch):
    there = [n for n in ("tensorboard", "wandb", "mlflow") if importlib.util.find_spec(n)]
    if not {"wandb", "mlflow"} <= {*there} or not importlib.util.find_spec("sqlalchemy"):
        pytest.skip("needs wandb, mlflow and its database")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    run = train(config(*there), tmp_path / "run")
    first = json.loads((run.path / "loggers.json").read_text())
    train(config(*there, steps=6), run.path, resume=True)
    assert json.loads((run.path / "loggers.json").read_text()) == first
    client = importlib.import_module("mlflow").MlflowClient()
    history = client.get_metric_history(first["mlflow"], "loss")
    assert [entry.step for entry in history] == [1, 2, 3, 4, 5, 6]
    assert len(list((run.path / "wandb").glob("offline-run-*"))) == 2
    assert len(list(run.path.glob("wandb/offline-run-*" + first["wandb"]))) == 2
