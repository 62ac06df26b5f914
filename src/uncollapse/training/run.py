"""A run folder as others read it: config, metrics, summary, measures and checkpoints."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uncollapse._base.check import InputError
from uncollapse._base.files import DamagedFileError, read_json, read_jsonl, read_toml
from uncollapse.backbones import BACKBONES, Embedder
from uncollapse.training import assemble
from uncollapse.training import measures as files
from uncollapse.training.checkpoint import Checkpoint, CheckpointError, CheckpointStore
from uncollapse.training.config import Config, parse_config, with_new_names
from uncollapse.training.manifest import Manifest

__all__ = ["Run", "UntrustedCodeError", "check_trusted", "ends_below", "find_damage"]

_SECTIONS = ("seed", "data", "model", "batch", "optimizer", "train")  # of a run's own config
_CONFIG_REMEDY = (
    "put the run's own back, or delete it: uncollapse train CONFIG --resume then writes it again, "
    "if the checkpoints were made with that config"
)


@dataclass(frozen=True, eq=False)
class Chosen:
    """A checkpoint that was asked for, or what stands in for it; `warnings` say so.

    `model` is its network in evaluation mode.
    """

    checkpoint: Checkpoint
    model: Embedder
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """A run folder: `config.toml`, `metrics.jsonl`, `summary.json`, `checkpoints/`.

    And what was measured once, at its start and its end: `measures.json` and the files beside it.
    `manifest.json` has the checksums of all of them. A run whose config names code
    (`model.backbone = "module:function"`) gives its network only where `trust` is set.
    """

    path: Path
    trust: bool = False

    @classmethod
    def open(cls, path: str | Path, *, trust: bool = False) -> Run:
        """A run that exists; the error says what is missing.

        `trust` allows code that its config names to be imported.
        """
        run = cls(Path(path), trust)
        if not run.config_file.is_file():
            lost = bool(run.checkpoints.steps())
            given = f"{path} (no config.toml in it{', but checkpoints' * lost})"
            raise InputError("run", given, f"a run directory{f'; {_CONFIG_REMEDY}' * lost}")
        return run

    @property
    def config_file(self) -> Path:
        """The resolved config."""
        return self.path / "config.toml"

    @property
    def metrics_file(self) -> Path:
        """One JSON object per line, in the order of the steps."""
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
        path = self.config_file
        try:
            values = with_new_names(read_toml(path))
            lost = [name for name in _SECTIONS if name not in values]
            if lost:
                raise DamagedFileError(path, f"it has no {lost[0]!r}")
            return parse_config(values)
        except (DamagedFileError, InputError) as error:
            why = getattr(error, "why", error)
            raise DamagedFileError(path, f"{why}; {_CONFIG_REMEDY}") from None

    @property
    def summary(self) -> dict[str, Any]:
        """How it ended; empty while it has not. `DamagedFileError` if it cannot be read."""
        path = self.summary_file
        if not path.is_file():
            return {}
        try:
            Manifest.read(self.path).check(path.name)
            values: dict[str, Any] = read_json(path)
        except DamagedFileError as error:
            remedy = "uncollapse train with --resume writes it again"
            raise DamagedFileError(path, f"{error.why}; {remedy}") from None
        return values

    @property
    def finished(self) -> bool:
        """Whether all steps were made."""
        return self.summary.get("status") == "finished"

    def metrics(self, complaints: list[str] | None = None) -> Iterator[dict[str, Any]]:
        """The logged lines; a last line cut short by a crash is left out.

        A damaged one raises; with `complaints` it is left out, and a sentence added there.
        """
        if self.metrics_file.is_file():
            yield from read_jsonl(self.metrics_file, complaints)

    def measures(self) -> files.Measures:
        """Every figure of the start and the end; `NotMeasuredError` where they were not taken."""
        return files.read_measures(self.path)

    def rows(self, when: files.When, split: str) -> files.SplitRows:
        """The fixed rows of a split with their embeddings `before` or `after` training."""
        return files.read_rows(self.path, when, split)

    def samples(self, split: str) -> files.Samples:
        """A few queries of a split, their nearest neighbours after training, and pictures."""
        return files.read_samples(self.path, split)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample as the network sees it: `(C, H, W)` or `(features,)`."""
        checkpoint, complaints = self.checkpoints.load_last()
        if checkpoint is None:
            raise self._none_usable(complaints)
        return tuple(checkpoint.state["shape"])

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
            models[checkpoint.step] = self._network(checkpoint)

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

    def _network(self, checkpoint: Checkpoint) -> Embedder:
        shape = checkpoint.state.get("shape")
        if not isinstance(shape, list | tuple):
            text = f"the checkpoint of step {checkpoint.step} is damaged: its state has no 'shape'"
            raise CheckpointError(text)
        model = assemble.build_model(self.config, shape)
        checkpoint.check_tensors(model.state_dict())
        model.load_state_dict(dict(checkpoint.weights))
        return model.eval()

    def _none_usable(self, complaints: list[str]) -> CheckpointError:
        why = "; ".join(complaints) or "none was written"
        return CheckpointError(
            f"{self.path} has no usable checkpoint: {why}; put back what was damaged, or train "
            "again into a new folder"
        )


def find_damage(run: Run) -> list[str]:
    """A sentence for each file of a run that is not as the run left it.

    Checkpoints are verified where they are used, not here.
    """
    manifest = Manifest.read(run.path)
    names = [name for name in manifest.files if not name.startswith("checkpoints/")]
    log = manifest.log_damage(run.metrics_file, ended="summary.json" in names)
    complaints = [manifest.complaint, *map(manifest.damage, names), log]
    return [text for text in complaints if text is not None]


def warn_user(text: str) -> None:
    """Tell a user of the library, as Python warns."""
    warnings.warn(text, UserWarning, stacklevel=3)


# Code that the config of a run folder names is imported only where the user trusts it.

_RUN_FILES = ("checkpoints", "metrics.jsonl", "summary.json", "measures.json")


class UntrustedCodeError(ValueError):
    """A run whose config names code; the message says how to go on."""


def check_trusted(folder: Path, config: Config, *, trust: bool = False) -> None:
    """Raise `UntrustedCodeError` if the config of a run folder names code, without `trust`.

    A folder that is no run, where a config lies that somebody wrote by hand, is not judged.
    """
    name = config.model.backbone
    built_in = name in BACKBONES or name.startswith(("timm:", "sentence:")) or ":" not in name
    is_run = (folder / "config.toml").is_file() and any(
        (folder / file).exists() for file in _RUN_FILES
    )
    if is_run and not built_in and not trust:
        raise UntrustedCodeError(
            f"{folder}: its config names code (model.backbone = {name!r}). Nothing of it was "
            f"imported. Read the module {name.partition(':')[0]!r} as your Python finds it; then "
            "pass --trust, or trust=True to Run.open"
        )


# Scores of the network before training beside those of a later one, and where these are lower.


def start_scores(run: Run) -> dict[str, float]:
    """Scores of the network before training by `split/name`, as they were measured.

    They are of the same samples as those logged at the end. Empty for a run without measures.
    """
    try:
        before = run.measures().before
    except (files.NotMeasuredError, DamagedFileError):
        return {}
    return {
        f"{split}/{name}": value
        for split, figures in before.splits.items()
        for name, value in figures.scores.items()
    }


def ends_below(start: Mapping[str, float], end: Mapping[str, float]) -> list[str]:
    """A sentence for each split and kind of label where R@1 (the smallest k) is below its start.

    >>> ends_below({"test/recall@1": 0.498, "test/recall@5": 0.7},
    ...            {"test/recall@1": 0.375, "test/recall@5": 0.6})
    ['R@1 on test ends below the network before training: 37.5 % against 49.8 %.']
    """
    sentences = []
    for group in dict.fromkeys(key.rpartition("recall@")[0] for key in end if "recall@" in key):
        both = [key for key in end if key.startswith(f"{group}recall@") and key in start]
        k = min((int(key.rpartition("@")[2]) for key in both), default=0)
        key = f"{group}recall@{k}"
        if not both or end[key] >= start[key]:
            continue
        last, first = 100 * end[key], 100 * start[key]
        digits = next((d for d in (1, 2, 3) if f"{last:.{d}f}" != f"{first:.{d}f}"), 4)
        fine = " by fine labels" * group.endswith("fine/")
        split = f" on {group.removesuffix('fine/')[:-1]}" if group.removesuffix("fine/") else ""
        sentences.append(
            f"R@{k}{fine}{split} ends below the network before training: {last:.{digits}f} % "
            f"against {first:.{digits}f} %."
        )
    return sentences
