"""Train from a config into a run directory; killed at any moment, it resumes exactly."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from uncollapse._base.check import InputError
from uncollapse._base.extras import give_back_memory, keep_memory
from uncollapse._base.files import DamagedFileError, write_text
from uncollapse._base.lock import FolderOwner
from uncollapse._base.progress import ProgressLine, quiet_console
from uncollapse._version import __version__
from uncollapse.data import LabelledImages, LoadReport
from uncollapse.health.advice import lower_rate
from uncollapse.training.assemble import load_data, load_eval_data, pick_device
from uncollapse.training.checkpoint import CheckpointError, changed_keys, check_same
from uncollapse.training.config import Config
from uncollapse.training.distributed import LostRankError, Ranks, join
from uncollapse.training.evaluation import (
    Evaluated,
    NotFiniteError,
    as_evaluated,
    evaluate_splits,
    find_checks,
    find_searches,
)
from uncollapse.training.log import Log, Watch, repair_log
from uncollapse.training.measurer import Measurer
from uncollapse.training.run import Run, find_damage, sign_run, write_summary
from uncollapse.training.session import Session

if TYPE_CHECKING:
    from uncollapse._base.progress import Console

__all__ = [
    "TrainingError",
    "check_entry",
    "is_done",
    "last_saved",
    "requests_to_stop",
    "restore",
    "save",
    "train",
]


# What a run folder holds before training begins: nothing, this run, or something to refuse.

_OF_A_SWEEP = {"failure.json"}  # beside a run that failed before it began


def check_entry(run: Run, config: Config, *, resume: bool) -> list[str]:
    """Raise unless this run may be begun, or gone on with, in its folder; returns warnings.

    A run begins in a new or empty folder only; hidden files do not count. `resume` goes on with the
    run that is there, if it has this config.
    """
    if run.config_file.is_file():
        if not resume:
            given = f"{run.path}, which holds a run"
            raise InputError("out", given, "a new folder, or --resume to go on with that run")
        check_same(run.config, config)
        try:
            run.summary  # noqa: B018 (read to see whether it can be)
        except DamagedFileError as error:
            return [str(error)]
        return []
    steps = run.checkpoints.steps()
    if resume and steps:
        return [_adopted(run, steps[-1])]
    names = sorted(p.name for p in run.path.iterdir()) if run.path.exists() else []
    known = _OF_A_SWEEP if resume else set()
    strange = [name for name in names if name not in known and not name.startswith(".")]
    if strange:
        said = ", ".join(strange[:3]) + ", ..." * (len(strange) > 3)
        given = f"{run.path}, which holds {said} but no config.toml"
        allowed = "a new or empty folder"
        if steps:
            allowed += ", or --resume with the config its checkpoints were made with"
        raise InputError("out", given, allowed)
    return []


def is_done(run: Run, config: Config) -> bool:
    """Whether the run that is there has all its steps, and every file is as it was left."""
    try:
        if not run.finished or run.summary["step"] < config.train.steps:
            return False
    except DamagedFileError:
        return False
    store, steps = run.checkpoints, run.checkpoints.steps()
    if not steps or store.complaint(steps[-1]) is not None or store.best()[1] is not None:
        return False
    changed = changed_keys(store.manifest(steps[-1]).get("config", {}), config)
    return not changed and not find_damage(run)


def _adopted(run: Run, step: int) -> str:
    """Checkpoints whose config.toml is gone: they say themselves what they were made with."""
    if not run.checkpoints.manifest(step).get("config"):
        raise CheckpointError(
            f"{run.config_file} is missing, and the checkpoints do not say with which config they "
            "were made: put it back, or train into a new folder"
        )
    return f"{run.config_file} is missing; it is written again, from the config given"


# What a run keeps of itself: checkpoints saved and gone on from, with what a user should know.


def save(session: Session, run: Run, log: Log, owner: FolderOwner, *, best: bool = False) -> None:
    """Write a checkpoint, unless the network is lost: the next step will say that."""
    if not session.sound:
        return
    session.log_offset, session.log_sha256 = log.offset(), log.sha256
    session.check_ranks()

    def write() -> None:
        owner.check()
        run.checkpoints.save(session.checkpoint(), best=best)

    session.ranks.on_first(write)


def restore(session: Session, run: Run, measurer: Measurer) -> list[str]:
    """Go on from the newest good checkpoint, if there is any; what a user should know of it."""
    store, first = run.checkpoints, session.ranks.on_first
    checkpoint, complaints = first(lambda: store.load_last(session.accept))
    if checkpoint is None:
        if complaints:
            remedy = "put back what was damaged, or train into a new folder"
            raise CheckpointError(f"{'; '.join(complaints)}; {remedy}")
        return first(lambda: _told(measurer.drop_damaged()))
    session.restore(checkpoint)
    going = f"going on from the one of step {checkpoint.step}"
    warnings = [f"{complaint}; {going}" for complaint in complaints]
    known = session.log_offset, session.log_sha256
    session.log_offset, complaint = first(lambda: repair_log(run.metrics_file, *known))
    warnings += _told(complaint)
    warnings += first(lambda: _told(store.repair_best(), measurer.drop_damaged()))
    before = checkpoint.state.get("ranks", 1)
    if session.config.mining.scope == "rank" and before != session.ranks.size:
        changed = f"was mined on {before} ranks and is now on {session.ranks.size}"
        warnings.append(f"mining.scope = 'rank': the batch {changed}, which is another run")
    return warnings


def last_saved(run: Run) -> str:
    """How far the checkpoints go, in words."""
    steps = run.checkpoints.steps()
    return f"step {steps[-1]} is saved" if steps else "no checkpoint was written yet"


def _told(*complaints: str | None) -> list[str]:
    return [text for text in complaints if text is not None]


# Ctrl-C and SIGTERM as a request that a run can answer between two steps.


@contextmanager
def requests_to_stop(*, patient: bool = False) -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM ask the loop to stop after its step; a second one stops at once.

    `patient` ignores the second: torchrun passes on a Ctrl-C that a rank may have got already, and
    itself ends those that take longer than half a minute. After an error it goes on ignoring them:
    torchrun ends the ranks that are left when one dies, and they must have time to say so.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(number: int, frame: object) -> None:
        if asked.is_set() and not patient:
            raise KeyboardInterrupt
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    failed = False
    try:
        yield asked
    except BaseException:
        failed = True
        raise
    finally:
        if not (failed and patient):
            for number, handler in before.items():
                signal.signal(number, handler)


_NAMED = 5  # skipped files that a summary names


class TrainingError(RuntimeError):
    """A run that cannot go on; the message says why and what is saved."""


def train(
    config: Config,
    out: str | Path,
    *,
    resume: bool = False,
    console: Console | None = None,
    owner: FolderOwner | None = None,
    watch: Watch | None = None,
) -> Run:
    """Train as the config says, in the folder `out`, and return the run.

    The folder must be new or empty unless `resume` is set; then the run goes on from its newest
    checkpoint that verifies, and ends with the weights and metrics it would have had uninterrupted
    (bit for bit on the CPU with the same number of threads). Ctrl-C finishes the step, saves and
    stops. Everything is written aside and renamed: a crash costs at most the steps since the last
    checkpoint. One process owns the folder: a second one gets `InUseError`. An `owner` holds it
    already; by default it is held while this function runs. `watch(step, values)` is told each line
    of `metrics.jsonl` as it is written.
    """
    run = Run(Path(out))
    with (
        join(pick_device(config.train.device), config.distributed.timeout) as ranks,
        ExitStack() as held,
    ):
        if owner is None:
            owner = FolderOwner(run.path)
            ranks.on_first(lambda: _hold(held, owner))
        warnings = ranks.on_first(lambda: check_entry(run, config, resume=resume))
        if ranks.on_first(lambda: is_done(run, config)):
            return run
        try:
            _train(config, run, ranks, console, owner, warnings, watch)
        except LostRankError as error:
            told = f"{error}; {last_saved(run)}: go on with the same command and --resume"
            raise LostRankError(told) from error
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            told = f"the disk of {run.path} is full ({error.strerror}); {last_saved(run)}"
            raise TrainingError(f"{told}: make room and go on with --resume") from error
        finally:
            _tidy(config)
    return run


def _hold(held: ExitStack, owner: FolderOwner) -> None:
    held.enter_context(owner)  # returns nothing, which is what the other ranks are told


def _train(
    config: Config,
    run: Run,
    ranks: Ranks,
    console: Console | None,
    owner: FolderOwner,
    warnings: list[str],
    watch: Watch | None,
) -> None:
    if config.train.keep_memory:
        keep_memory()
    if config.train.threads is not None:
        torch.set_num_threads(config.train.threads)
    splits = {split: load_eval_data(config, split) for split in config.data.eval_splits}
    session = Session(config, load_data(config, config.data.train_split), ranks)
    searches, unsearched = find_searches(config, splits)
    checks, unchecked = find_checks(config, splits, searches)
    train_split = as_evaluated(session.data, config)
    measurer = Measurer(run.path, config, train_split, splits, searches, checks)
    warnings = [*warnings, *unsearched, *unchecked]
    begun = time.monotonic()
    console = console if ranks.first else quiet_console()
    with requests_to_stop(patient=ranks.size > 1) as asked, ExitStack() as shown:
        restored = restore(session, run, measurer)
        bar = ProgressLine(run.path.name, config.train.steps, console, start=session.step)
        line = shown.enter_context(bar)
        for name, data in _splits(session, measurer).items():
            if data.report.skipped:
                line.note(f"warning: {name}: {data.report.skipped_summary()}")
        for warning in [*warnings, *restored]:
            line.note(f"warning: {warning}")
        ranks.on_first(lambda: _begin(run, config))
        session.check_ranks()
        with Log(run if ranks.first else None, config, session.log_offset, watch) as log:
            status = _loop(session, run, measurer, log, line, asked, owner)
    loaded = {name: data.report for name, data in _splits(session, measurer).items()}
    ranks.on_first(lambda: _summarise(session, run, status, time.monotonic() - begun, loaded))


def _begin(run: Run, config: Config) -> None:
    write_text(run.config_file, config.to_toml())
    sign_run(run.path, config)
    run.summary_file.unlink(missing_ok=True)


def _loop(
    session: Session,
    run: Run,
    measurer: Measurer,
    log: Log,
    line: ProgressLine,
    asked: threading.Event,
    owner: FolderOwner,
) -> str:
    c, ranks = session.config.train, session.ranks
    if session.step == 0 and session.log_offset == 0:
        _begin_measures(session, measurer, log)
    seen: Evaluated | None = None
    stop = ranks.any(asked.is_set())
    while session.step < c.steps and not stop and not session.stopped:
        values = session.advance()
        last = session.step == c.steps or session.stopped
        if "event" in values:
            line.note(f"step {session.step}: {values['event']}")
        loss = values.get("loss", 0.0)  # none where the guard has rolled the step back
        if not math.isfinite(loss):
            del values["loss"]  # JSON has no NaN
            log.write(session.step, values)
            raise _diverged(session, run, f"the loss became {loss}")
        if session.step % c.log_every == 0 or last or "event" in values:
            _write(session, log, values)
            line.show(session.step, values)
        best = False
        if session.step % c.evaluate_every == 0 or last:
            seen = _evaluate(session, run, measurer, log, line, whole=last)
            _tidy(session.config)
            scores = seen.flat()
            _write(session, log, scores)
            line.show(session.step, _primary(scores))
            best = session.is_best(next(iter(_primary(scores).values()), None))
        if best or last or session.step % c.checkpoint_every == 0:
            save(session, run, log, owner, best=best)
        stop = ranks.any(asked.is_set())
    if stop and session.step < c.steps and not session.stopped:
        save(session, run, log, owner)
        line.note(f"interrupted: {last_saved(run)}; go on with --resume")
        return "interrupted"
    _end_measures(session, measurer, seen)
    return "stopped" if session.stopped else "finished"


def _begin_measures(session: Session, measurer: Measurer, log: Log) -> None:
    """Log and measure the state before training, to compare with."""
    network, batches = measurer.settled(session.model, session.loss)
    settings = session.config.evaluate
    searches, checks = measurer.searches, measurer.checks
    seen = evaluate_splits(
        network,
        measurer.evaluated,
        settings,
        searches=searches,
        checks=checks,
        ranks=session.ranks,
    )
    _write(session, log, seen.flat())
    for split, search in searches.items():
        log.write(session.step, {"event": f"{split}: {search.describe(settings)}"})
    for split, check in checks.items():
        log.write(session.step, {"event": f"{split}: {check.describe()}"})
    session.ranks.on_first(lambda: measurer.take_before(network, batches, seen))
    _tidy(session.config)


def _end_measures(session: Session, measurer: Measurer, seen: Evaluated | None) -> None:
    """Measure the state after training; `seen` is its evaluation, if it was made just now."""

    def take() -> None:
        if measurer.known() is None:  # begun by a version that did not measure
            measurer.rebuild_before(session.shape)
        measurer.take_after(session.step, session.model, session.loss, seen)

    session.ranks.on_first(take)


def _evaluate(
    session: Session, run: Run, measurer: Measurer, log: Log, line: ProgressLine, *, whole: bool
) -> Evaluated:
    """Evaluate; a network that has diverged unseen by its batches is rolled back if it can be."""
    splits, settings = measurer.evaluated, session.config.evaluate
    _tidy(session.config)  # its blocks are of other sizes than a step's
    while True:
        if session.sound:
            with contextlib.suppress(NotFiniteError):
                return evaluate_splits(
                    session.model,
                    splits,
                    settings,
                    searches=measurer.searches,
                    checks=measurer.checks,
                    whole=whole,
                    ranks=session.ranks,
                )
        rescued = session.rescue_lost()
        if rescued is None:
            raise _diverged(session, run, "embeddings became NaN or infinite")
        log.write(session.step, {"event": rescued, "verdict": "diverging"})
        line.note(f"step {session.step}: {rescued}")


def _diverged(session: Session, run: Run, what: str) -> TrainingError:
    guard, rate = session.guard, f"{lower_rate(session.config.optimizer.lr):.1g}"
    rescue, tried = " or guard.action = 'rescue'", ""
    if guard is not None and guard.action == "rescue":
        rescue, tried = "", f", also at {guard.lr_factor:.2g} times the learning rate"
    return TrainingError(
        f"diverging: {what} at step {session.step}{tried}; {last_saved(run)}. Begin in a new "
        f"folder with a lower optimizer.lr, such as {rate}, with optimizer.clip = 1.0{rescue}"
    )


def _write(session: Session, log: Log, values: Mapping[str, Any]) -> None:
    # Kept with the checkpoint as well: what a run reached does not hang on its log.
    session.latest |= json.loads(json.dumps(values))
    log.write(session.step, values)


def _tidy(config: Config) -> None:
    """Return what is free: kept between steps, it would add up with what comes next."""
    if config.train.keep_memory:
        give_back_memory()


def _primary(scores: Mapping[str, float]) -> dict[str, float]:
    """Recall@1 by labels on the first evaluation split, by its name: what `best` is judged by.

    Where a share of the identities is looked at during training, it is of that share.
    """
    found = [key for key in scores if "recall@" in key and "fine/" not in key]
    return {key: scores[key] for key in found[:1]}


def _splits(session: Session, measurer: Measurer) -> dict[str, LabelledImages]:
    found = {session.config.data.train_split: session.data, **measurer.evaluated}
    for search in measurer.searches.values():
        found["gallery"] = search.gallery
    return found


def _summarise(
    session: Session, run: Run, status: str, seconds: float, loaded: Mapping[str, LoadReport]
) -> None:
    scores: dict[str, Any] = {}
    for entry in run.metrics():
        scores |= {k: v for k, v in entry.items() if k != "step"}
    scores |= session.latest  # the log may have been damaged, and a line of it lost
    summary = {
        "status": status,
        "step": session.step,
        "best_step": run.checkpoints.best_step(),
        "metrics": scores,
        "seconds_of_this_session": round(seconds, 3),
        "samples": len(session.data),
        "data_origin": session.data.name,
        "skipped": {
            split: {
                kind: {"count": len(names), "first": list(names[:_NAMED])}
                for kind, names in report.skipped.items()
            }
            for split, report in loaded.items()
            if report.skipped
        },
        "ranks": session.ranks.size,
        "versions": {"uncollapse": __version__, "torch": torch.__version__},
    }
    write_summary(run, summary)
