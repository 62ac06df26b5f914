"""Train from a config into a run directory; killed at any moment, it resumes exactly."""

from __future__ import annotations

import json
import math
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from uncollapse._check import InputError
from uncollapse._version import __version__
from uncollapse.data import LabelledImages
from uncollapse.training.assemble import load_data, load_eval_data
from uncollapse.training.checkpoint import CheckpointError, write_text
from uncollapse.training.config import Config
from uncollapse.training.evaluation import embed, evaluate
from uncollapse.training.progress import ProgressLine
from uncollapse.training.run import Run
from uncollapse.training.session import Session

__all__ = ["TrainingError", "train"]

# What may differ between a run and the config it is resumed with.
_MAY_CHANGE = {"train.steps", "train.log_every", "train.threads", "train.tensorboard"}


class TrainingError(RuntimeError):
    """A run that cannot go on; the message says why and what is saved."""


def train(
    config: Config, out: str | Path, *, resume: bool = False, console: Console | None = None
) -> Run:
    """Train as the config says, in the folder `out`, and return the run.

    The folder must not hold a run unless `resume` is set; then the run goes on from its newest
    checkpoint that verifies, and ends with the weights and metrics it would have had uninterrupted
    (bit for bit on the CPU with the same number of threads). Ctrl-C finishes the step, saves and
    stops. Everything is written aside and renamed: a crash costs at most the steps since the last
    checkpoint.
    """
    run = Run(Path(out))
    if run.config_file.is_file():
        if not resume:
            raise InputError("out", f"{out}, which holds a run", "a new folder, or --resume")
        _check_same(run.config, config)
        if run.finished and run.summary["step"] >= config.train.steps:
            return run
    run.path.mkdir(parents=True, exist_ok=True)
    write_text(run.config_file, config.to_toml())
    run.summary_file.unlink(missing_ok=True)
    if config.train.threads is not None:
        torch.set_num_threads(config.train.threads)
    splits = {split: load_eval_data(config, split) for split in config.data.eval_splits}
    session = Session(config, load_data(config, config.data.train_split))
    begun = time.monotonic()
    with ProgressLine(run.path.name, config.train.steps, console) as line, _polite() as asked:
        for complaint in _restore(session, run):
            line.note(f"warning: {complaint}; going on from an earlier one")
        with _Log(run, config, session.log_offset) as log:
            status = _loop(session, run, splits, log, line, asked)
    _summarise(session, run, status, time.monotonic() - begun)
    return run


def _loop(
    session: Session,
    run: Run,
    splits: Mapping[str, LabelledImages],
    log: _Log,
    line: ProgressLine,
    asked: threading.Event,
) -> str:
    c = session.config.train
    if session.step == 0:
        log.write(session, _judge(session, splits))  # the state before training, to compare with
    while session.step < c.steps and not asked.is_set() and not session.stopped:
        values = session.advance()
        if not math.isfinite(values["loss"]):
            raise TrainingError(
                f"the loss became {values['loss']} at step {session.step}; "
                f"{_last_saved(run)}. Try a lower optimiser.lr or optimiser.clip = 1.0"
            )
        last = session.step == c.steps
        if "event" in values:
            line.note(f"step {session.step}: {values['event']}")
        if session.step % c.log_every == 0 or last or "event" in values:
            log.write(session, values)
            line.show(session.step, values)
        best = False
        if session.step % c.evaluate_every == 0 or last:
            scores = _judge(session, splits)
            log.write(session, scores)
            line.show(session.step, {"recall@1": _primary(scores)})
            best = session.is_best(_primary(scores))
        if best or last or session.step % c.checkpoint_every == 0:
            _save(session, run, log, best=best)
    if session.stopped:
        log.write(session, _judge(session, splits))
        _save(session, run, log)
        return "stopped"
    if asked.is_set() and session.step < c.steps:
        _save(session, run, log)
        line.note(f"interrupted: {_last_saved(run)}; go on with --resume")
        return "interrupted"
    return "finished"


def _judge(session: Session, splits: Mapping[str, LabelledImages]) -> dict[str, float]:
    settings = session.config.evaluate
    scores: dict[str, float] = {}
    for split, data in splits.items():
        found = evaluate(embed(session.model, data, batch=settings.batch), data, settings)
        scores |= {f"{split}/{name}": value for name, value in found.items()}
    return scores


def _primary(scores: Mapping[str, float]) -> float | None:
    """Recall@1 by labels on the first evaluation split: what `best` is judged by."""
    return next((v for k, v in scores.items() if "recall@" in k and "fine/" not in k), None)


def _save(session: Session, run: Run, log: _Log, *, best: bool = False) -> None:
    session.log_offset = log.offset()
    run.checkpoints.save(session.checkpoint(), best=best)


def _restore(session: Session, run: Run) -> list[str]:
    checkpoint, complaints = run.checkpoints.load_last()
    if checkpoint is not None:
        session.restore(checkpoint)
    elif complaints:
        raise CheckpointError("; ".join(complaints))
    return complaints


def _last_saved(run: Run) -> str:
    steps = run.checkpoints.steps()
    return f"step {steps[-1]} is saved" if steps else "no checkpoint was written yet"


def _summarise(session: Session, run: Run, status: str, seconds: float) -> None:
    scores: dict[str, Any] = {}
    for entry in run.metrics():
        scores |= {k: v for k, v in entry.items() if k != "step"}
    summary = {
        "status": status,
        "step": session.step,
        "best_step": run.checkpoints.best_step(),
        "metrics": scores,
        "seconds_of_this_session": round(seconds, 3),
        "samples": len(session.data),
        "data_origin": session.data.name,
        "versions": {"uncollapse": __version__, "torch": torch.__version__},
    }
    write_text(run.summary_file, json.dumps(summary, indent=1))


def _check_same(before: Config, now: Config) -> None:
    old, new = _flat(before.model_dump()), _flat(now.model_dump())
    for key in old.keys() | new.keys():
        if key not in _MAY_CHANGE and old.get(key) != new.get(key):
            given = f"{new.get(key)!r} (the run was started with {old.get(key)!r})"
            raise InputError(key, given, "the run's own value when resuming")


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


class _Log:
    """`metrics.jsonl` and, when installed, TensorBoard. Opening drops what is past the offset."""

    def __init__(self, run: Run, config: Config, offset: int) -> None:
        # Lines after the checkpoint will be written again; one may be cut short by a crash.
        with run.metrics_file.open("ab") as file:
            os.truncate(file.fileno(), min(offset, file.tell()))
        self._file = run.metrics_file.open("a", encoding="utf-8")
        self._board = _tensorboard(run) if config.train.tensorboard == "auto" else None

    def __enter__(self) -> _Log:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()

    def write(self, session: Session, values: Mapping[str, object]) -> None:
        """One line, flushed."""
        if not values:
            return
        self._file.write(json.dumps({"step": session.step, **values}) + "\n")
        self._file.flush()
        if self._board is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._board.add_scalar(name, value, session.step)

    def offset(self) -> int:
        """Length of the file now, on disk."""
        os.fsync(self._file.fileno())
        return self._file.tell()


def _tensorboard(run: Run) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(run.path / "tensorboard")


@contextmanager
def _polite() -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM ask the loop to stop after its step; a second one stops at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(number: int, frame: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
