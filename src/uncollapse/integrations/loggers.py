"""Loggers besides a run's own files: TensorBoard, Weights & Biases, MLflow, or your own.

A package is imported when its logger is made.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uncollapse._base.check import InputError, check_choice
from uncollapse._base.extras import import_extra
from uncollapse.health import Logger


class TensorBoardLogger:
    """Event files in a folder, or whatever writer is given (also tensorboardX's).

    Needs the extra `tensorboard`, unless a writer is given.
    """

    run_id: str | None = None  # the folder is the place

    def __init__(self, folder: str | Path | None = None, *, writer: Any = None) -> None:
        if (folder is None) == (writer is None):
            raise InputError("folder", folder, "a folder, or else a writer")
        if writer is None:
            import_extra("tensorboard", "tensorboard")
            writer = import_extra("torch.utils.tensorboard", "tensorboard").SummaryWriter(folder)
        self.writer = writer

    def log(self, scalars: Mapping[str, float], step: int) -> None:
        """One scalar per name."""
        for name, value in scalars.items():
            self.writer.add_scalar(name, value, step)

    def note(self, name: str, text: str, step: int) -> None:
        """Among the texts."""
        self.writer.add_text(name, text, step)

    def log_config(self, config: Mapping[str, Any]) -> None:
        """As a text."""
        lines = (f"    {name} = {value!r}" for name, value in config.items())
        self.writer.add_text("config", "\n".join(lines), 0)

    def close(self) -> None:
        """Close the file."""
        self.writer.close()


class WandbLogger:
    """A run of Weights & Biases; `WANDB_MODE=offline` keeps it on this machine.

    Needs the extra `wandb`. `options` are `wandb.init`'s; the project is that of `WANDB_PROJECT`,
    or `uncollapse`. A `run_id` continues that run; steps that are logged again after a crash
    appear twice.
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        name: str | None = None,
        run_id: str | None = None,
        **options: Any,
    ) -> None:
        wandb = import_extra("wandb", "wandb")
        options.setdefault("project", os.environ.get("WANDB_PROJECT", "uncollapse"))
        more = {"resume": "allow"} if run_id is not None else {}
        known = {"dir": None if folder is None else str(folder), "name": name, "id": run_id}
        self.run = wandb.init(**known, **more, **options)
        self.run_id: str | None = self.run.id
        # Their own step may only grow; a resumed run goes back to its checkpoint.
        self.run.define_metric("step")
        self.run.define_metric("*", step_metric="step")

    def log(self, scalars: Mapping[str, float], step: int) -> None:
        """One row."""
        self.run.log({**scalars, "step": step})

    def note(self, name: str, text: str, step: int) -> None:
        """In the run's summary, which keeps the last text of each name."""
        self.run.summary[name] = f"step {step}: {text}"

    def log_config(self, config: Mapping[str, Any]) -> None:
        """The run's config."""
        self.run.config.update(dict(config), allow_val_change=True)

    def close(self) -> None:
        """Finish the run."""
        self.run.finish()


class MlflowLogger:
    """A run of MLflow, by `MLFLOW_TRACKING_URI` or where MLflow keeps runs by default.

    Needs the extra `mlflow`. The experiment is that of `MLFLOW_EXPERIMENT_NAME`, or `uncollapse`.
    Characters that MLflow does not allow in names become `_`. A `run_id` continues that run.
    """

    def __init__(self, *, name: str | None = None, run_id: str | None = None) -> None:
        mlflow = import_extra("mlflow", "mlflow")
        self._metric, self._param = mlflow.entities.Metric, mlflow.entities.Param
        self.client = mlflow.MlflowClient()
        if run_id is not None:
            self.client.update_run(run_id, status="RUNNING")
        else:
            title = os.environ.get("MLFLOW_EXPERIMENT_NAME", "uncollapse")
            known = self.client.get_experiment_by_name(title)
            experiment = known.experiment_id if known else self.client.create_experiment(title)
            run_id = self.client.create_run(experiment, run_name=name).info.run_id
        self.run_id: str | None = run_id

    def log(self, scalars: Mapping[str, float], step: int) -> None:
        """One metric per name; those that are not finite are left out, as stores differ in them."""
        now = int(time.time() * 1000)
        numbers = {_plain(k): float(v) for k, v in scalars.items() if math.isfinite(v)}
        metrics = [self._metric(name, value, now, step) for name, value in numbers.items()]
        self.client.log_batch(self.run_id, metrics=metrics)

    def note(self, name: str, text: str, step: int) -> None:
        """A tag of the run, which keeps the last text of each name."""
        self.client.set_tag(self.run_id, _plain(name), f"step {step}: {text}"[:5000])

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Parameters; MLflow does not let them change, so a resumed run keeps the first ones."""
        known = self.client.get_run(self.run_id).data.params
        new = {_plain(k): str(v)[:500] for k, v in config.items() if _plain(k) not in known}
        rows = [self._param(name, value) for name, value in new.items()]
        for start in range(0, len(rows), 100):  # the most that one call takes
            self.client.log_batch(self.run_id, params=rows[start : start + 100])

    def close(self) -> None:
        """Mark the run as finished."""
        self.client.set_terminated(self.run_id)


LOGGERS = ("tensorboard", "wandb", "mlflow")


def open_logger(kind: str, folder: Path, *, run_id: str | None = None) -> Logger:
    """A logger by its name in a config, for a run folder.

    >>> open_logger("paper", Path("runs/run"))
    Traceback (most recent call last):
    uncollapse._base.check.InputError: logger: expected one of 'tensorboard', 'wandb', 'mlflow',
    got 'paper'
    """
    check_choice("logger", kind, LOGGERS)
    if kind == "tensorboard":
        return TensorBoardLogger(folder / "tensorboard")
    if kind == "wandb":
        return WandbLogger(folder, name=folder.name, run_id=run_id)
    return MlflowLogger(name=folder.name, run_id=run_id)


def _plain(name: str) -> str:
    """A name as MLflow allows it.

    >>> _plain("test.recall@1"), _plain("collapse/diameter")
    ('test.recall_1', 'collapse/diameter')
    """
    return re.sub(r"[^\w\-. /]", "_", name)
