"""`[train] loggers`: what a run writes elsewhere, once, and goes on with when resumed."""

from __future__ import annotations

import importlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from uncollapse._base.check import InputError
from uncollapse.training import log as run_loggers
from uncollapse.training import parse_config, train
from uncollapse.training.log import Log

VALUES: dict[str, Any] = {
    "data": {"name": "digits"},
    "model": {"backbone": "mlp", "dim": 4, "hidden": [16]},
    "batch": {"p": 5, "k": 4},
    "evaluate": {"max_samples": 100},
    "train": {"steps": 4, "log_every": 1, "evaluate_every": 4, "checkpoint_every": 2},
}


def config(*loggers: str, steps: int = 4, **more: Any) -> Any:
    chosen = {**VALUES["train"], "loggers": list(loggers), "steps": steps, **more}
    return parse_config({**VALUES, "train": chosen})


class Kept:
    """A logger that keeps what it gets, and fails if asked to."""

    def __init__(self, fails: bool = False) -> None:
        self.lines: list[tuple[int, dict[str, float]]] = []
        self.config: dict[str, Any] = {}
        self.closed, self.fails, self.run_id = 0, fails, "abc"

    def log(self, scalars: Any, step: int) -> None:
        if self.fails:
            raise ConnectionError("no network")
        self.lines.append((step, dict(scalars)))

    def note(self, name: str, text: str, step: int) -> None: ...

    def log_config(self, config: Any) -> None:
        self.config = dict(config)

    def close(self) -> None:
        self.closed += 1


def test_a_run_logs_its_numbers_elsewhere_and_goes_on_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, str | None, Kept]] = []

    def opened(kind: str, folder: Path, *, run_id: str | None = None) -> Kept:
        made.append((kind, run_id, Kept()))
        return made[-1][2]

    monkeypatch.setattr(run_loggers, "open_logger", opened)
    run = train(config("wandb", "wandb"), tmp_path / "run")
    assert [(kind, run_id) for kind, run_id, _ in made] == [("wandb", None)]
    kept = made[0][2]
    assert kept.config["batch.p"] == 5
    assert kept.closed == 1
    written = [line for line in run.metrics() if "loss" in line]
    assert [line["step"] for line in written] == [1, 2, 3, 4]
    for line in written:
        assert (line["step"], line["loss"]) in [(s, v.get("loss")) for s, v in kept.lines]
    assert any("test/recall@1" in line for _, line in kept.lines)
    assert json.loads((run.path / "loggers.json").read_text()) == {"wandb": "abc"}
    train(config("wandb", steps=6), tmp_path / "run", resume=True)
    assert made[1][:2] == ("wandb", "abc")
    assert [step for step, line in made[1][2].lines if "loss" in line] == [5, 6]


def test_one_that_fails_is_left_out_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = iter([Kept(fails=True), Kept()])
    every: list[Kept] = []

    def opened(kind: str, folder: Path, *, run_id: str | None = None) -> Kept:
        every.append(next(both))
        return every[-1]

    monkeypatch.setattr(run_loggers, "open_logger", opened)
    with pytest.warns(UserWarning, match="left out from now on: no network") as warned:
        run = train(config("wandb", "mlflow"), tmp_path / "run")
    assert len([one for one in warned if "no network" in str(one.message)]) == 1
    assert run.finished
    assert every[1].lines


def test_nothing_is_opened_that_is_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(run_loggers, "open_logger", opened)
    run = train(config(), tmp_path / "run")
    assert not (run.path / "loggers.json").exists()
    with Log(run.metrics_file, config(), 0) as log:
        assert log.loggers == []


def test_an_unknown_logger_is_named() -> None:
    with pytest.raises(InputError, match=r"train\.loggers.*'tensorboard', 'wandb'"):
        config("paper")


@pytest.mark.filterwarnings("ignore")
def test_real_loggers_of_a_real_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [n for n in ("tensorboard", "wandb", "mlflow") if importlib.util.find_spec(n)]
    if "wandb" not in found or "mlflow" not in found or not importlib.util.find_spec("sqlalchemy"):
        pytest.skip("needs wandb, mlflow and its database")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    run = train(config(*found), tmp_path / "run")
    first = json.loads((run.path / "loggers.json").read_text())
    train(config(*found, steps=6), tmp_path / "run", resume=True)
    assert json.loads((run.path / "loggers.json").read_text()) == first
    client = importlib.import_module("mlflow").MlflowClient()
    history = client.get_metric_history(first["mlflow"], "loss")
    assert [one.step for one in history] == [1, 2, 3, 4, 5, 6]
    assert len(list((run.path / "wandb").glob("offline-run-*"))) == 2
    assert len(list(run.path.glob("wandb/offline-run-*" + first["wandb"]))) == 2
