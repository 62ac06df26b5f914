"""A run that can be built again: its folder, its config checked, networks of its checkpoints."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from uncollapse._base.check import InputError
from uncollapse._base.files import DamagedFileError
from uncollapse._base.result import Card, Shown
from uncollapse.backbones import Embedder
from uncollapse.data.sources import StartScale
from uncollapse.training import assemble
from uncollapse.training.checkpoint import Checkpoint, CheckpointError, CheckpointStore
from uncollapse.training.config import Config, parse_config, set_keys
from uncollapse.training.measures import RunFolder


@dataclass(frozen=True, eq=False)
class Chosen:
    """A checkpoint that was asked for, or what stands in for it; `warnings` say so.

    `model` is its network in evaluation mode.
    """

    checkpoint: Checkpoint
    model: Embedder
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class Run(Shown, RunFolder):
    """A run folder from which networks can be built: its config, checked, and its checkpoints.

    A run whose config names code (`model.backbone = "module:function"`, a loss or a dataset) gives
    its network only where `trust` is set.
    """

    trust: bool = False

    @classmethod
    def open(cls, path: str | Path, *, trust: bool = False) -> Self:
        """A run that exists; the error says what is missing.

        `trust` allows code that its config names to be imported.
        """
        return replace(super().open(path), trust=trust)

    def card(self) -> Card:
        """How it ended, its scores and its last figures."""
        try:
            end = self.summary or {"status": "not finished"}
        except DamagedFileError as error:
            return Card(f"Run {self.path.name}", [error.why], "bad")
        figures = dict(end.get("metrics", {}))
        shares = {name: figures.pop(name) for name in list(figures) if "/" in name}
        return Card(f"Run {self.path.name}: {end['status']}", figures=figures, shares=shares)

    @property
    def checkpoints(self) -> CheckpointStore:
        """The checkpoints kept."""
        return CheckpointStore(self.path / "checkpoints")

    @property
    def config(self) -> Config:
        """The config the run was made with; `DamagedFileError` if it is not a whole one."""
        try:
            return parse_config(set_keys({}, self.values))
        except InputError as error:
            raise self.damaged_config(error) from None

    def start_scale(self, split: str) -> StartScale | None:
        """The scale before training: of this split, or of the first where it was not measured.

        None where there is none to compare with: the rows were equal, or not finite.
        """
        measures = self.measures()
        measured = split if split in measures.before.splits else measures.split
        health, rows = measures.before.splits[measured].health, measures.splits[measured].rows
        sizes = (health.diameter, health.spread, health.cdnv)
        diameter, spread, cdnv = (float(x) if x and 0 < x < math.inf else None for x in sizes)
        if diameter is None:
            return None
        fine = (health.fine_agreement, health.fine_chance) if measured == split else (None, None)
        return StartScale(diameter, spread, cdnv, measured, rows, *fine)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample as the network sees it: `(C, H, W)` or `(features,)`."""
        checkpoint, complaints = self.checkpoints.load_last()
        if checkpoint is None:
            raise self._none_usable(complaints)
        return checkpoint.shape

    def choose(self, which: str = "last") -> Chosen:
        """The `last` checkpoint, or the `best` one, with its network.

        Where the last one is damaged or not of this run, the newest that can be used stands in for
        it, and `warnings` say so. `CheckpointError` if there is none, or no usable best one.
        """
        config, store = self.config, self.checkpoints
        check_trusted(self.path, config, trust=self.trust)
        models: dict[int, Embedder] = {}

        def accept(checkpoint: Checkpoint) -> None:
            checkpoint.check_config(config)
            model = assemble.build_model(config, checkpoint.shape)
            checkpoint.check_tensors(model.state_dict())
            model.load_state_dict(dict(checkpoint.weights))
            models[checkpoint.step] = model.eval()

        notes = [text for text in [store.manifest().complaint] if text]
        if which == "best":
            step, complaint = store.best()
            if step is None:
                unknown = f"no checkpoint in {store.folder} is known to be the best"
                raise CheckpointError(f"{complaint or unknown}; use the last one, without --best")
            return Chosen(store.load(step, accept), models[step], tuple(notes))
        last, complaints = store.load_last(accept)
        if last is None:
            raise self._none_usable([*notes, *complaints])
        if complaints:
            complaints[-1] += f"; using the checkpoint of step {last.step}"
        return Chosen(last, models[last.step], (*notes, *complaints))

    def load_model(self, which: str = "last") -> Embedder:
        """The trained network in evaluation mode: the `last` checkpoint, or the `best` one.

        Warns, as Python does, where another one stands in for it: see `choose`.
        """
        chosen = self.choose(which)
        for text in chosen.warnings:
            warn_user(text)
        return chosen.model

    def _none_usable(self, complaints: list[str]) -> CheckpointError:
        why = "; ".join(complaints) or "none was written"
        return CheckpointError(
            f"{self.path} has no usable checkpoint: {why}; put back what was damaged, or train "
            "again into a new folder"
        )


def warn_user(text: str) -> None:
    """Tell a user of the library, as Python warns."""
    warnings.warn(text, UserWarning, stacklevel=3)


# Code that the config of a run folder names is imported only where the user trusts it.

# Keys that may name it, and prefixes of other names with a colon.
_CODE: dict[str, tuple[str, ...]] = {
    "model.backbone": ("timm:", "sentence:"),
    "loss.name": (),
    "data.name": (),
}
_RUN_FILES = ("checkpoints", "metrics.jsonl", "summary.json", "measures.json")


class UntrustedCodeError(ValueError):
    """A run whose config names code; the message says how to go on."""


def check_trusted(folder: Path, config: Config, *, trust: bool = False) -> None:
    """Raise `UntrustedCodeError` if the config of a run folder names code, without `trust`.

    A folder that is no run, where a config lies that somebody wrote by hand, is not judged.
    """
    flat = config.flat()
    code = [k for k, ours in _CODE.items() if ":" in flat[k] and not flat[k].startswith(ours)]
    is_run = (folder / "config.toml").is_file() and any(
        (folder / file).exists() for file in _RUN_FILES
    )
    if is_run and code and not trust:
        names = ", ".join(f"{key} = {flat[key]!r}" for key in code)
        raise UntrustedCodeError(
            f"{folder}: its config names code ({names}). Nothing of it was imported. Read that "
            "module as your Python finds it; then pass --trust, or trust=True to Run.open"
        )
