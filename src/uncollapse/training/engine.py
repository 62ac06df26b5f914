"""Train from a config into a run folder; killed at any moment, it resumes exactly."""

from __future__ import annotations

import errno
import json
import math
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from uncollapse._base.check import InputError
from uncollapse._base.extras import give_back_memory, keep_memory
from uncollapse._base.files import DamagedFileError, write_json, write_text
from uncollapse._base.lock import FolderOwner
from uncollapse._base.progress import ProgressLine, quiet_console
from uncollapse._version import __version__
from uncollapse.data.listing import LoadReport
from uncollapse.health.advice import lower_rate
from uncollapse.training.assemble import as_evaluated, load_data, pick_device
from uncollapse.training.checkpoint import CheckpointError, check_same
from uncollapse.training.config import Config
from uncollapse.training.distributed import LostRankError, Ranks, join
from uncollapse.training.evaluation import Evaluated, GallerySearch, NotFiniteError
from uncollapse.training.log import Log, repair_log
from uncollapse.training.manifest import Manifest
from uncollapse.training.measurer import Measurer, settled_copy
from uncollapse.training.measures import by_split, find_damage
from uncollapse.training.run import Run
from uncollapse.training.session import Session

if TYPE_CHECKING:
    from uncollapse._base.progress import Console

_OF_A_SWEEP = "failure.json"  # beside a run that failed before it began
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
) -> Run:
    """Train as the config says, in the folder `out`, and return the run.

    The folder must be new or empty unless `resume` is set; then the run goes on from its newest
    checkpoint that verifies, and ends with the weights and metrics it would have had uninterrupted
    (bit for bit on the CPU with the same number of threads). Ctrl-C finishes the step, saves and
    stops. Every file is written atomically: a crash costs at most the steps since the last
    checkpoint. One process owns the folder: a second one gets `InUseError`. An `owner` holds it
    already; by default it is held while this function runs.
    """
    run = Run(Path(out))
    config.loss.checked()  # what is wrong with a loss of your own is said at once
    device = pick_device(config.train.device)
    with join(device, config.distributed.timeout) as ranks, ExitStack() as held:
        if owner is None:
            owner = FolderOwner(run.path)
            # True: what the other ranks get.
            ranks.on_first(lambda: bool(held.enter_context(owner)))
        warnings = ranks.on_first(lambda: _check_entry(run, config, resume=resume))
        if warnings is None:
            return run
        try:
            _train(config, run, ranks, console, owner, warnings)
        except LostRankError as error:
            text = f"{error}; {_last_saved(run)}: go on with the same command and --resume"
            raise LostRankError(text) from error
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            text = f"the disk of {run.path} is full ({error.strerror}); {_last_saved(run)}"
            raise TrainingError(f"{text}: make room and go on with --resume") from error
        finally:
            give_back_memory()
    return run


def _train(
    config: Config,
    run: Run,
    ranks: Ranks,
    console: Console | None,
    owner: FolderOwner,
    warnings: list[str],
) -> None:
    keep_memory()
    if config.train.threads is not None:
        torch.set_num_threads(config.train.threads)
    session = Session(config, load_data(config, config.data.train_split), ranks)
    measurer = Measurer(run, config, as_evaluated(session.data, config))
    begun = time.monotonic()
    console = console if ranks.first else quiet_console()
    with requests_to_stop(patient=ranks.size > 1) as asked:
        reports = _skipped(session, measurer).items()
        skipped = [f"{name}: {report.skipped_summary()}" for name, report in reports]
        notes = [*skipped, *warnings, *measurer.notes, *_restore(session, run, measurer)]
        bar = ProgressLine(run.path.name, config.train.steps, console, start=session.step)
        path = run.metrics_file if ranks.first else None
        with bar as line, Log(path, config, session.log_offset) as log:
            for note in notes:
                line.note(f"warning: {note}")
            ranks.on_first(lambda: _begin(session, run))
            session.check_ranks()
            status = _Loop(session, run, measurer, log, line, owner).go(asked)
    seconds = time.monotonic() - begun
    ranks.on_first(lambda: _summarise(session, run, measurer, status, seconds))


# What a run folder holds before training begins: nothing, this run, or something to refuse.


def _check_entry(run: Run, config: Config, *, resume: bool) -> list[str] | None:
    """Raise unless this run may begin or resume in its folder; return warnings, None if it is done.

    A run begins in a new or empty folder only; hidden files do not count. `resume` goes on with the
    run that is there, if it has this config.
    """
    if run.config_file.is_file():
        if not resume:
            given = f"{run.path}, which holds a run"
            raise InputError("out", given, "a new folder, or --resume to go on with that run")
        check_same(run.config, config)
        try:
            return None if _is_done(run, config) else []
        except DamagedFileError as error:  # its summary
            return [str(error)]
    has_checkpoints = bool(run.checkpoints.steps())
    if resume and has_checkpoints:
        return [f"{run.config_file} is missing; it is written again, from the config given"]
    names = sorted({p.name for p in run.path.glob("[!.]*")} - ({_OF_A_SWEEP} if resume else set()))
    if names:
        shown = ", ".join(names[:3]) + ", ..." * (len(names) > 3)
        remedy = ", or --resume with the config its checkpoints were made with" * has_checkpoints
        given = f"{run.path}, which holds {shown} but no config.toml"
        raise InputError("out", given, f"a new or empty folder{remedy}")
    return []


def _is_done(run: Run, config: Config) -> bool:
    """Whether the run in the folder is complete and all its files are intact."""
    if not run.finished or run.summary["step"] < config.train.steps:
        return False
    store, steps = run.checkpoints, run.checkpoints.steps()
    intact = bool(steps) and store.complaint(steps[-1]) is None and store.best()[1] is None
    return intact and not find_damage(run)


def _restore(session: Session, run: Run, measurer: Measurer) -> list[str]:
    """Resume from the newest valid checkpoint, if there is one; return warnings."""
    store, first = run.checkpoints, session.ranks.on_first
    checkpoint, complaints = first(lambda: store.load_last(session.restore))
    if checkpoint is None and complaints:
        remedy = "put back what was damaged, or train into a new folder"
        raise CheckpointError(f"{'; '.join(complaints)}; {remedy}")
    notes: list[str | None] = []
    if checkpoint is not None:
        session.restore(checkpoint)  # the other ranks
        notes = [f"{text}; going on from the one of step {checkpoint.step}" for text in complaints]
        manifest = first(store.manifest)
        session.log_offset, complaint = first(
            lambda: repair_log(run.metrics_file, session.log_offset, manifest)
        )
        notes += [manifest.complaint, complaint, first(store.best)[1]]
    notes.append(first(measurer.drop_damaged))
    return [note for note in notes if note is not None]


def _begin(session: Session, run: Run) -> None:
    """Write the config and the manifest, and remove the summary of an earlier session."""
    write_text(run.config_file, session.config.to_toml())
    run.summary_file.unlink(missing_ok=True)
    manifest = Manifest.read(run.path)
    if manifest.complaint is not None:
        manifest = run.checkpoints.adopt(Manifest(run.path), session.step)
    manifest = manifest.record("config.toml", "summary.json")
    manifest.with_log(run.metrics_file).write()


def _last_saved(run: Run) -> str:
    """How far the checkpoints go, in words."""
    steps = run.checkpoints.steps()
    return f"step {steps[-1]} is saved" if steps else "no checkpoint was written yet"


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
    failed = True
    try:
        yield asked
        failed = False
    finally:
        if not (failed and patient):
            for number, handler in before.items():
                signal.signal(number, handler)


@dataclass(frozen=True)
class _Loop:
    """The steps of a run, with its log, evaluations, checkpoints and measures."""

    session: Session
    run: Run
    measurer: Measurer
    log: Log
    line: ProgressLine
    owner: FolderOwner

    def go(self, asked: threading.Event) -> str:
        """Make the steps that are left; `finished`, `stopped` by the guard, or `interrupted`."""
        session, c, ranks = self.session, self.session.config.train, self.session.ranks
        if session.step == 0 and session.log_offset == 0:
            self._measure_before()
        evaluated: Evaluated | None = None
        stop = ranks.any(asked.is_set())
        while session.step < c.steps and not stop and not session.stopped:
            values = session.advance()
            last = session.step == c.steps or session.stopped
            self._report_step(values, last=last)
            best = False
            if session.step % c.evaluate_every == 0 or last:
                evaluated = self._evaluate()
                give_back_memory()
                scores = by_split(evaluated.scores)
                self._write(scores)
                # Judged by R@1 on the first evaluation split, or the smallest k there is.
                key = next((k for k in scores if "recall@" in k and "fine/" not in k), None)
                self.line.show(session.step, {} if key is None else {key: scores[key]})
                if key is not None and scores[key] > session.best:
                    best, session.best = True, scores[key]
            if best or last or session.step % c.checkpoint_every == 0:
                self._save(best=best)
            stop = ranks.any(asked.is_set())
        if stop and session.step < c.steps and not session.stopped:
            self._save()
            self.line.note(f"interrupted: {_last_saved(self.run)}; go on with --resume")
            return "interrupted"
        state = (session.step, session.model, session.loss, evaluated)
        ranks.on_first(lambda: self.measurer.take_after(*state))
        return "stopped" if session.stopped else "finished"

    def _report_step(self, values: dict[str, Any], *, last: bool) -> None:
        step = self.session.step
        if "event" in values:
            self.line.note(f"step {step}: {values['event']}")
        loss = values.get("loss", 0.0)  # none where the guard has rolled the step back
        if not math.isfinite(loss):
            del values["loss"]  # JSON has no NaN
            self.log.write(step, values)
            raise self._diverged(f"the loss became {loss}")
        if step % self.session.config.train.log_every == 0 or last or "event" in values:
            self._write(values)
            self.line.show(step, values)

    def _write(self, values: Mapping[str, Any]) -> None:
        # Kept with the checkpoint as well: what a run reached does not depend on its log.
        self.session.latest |= json.loads(json.dumps(values))
        self.log.write(self.session.step, values)

    def _save(self, *, best: bool = False) -> None:
        """Write a checkpoint unless weights are not finite, which the next step will report."""
        session = self.session
        if not session.sound:
            return
        session.log_offset = self.log.offset()
        session.check_ranks()

        def write() -> None:
            self.owner.check()
            checkpoint, log = session.checkpoint(), self.run.metrics_file
            self.run.checkpoints.save(checkpoint, best=best, log=log)

        session.ranks.on_first(write)

    def _evaluate(self) -> Evaluated:
        """Evaluate; roll back a network that turns out to have diverged, if the guard can."""
        session = self.session
        give_back_memory()  # kept between steps, it would add up with what comes next
        while True:
            if session.sound:
                with suppress(NotFiniteError):
                    return self.measurer.evaluate(session.model, session.ranks)
            rescued = session.rescue_lost()
            if rescued is None:
                raise self._diverged("embeddings became NaN or infinite")
            self._write({"event": rescued, "verdict": "diverging"})
            self.line.note(f"step {session.step}: {rescued}")

    def _measure_before(self) -> None:
        """Log and measure the state before training, to compare with."""
        session, measurer = self.session, self.measurer
        settled = settled_copy(session.model, session.loss, session.config, measurer.train)
        evaluated = measurer.evaluate(settled[0], session.ranks)
        self._write(by_split(evaluated.scores))
        for split, judge in measurer.judges.items():
            self._write({"event": f"{split}: {judge.describe()}"})
        session.ranks.on_first(lambda: measurer.take_before(*settled, session.loss, evaluated))
        give_back_memory()

    def _diverged(self, what: str) -> TrainingError:
        session, guard = self.session, self.session.guard
        rescue, tried = " or guard.action = 'rescue'", ""
        if guard is not None and guard.action == "rescue":
            rescue, tried = "", f", also at {guard.lr_factor:.2g} times the learning rate"
        rate = f"{lower_rate(session.config.optimizer.lr):.1g}"
        return TrainingError(
            f"diverging: {what} at step {session.step}{tried}; {_last_saved(self.run)}. Begin in a "
            f"new folder with a lower optimizer.lr, such as {rate}, with optimizer.clip = 1.0"
            f"{rescue}"
        )


def _skipped(session: Session, measurer: Measurer) -> dict[str, LoadReport]:
    """The reports of the splits, galleries among them, that have skipped files."""
    splits = {session.config.data.train_split: session.data, **measurer.evaluated}
    for judge in measurer.judges.values():
        if isinstance(judge, GallerySearch):
            splits["gallery"] = judge.gallery
    return {name: data.report for name, data in splits.items() if data.report.skipped}


def _summarise(session: Session, run: Run, measurer: Measurer, status: str, seconds: float) -> None:
    summary = {
        "status": status,
        "step": session.step,
        "best_step": run.checkpoints.best()[0],
        "metrics": session.latest,
        "seconds_of_this_session": round(seconds, 3),
        "samples": len(session.data),
        "data_origin": session.data.name,
        "skipped": {
            split: {
                kind: {"count": len(names), "first": list(names[:_NAMED])}
                for kind, names in report.skipped.items()
            }
            for split, report in _skipped(session, measurer).items()
        },
        "ranks": session.ranks.size,
        "versions": {"uncollapse": __version__, "torch": torch.__version__},
    }
    write_json(run.summary_file, summary)
    Manifest.read(run.path).record("summary.json").with_log(run.metrics_file).write()
