"""A run as a report sees it: what was logged and what was measured, each read once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from uncollapse._base.check import InputError
from uncollapse._base.files import DamagedFileError
from uncollapse.health import Health
from uncollapse.report.history import History, read_history
from uncollapse.report.snapshot import Snapshot, take_snapshot
from uncollapse.training import Run
from uncollapse.training.below_start import ends_below, start_scores
from uncollapse.training.summary import find_damage

__all__ = ["RunView", "view_runs"]


@dataclass(frozen=True, eq=False)
class RunView:
    """A run, with what is read from it only once."""

    name: str
    run: Run

    @property
    def split(self) -> str:
        """What is looked at: the first evaluation split; the training one where there is none."""
        data = self.run.config.data
        return next(iter(data.eval_splits), data.train_split)

    @property
    def history(self) -> History:
        """What was logged, as far as it can be read."""
        return self._logged[0]

    @cached_property
    def snapshot(self) -> Snapshot | str:
        """The split as it was measured before and after training, or why it was not."""
        return take_snapshot(self.run, self.split)

    @property
    def health(self) -> Health | None:
        """Of the trained embedding, if there is one."""
        return self.snapshot.health if isinstance(self.snapshot, Snapshot) else None

    @property
    def verdict(self) -> str | None:
        """Of the trained embedding; where it was not measured, the last one logged."""
        return self.history.verdict if self.health is None else self.health.verdict

    @property
    def recall(self) -> float | None:
        """Recall at the smallest k, as last logged."""
        return self.history.last(f"{self.split}/recall@{min(self.run.config.evaluate.ks)}")

    @cached_property
    def start_scores(self) -> Mapping[str, float]:
        """Scores of the network before training, by `split/name`."""
        return start_scores(self.run)

    @property
    def ends_below(self) -> list[str]:
        """A sentence for each R@1 that is below that of the network before training."""
        last = {key: self.history.last(key) for key in self.start_scores}
        return ends_below(self.start_scores, {k: v for k, v in last.items() if v is not None})

    @cached_property
    def warnings(self) -> list[str]:
        """A sentence for each file that is not as the run left it."""
        found = [*find_damage(self.run), *self._logged[1]]
        if not self.summary:
            found += self._saved[1]
        return list(dict.fromkeys(found))

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """How it ended; empty where that is not known."""
        try:
            return self.run.summary
        except DamagedFileError:  # among the warnings
            return {}

    @property
    def status(self) -> str:
        """How far it came, in words."""
        if self.summary:
            return f"{self.summary['status']} at step {self.summary['step']:,}"
        step, _ = self._saved
        return "not ended" if step is None else f"not ended, saved at step {step:,}"

    @cached_property
    def _logged(self) -> tuple[History, list[str]]:
        complaints: list[str] = []
        return read_history(self.run, complaints), complaints

    @cached_property
    def _saved(self) -> tuple[int | None, list[str]]:
        """The newest checkpoint that is whole, and what is wrong with newer ones."""
        complaints: list[str] = []
        for step in reversed(self.run.checkpoints.steps()):
            complaint = self.run.checkpoints.complaint(step)
            if complaint is None:
                return step, complaints
            complaints.append(complaint)
        return None, complaints


def view_runs(runs: Sequence[Run | str | Path]) -> list[RunView]:
    """Open the runs; one that is named twice is taken once."""
    found = [run if isinstance(run, Run) else Run.open(run) for run in runs]
    opened = list({run.path.resolve(): run for run in found}.values())
    if not opened:
        raise InputError("runs", "none", "at least one run directory")
    names = _names(opened)
    return [RunView(name, run) for name, run in zip(names, opened, strict=True)]


def _names(runs: list[Run]) -> list[str]:
    """Directory names, with the folder above where two are alike."""
    short = [run.path.resolve().name for run in runs]
    if len(set(short)) == len(short):
        return short
    long = ["/".join(run.path.resolve().parts[-2:]) for run in runs]
    return long if len(set(long)) == len(long) else [str(run.path) for run in runs]
