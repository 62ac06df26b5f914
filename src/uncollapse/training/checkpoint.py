"""Save and restore checkpoints: renamed into place when whole, verified on load."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from uncollapse._base.check import InputError
from uncollapse._base.files import written_aside
from uncollapse.training.config import Config
from uncollapse.training.manifest import Manifest

_FILES = ("weights.safetensors", "state.pt")
_NAME = re.compile(r"step-([0-9]{8,})")


# What may differ between a run and the config it is resumed with.
_MAY_CHANGE = {
    "distributed.timeout",
    "train.steps",
    "train.log_every",
    "train.loggers",
    "train.threads",
}
# Keys that affect how a network is evaluated, not which network it is.
_OF_EVALUATION = ("data.root", "data.workers", "data.eval_splits", "evaluate.", "train.", "guard.")


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written or used; the message says what is left."""


@dataclass(frozen=True)
class Checkpoint:
    """What a run needs to resume: the network's `weights` and the `state` of everything else.

    `state["config"]` has every key of the config it was made with, by its dotted name.
    """

    step: int
    weights: Mapping[str, Tensor]
    state: Mapping[str, Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample as the network sees it."""
        shape = self.state.get("shape")
        if not isinstance(shape, list | tuple):
            text = f"the checkpoint of step {self.step} is damaged: its state has no 'shape'"
            raise CheckpointError(text)
        return tuple(shape)

    def check_config(self, config: Config, *, resuming: bool = False) -> None:
        """Raise `CheckpointError` if it was made with another config.

        Keys that only affect how a network is evaluated (`[evaluate]`, `data.root`, ...) are
        compared only when `resuming`. A key that one of the two lacks is from another version and
        is not compared.
        """
        values = config.flat()
        for key, old in self.state.get("config", {}).items():
            skipped = key in _MAY_CHANGE or (key.startswith(_OF_EVALUATION) and not resuming)
            if key in values and not skipped and old != values[key]:
                raise CheckpointError(
                    f"the checkpoint of step {self.step} is of another run: it was made with "
                    f"{key} = {old!r}, where the config says {values[key]!r}"
                )

    def check_tensors(self, wanted: Mapping[str, Tensor]) -> None:
        """Raise `CheckpointError` unless names and shapes are those of the network."""
        saved = {name: list(tensor.shape) for name, tensor in self.weights.items()}
        shapes = {name: list(tensor.shape) for name, tensor in wanted.items()}
        for name in {**shapes, **saved}:
            if saved.get(name) != shapes.get(name):
                raise CheckpointError(
                    f"the checkpoint of step {self.step} is of another network: {name} is "
                    f"{saved.get(name) or 'missing'}, and should be {shapes.get(name) or 'missing'}"
                )


@dataclass(frozen=True)
class CheckpointStore:
    """The checkpoints of one run, `folder/step-00000100/`: the last `keep`, and the best.

    A checkpoint's folder appears by one rename when all its files are on disk; then the manifest of
    the run, in the folder above, lists it. One that is not listed was not finished.
    """

    folder: Path
    keep: int = 2

    def save(self, checkpoint: Checkpoint, *, best: bool = False, log: Path | None = None) -> Path:
        """Write a checkpoint and drop the older ones; an error leaves those untouched.

        `log` is the run's log; its present length and checksum go into the manifest.
        """
        step, final = checkpoint.step, self.place(checkpoint.step)
        try:
            with written_aside(final, folder=True) as aside:
                tensors = {k: v.detach().cpu().contiguous() for k, v in checkpoint.weights.items()}
                save_file(tensors, aside / _FILES[0])
                torch.save(dict(checkpoint.state), aside / _FILES[1])
            manifest = self.manifest().record(*self._names(step))
            manifest = manifest if log is None else manifest.with_log(log)
            manifest = replace(manifest, best=step) if best else manifest
            kept = {*sorted({*self.steps(), step})[-self.keep :], manifest.best}
            old = [other for other in self._on_disk() if other not in kept]
            manifest.without(name for other in old for name in self._names(other)).write()
        # torch reports a full disk as RuntimeError, safetensors as its own error.
        except (OSError, RuntimeError, SafetensorError) as error:
            good = next((s for s in reversed(self.steps()) if self.complaint(s) is None), None)
            left = f"the one of step {good} is intact" if good is not None else "there is no other"
            what = f"cannot write the checkpoint of step {step} in {self.folder}"
            raise CheckpointError(f"{what}: {self._reason(error)}; {left}") from error
        # Those of a run that was killed while writing as well.
        for leftover in [*map(self.place, old), *self.folder.glob(".step-*")]:
            shutil.rmtree(leftover, ignore_errors=True)
        return final

    def load_last(
        self, accept: Callable[[Checkpoint], None] | None = None
    ) -> tuple[Checkpoint | None, list[str]]:
        """The newest checkpoint that verifies, and a line about each newer one that does not.

        `accept` may refuse one by raising `CheckpointError`.
        """
        complaints: list[str] = []
        for step in reversed(self.steps()):
            try:
                return self.load(step, accept), complaints
            except CheckpointError as error:
                complaints.append(str(error))
        return None, complaints

    def load(self, step: int, accept: Callable[[Checkpoint], None] | None = None) -> Checkpoint:
        """Read the checkpoint of a step, verified against its checksums.

        `accept` is called before the checksums are compared, so that an intact checkpoint of
        another run is reported as such.
        """
        complaint = self.complaint(step)
        try:
            checkpoint = self._read(step)
        except CheckpointError as error:
            raise CheckpointError(complaint or str(error)) from error
        if accept is not None:
            accept(checkpoint)
        if complaint is not None:
            raise CheckpointError(complaint)
        return checkpoint

    def best(self) -> tuple[int | None, str | None]:
        """The step of the best checkpoint, if one is known; and what is wrong with it."""
        step = self.manifest().best
        if step is None or step in self.steps():
            return step, None
        return None, f"{self.place(step)}, the best checkpoint, is missing"

    def steps(self) -> list[int]:
        """Steps that have a checkpoint, ascending."""
        manifest = self.manifest()
        return [
            step
            for step in self._on_disk()
            if manifest.complaint is not None or self._names(step)[0] in manifest.files
        ]

    def place(self, step: int) -> Path:
        """The folder of a step's checkpoint."""
        return self.folder / f"step-{step:08d}"

    def manifest(self) -> Manifest:
        """The manifest of the run."""
        return Manifest.read(self.folder.parent)

    def complaint(self, step: int) -> str | None:
        """What is wrong with the files of a checkpoint; None if they are as they were written."""
        return next(filter(None, map(self.manifest().damage, self._names(step))), None)

    def adopt(self, manifest: Manifest, last: int) -> Manifest:
        """The manifest with the checkpoints up to step `last` as they are, where it was lost."""
        steps = [step for step in self._on_disk() if step <= last]
        return manifest.record(*(name for step in steps for name in self._names(step)))

    def _on_disk(self) -> list[int]:
        if not self.folder.is_dir():
            return []
        names = (_NAME.fullmatch(p.name) for p in self.folder.iterdir() if p.is_dir())
        return sorted(int(name[1]) for name in names if name)

    def _names(self, step: int) -> list[str]:
        """The files of a checkpoint as the manifest names them."""
        return [f"{self.folder.name}/{self.place(step).name}/{name}" for name in _FILES]

    def _read(self, step: int) -> Checkpoint:
        weights_file, state_file = (self.place(step) / name for name in _FILES)
        try:
            state = torch.load(state_file, map_location="cpu", weights_only=True)
            weights = load_file(weights_file)
        except FileNotFoundError as error:
            raise CheckpointError(f"{self.place(step)} is damaged: a file is missing") from error
        except Exception as error:
            # torch's own words advise to load it unsafely, which runs whatever is in it.
            path = weights_file if isinstance(error, SafetensorError) else state_file
            raise CheckpointError(
                f"{path} cannot be read: it holds something else than the tensors and plain values "
                "of a checkpoint, and nothing else is ever loaded"
            ) from error
        if not isinstance(state, dict):
            raise CheckpointError(f"{state_file} is damaged: not the state of a run")
        return Checkpoint(step, weights, state)

    def _reason(self, error: Exception) -> str:
        """The reason in words; torch's own message for a full disk does not mention the disk."""
        if isinstance(error, OSError):
            return error.strerror or str(error)
        folder = next(p for p in (self.folder, *self.folder.absolute().parents) if p.is_dir())
        return f"{error} ({shutil.disk_usage(folder).free / 1e6:,.0f} MB are free there)"


def check_same(before: Config, now: Config) -> None:
    """Raise `InputError` for a key that may not change and is not as the run was started with."""
    old, new = before.flat(), now.flat()
    for key in {**old, **new}:
        if key not in _MAY_CHANGE and old.get(key) != new.get(key):
            given = f"{new.get(key)!r} (the run was started with {old.get(key)!r})"
            raise InputError(key, given, "the run's own value when resuming")
