"""A run directory as others read it: config, metrics, summary and checkpoints, from its files."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uncollapse._base.check import InputError
from uncollapse._base.files import DamagedFileError, read_jsonl, read_toml
from uncollapse.backbones import Embedder
from uncollapse.training.assemble import build_model
from uncollapse.training.checkpoint import Checkpoint, CheckpointError, CheckpointStore
from uncollapse.training.config import Config, parse_config
from uncollapse.training.fitting import check_config, check_tensors
from uncollapse.training.measured_rows import Samples, SplitRows, When, read_rows, read_samples
from uncollapse.training.measures import Measures, check_rows, read_measures
from uncollapse.training.summary import read_summary
from uncollapse.training.trust import check_trusted

__all__ = ["Chosen", "Run", "warn_user"]

_SECTIONS = ("seed", "data", "model", "batch", "optimiser", "train")  # a run's own config has these
_REMEDY = (
    "put the run's own back, or delete it: uncollapse train CONFIG --resume then writes it again, "
    "if the checkpoints were made with that config"
)


def warn_user(text: str) -> None:
    """Tell a user of the library, as Python warns."""
    warnings.warn(text, UserWarning, stacklevel=3)


@dataclass(frozen=True, eq=False)
class Chosen:
    """A checkpoint that was asked for, or what stands in for it; `warnings` say so.

    `model` is its network in evaluation mode.
    """

    checkpoint: Checkpoint
    model: Embedder
    warnings: tuple[str, ...] = ()

    @property
    def step(self) -> int:
        """The step the network was saved at."""
        return self.checkpoint.step


@dataclass(frozen=True)
class Run:
    """A run directory: `config.toml`, `metrics.jsonl`, `summary.json`, `checkpoints/`.

    And what was measured once, at its start and its end: `measures.json` and the files beside it.
    A run whose config names code of one's own (`model.backbone = "module:function"`) gives its
    network only where one has trained it oneself, or where `trust` is set.
    """

    path: Path
    trust: bool = False

    @classmethod
    def open(cls, path: str | Path, *, trust: bool = False) -> Run:
        """A run that exists; the error says what is missing.

        `trust` allows code that its config names to be imported, whoever made the run.
        """
        run = cls(Path(path), trust)
        if not run.config_file.is_file():
            lost = bool(run.checkpoints.steps())
            given = f"{path} (no config.toml in it{', but checkpoints' * lost})"
            raise InputError("run", given, f"a run directory{f'; {_REMEDY}' * lost}")
        return run

    @property
    def config_file(self) -> Path:
        """The resolved config."""
        return self.path / "config.toml"

    @property
    def metrics_file(self) -> Path:
        """One JSON object a line, in the order of the steps."""
        return self.path / "metrics.jsonl"

    @property
    def summary_file(self) -> Path:
        """Written when the run ends."""
        return self.path / "summary.json"

    @property
    def checkpoints(self) -> CheckpointStore:
        """The checkpoints kept."""
        return CheckpointStore(self.path / "checkpoints")

    @property
    def config(self) -> Config:
        """The config the run was made with; `DamagedFileError` if it is not a whole one."""
        try:
            values = read_toml(self.config_file)
            lost = [name for name in _SECTIONS if name not in values]
            if lost:
                raise DamagedFileError(self.config_file, f"it has no {lost[0]!r}")
            return parse_config(values)
        except DamagedFileError as error:
            raise DamagedFileError(self.config_file, f"{error.why}; {_REMEDY}") from None
        except InputError as error:
            raise DamagedFileError(self.config_file, f"{error}; {_REMEDY}") from None

    @property
    def summary(self) -> dict[str, Any]:
        """How it ended; empty while it has not. `DamagedFileError` if it cannot be read."""
        return read_summary(self.summary_file)

    @property
    def finished(self) -> bool:
        """Whether all steps were made."""
        return self.summary.get("status") == "finished"

    def metrics(self, complaints: list[str] | None = None) -> Iterator[dict[str, Any]]:
        """The logged lines; a last line cut short by a crash is left out.

        A damaged one raises, or with `complaints` is left out and complained of there.
        """
        if not self.metrics_file.is_file():
            return
        yield from read_jsonl(self.metrics_file, complaints)

    def measures(self) -> Measures:
        """Every figure of the start and the end; `NotMeasuredError` where they were not taken."""
        return read_measures(self.path)

    def rows(self, when: When, split: str) -> SplitRows:
        """The fixed rows of a split with their embeddings `before` or `after` training."""
        check_rows(self.path)
        return read_rows(self.path, when, split)

    def samples(self, split: str) -> Samples:
        """A few queries of a split, their nearest neighbours after training, and pictures."""
        check_rows(self.path)
        return read_samples(self.path, split)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample as the network sees it: `(C, H, W)` or `(features,)`."""
        return tuple(self.last_checkpoint().state["shape"])

    def choose(self, which: str = "last") -> Chosen:
        """The `last` checkpoint, or the `best` one, with its network.

        Where that one is damaged or not of this run, the newest that can be used stands in for it,
        and `warnings` say so; `CheckpointError` if there is none.
        """
        config, store = self.config, self.checkpoints
        check_trusted(self.path, config, trust=self.trust)
        told: list[str] = []
        models: dict[int, Embedder] = {}

        def accept(checkpoint: Checkpoint) -> None:
            notes = check_config(checkpoint, config)
            models[checkpoint.step] = self._network(checkpoint)
            told.extend(note for note in notes if note not in told)

        if which == "best":
            step, complaint = store.best()
            if step is None:
                complaint = complaint or f"no checkpoint in {store.folder} is marked as the best"
            told += [complaint] if complaint else []
            try:
                if step is not None:
                    found = store.load(step)
                    accept(found)
                    return Chosen(found, models[step], tuple(told))
            except CheckpointError as error:
                told.append(str(error))
        last, complaints = store.load_last(accept)
        if last is None:
            raise self._none_usable([*told, *complaints])
        if complaints or which == "best":
            told += [text for text in complaints if text not in told]
            told[-1] += f"; using the checkpoint of step {last.step}"
        return Chosen(last, models[last.step], tuple(told))

    def load_model(self, which: str = "last") -> Embedder:
        """The trained network in evaluation mode: the `last` checkpoint, or the `best` one.

        Warns, as Python does, where another one stands in for it: see `choose`.
        """
        chosen = self.choose(which)
        for text in chosen.warnings:
            warn_user(text)
        return chosen.model

    def build_model(self, shape: Iterable[int]) -> Embedder:
        """The untrained network; `UntrustedCodeError` if that takes code of unknown origin."""
        check_trusted(self.path, self.config, trust=self.trust)
        return build_model(self.config, shape)

    def last_checkpoint(self) -> Checkpoint:
        """The newest checkpoint that verifies; `CheckpointError` if there is none."""
        last, complaints = self.checkpoints.load_last()
        if last is None:
            raise self._none_usable(complaints)
        return last

    def _network(self, checkpoint: Checkpoint) -> Embedder:
        shape = checkpoint.state.get("shape")
        if not isinstance(shape, list | tuple):
            text = f"the checkpoint of step {checkpoint.step} is damaged: its state has no 'shape'"
            raise CheckpointError(text)
        model = self.build_model(shape)
        check_tensors(checkpoint.step, checkpoint.weights, model.state_dict())
        model.load_state_dict(dict(checkpoint.weights))
        return model.eval()

    def _none_usable(self, complaints: list[str]) -> CheckpointError:
        why = "; ".join(complaints) or "none was written"
        return CheckpointError(
            f"{self.path} has no usable checkpoint: {why}; put back what was damaged, or train "
            "again into a new folder"
        )
