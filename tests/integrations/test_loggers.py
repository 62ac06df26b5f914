"""Loggers against the real packages, which are skipped where they are not installed."""

import math
import sys

import pytest
import torch

import uncollapse as uc
from support.errors import refused
from uncollapse._base.extras import MissingExtraError
from uncollapse.health import log_health, measure
from uncollapse.integrations import MlflowLogger, TensorBoardLogger, WandbLogger
from uncollapse.integrations.loggers import LOGGERS, open_logger

CONFIG = {"loss.name": "triplet", "batch.p": 8, "data.root": None}


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_gets_numbers_words_and_settings(tmp_path):
    name = "tensorboard.backend.event_processing.event_accumulator"
    events = pytest.importorskip(name).EventAccumulator
    logger = TensorBoardLogger(tmp_path)
    logger.log_config(CONFIG)
    logger.log({"loss": 0.5, "test/recall@1": 0.75}, 3)
    logger.note("event", "rescued", 4)
    health = measure(torch.zeros(4, 2), [0, 0, 1, 1])
    log_health(logger, health, step=5)
    logger.close()
    read = events(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in read.Scalars("test/recall@1")] == [(3, 0.75)]
    assert [(e.step, e.value) for e in read.Scalars("collapse/verdict")] == [(5, 2.0)]
    logged = {f"collapse/{name}" for name in health.scalars()} | {"loss", "test/recall@1"}
    assert set(read.Tags()["scalars"]) == logged
    texts = {"event/text_summary", "config/text_summary", "collapse/verdict/text_summary"}
    assert texts <= set(read.Tags()["tensors"])


@pytest.mark.filterwarnings("ignore")
def test_wandb_goes_on_with_the_same_run(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    first = WandbLogger(tmp_path, name="run")
    first.log_config(CONFIG)
    first.log({"loss": 0.5}, 10)
    first.note("event", "rescued", 10)
    assert first.run.config["batch.p"] == 8
    assert first.run.summary["event"] == "step 10: rescued"
    first.close()
    again = WandbLogger(tmp_path, name="run", run_id=first.run_id)
    again.log({"loss": 0.25}, 5)  # back at a checkpoint: no step is lost
    assert again.run_id == first.run_id
    assert (again.run.summary["step"], again.run.summary["loss"]) == (5, 0.25)
    again.close()
    kept = sorted(tmp_path.glob("wandb/offline-run-*"))
    assert all(first.run_id in path.name for path in kept)
    files = [file.read_bytes() for path in kept for file in path.glob("*.wandb")]
    assert any(b"0.5" in data and b"rescued" in data for data in files)


@pytest.mark.filterwarnings("ignore")
def test_mlflow_goes_on_with_the_same_run(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    first = MlflowLogger(name="run")
    first.log_config({**CONFIG, **{f"many.{i}": i for i in range(150)}})
    first.log({"loss": 0.5, "test/recall@1": 0.75, "lost": math.nan}, 10)
    first.note("event", "rescued", 10)
    first.close()
    again = MlflowLogger(run_id=first.run_id)
    assert again.client.get_run(first.run_id).info.status == "RUNNING"
    again.log_config({**CONFIG, "batch.p": 16})  # which MLflow would refuse
    again.log({"loss": 0.25}, 5)
    again.close()
    run = again.client.get_run(first.run_id)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "run"
    assert run.data.params["batch.p"] == "8"
    assert len(run.data.params) == 153
    assert run.data.metrics["test/recall_1"] == 0.75
    assert "lost" not in run.data.metrics
    assert run.data.tags["event"] == "step 10: rescued"
    history = again.client.get_metric_history(first.run_id, "loss")
    assert sorted((e.step, e.value) for e in history) == [(5, 0.25), (10, 0.5)]


class Kept:
    """A logger of one's own."""

    def __init__(self):
        self.lines, self.words = [], []

    def log(self, scalars, step):
        self.lines.append((step, dict(scalars)))

    def note(self, name, text, step):
        self.words.append((name, text))


def test_a_loop_of_ones_own_logs_what_its_monitor_sees():
    logger, monitor = Kept(), uc.CollapseMonitor(patience=1)
    z = torch.randn(32, 8, generator=torch.Generator().manual_seed(0))
    for step, scale in enumerate((1.0, 1.0, 1e-4)):
        log_health(logger, monitor.update(scale * z, torch.arange(32) % 8, step=step))
    assert [step for step, _ in logger.lines] == [0, 1, 2]
    assert [line["collapse/verdict"] for _, line in logger.lines] == [0.0, 0.0, 2.0]
    assert [name for name, _ in logger.words] == ["collapse/verdict"]
    assert logger.words[0][1].startswith("network-collapse")
    log_health(logger, measure(z), 9, prefix="test")
    assert logger.lines[-1][0] == 9
    assert "test/diameter" in logger.lines[-1][1]


@pytest.mark.parametrize("name", LOGGERS)
def test_a_missing_package_names_its_extra(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=rf"uncollapse\[{name}\]"):
        open_logger(name, tmp_path)


def test_a_board_needs_a_folder_or_a_writer():
    with refused("folder"):
        TensorBoardLogger()
