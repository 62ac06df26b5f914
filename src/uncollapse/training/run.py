"""A run directory as others read it: config, metrics, summary and checkpoints, from its files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uncollapse._base.check import InputError
from uncollapse._base.files import read_json, read_jsonl
from uncollapse.backbones import Embedder
from uncollapse.training.assemble import build_model
from uncollapse.training.checkpoint import Checkpoint, CheckpointError, CheckpointStore
from uncollapse.training.config import Config, load_config
from uncollapse.training.measured_rows import Samples, SplitRows, When, read_rows, read_samples
from uncollapse.training.measures import Measures, read_measures
from uncollapse.training.trust import check_trusted

__all__ = ["Run"]


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
            raise InputError("run", f"{path} (no config.toml in it)", "a run directory")
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
        """The config the run was made with."""
        return load_config(self.config_file)

    @property
    def summary(self) -> dict[str, Any]:
        """How it ended; empty while it has not."""
        if not self.summary_file.is_file():
            return {}
        found: dict[str, Any] = read_json(self.summary_file)
        return found

    @property
    def finished(self) -> bool:
        """Whether all steps were made."""
        return self.summary.get("status") == "finished"

    def metrics(self) -> Iterator[dict[str, Any]]:
        """The logged lines; a last line cut short by a crash is left out."""
        if not self.metrics_file.is_file():
            return
        yield from read_jsonl(self.metrics_file)

    def measures(self) -> Measures:
        """Every figure of the start and the end; `NotMeasuredError` where they were not taken."""
        return read_measures(self.path)

    def rows(self, when: When, split: str) -> SplitRows:
        """The fixed rows of a split with their embeddings `before` or `after` training."""
        return read_rows(self.path, when, split)

    def samples(self, split: str) -> Samples:
        """A few queries of a split, their nearest neighbours after training, and pictures."""
        return read_samples(self.path, split)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample as the network sees it: `(C, H, W)` or `(features,)`."""
        return tuple(self.last_checkpoint().state["shape"])

    def load_model(self, which: str = "last") -> Embedder:
        """The trained network in evaluation mode: the `last` checkpoint, or the `best` one."""
        step = self.checkpoints.best_step() if which == "best" else None
        checkpoint = self.last_checkpoint() if step is None else self.checkpoints.load(step)
        model = self.build_model(checkpoint.state["shape"])
        model.load_state_dict(dict(checkpoint.weights))
        return model.eval()

    def build_model(self, shape: Iterable[int]) -> Embedder:
        """The untrained network; `UntrustedCodeError` if that takes code of unknown origin."""
        check_trusted(self.path, self.config, trust=self.trust)
        return build_model(self.config, shape)

    def last_checkpoint(self) -> Checkpoint:
        """The newest checkpoint that verifies; `CheckpointError` if there is none."""
        last, complaints = self.checkpoints.load_last()
        if last is None:
            why = "; ".join(complaints) or "none was written"
            raise CheckpointError(f"{self.path} has no usable checkpoint: {why}")
        return last
