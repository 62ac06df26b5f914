"""Checkpoints that a crash cannot spoil: written aside, checksummed, renamed, verified on load."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from uncollapse._base.check import InputError
from uncollapse._base.files import (
    read_sealed,
    sha256_of,
    sums_of,
    write_sealed,
    write_text,
    written_aside,
)
from uncollapse.training.config import Config

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "CheckpointStore",
    "changed_keys",
    "check_config",
    "check_same",
    "check_tensors",
    "config_values",
    "is_of_the_network",
]


_WEIGHTS, _STATE, _MANIFEST = "weights.safetensors", "state.pt", "manifest.json"
_NAME = re.compile(r"step-([0-9]{8,})")


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written or used; the message says what is left."""


@dataclass(frozen=True)
class Checkpoint:
    """What a run needs to go on: `weights` of the network, and the `state` of all the rest.

    `config` has the values of the config it was made with (`identity.config_values`); it is empty
    in checkpoints of earlier versions.
    """

    step: int
    weights: Mapping[str, Tensor]
    state: Mapping[str, Any]
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CheckpointStore:
    """The checkpoints of one run, `folder/step-00000100/`: the last `keep`, and the best.

    A checkpoint's folder appears by one rename when all its files are on disk, so it is there whole
    or not at all. Its manifest holds the files' SHA-256, the values of the config, how long the log
    was, and whether it was the best so far; the file `best` names the one that is.
    """

    folder: Path
    keep: int = 2

    def save(self, checkpoint: Checkpoint, *, best: bool = False) -> Path:
        """Write a checkpoint and drop the older ones; an error leaves those untouched."""
        final = self.folder / f"step-{checkpoint.step:08d}"
        whole = f"the checkpoint of step {checkpoint.step}"
        try:
            with written_aside(final, folder=True) as aside:
                self._write(checkpoint, aside, best)
        # torch reports a full disk as RuntimeError, safetensors as its own error.
        except (OSError, RuntimeError, SafetensorError) as error:
            good = next((s for s in reversed(self.steps()) if self.complaint(s) is None), None)
            left = f"the one of step {good} is intact" if good is not None else "there is no other"
            raise CheckpointError(
                f"cannot write {whole} in {self.folder}: {self._reason(error)}; {left}"
            ) from error
        if best:
            try:
                write_text(self.folder / "best", final.name)
            except OSError as error:
                raise CheckpointError(
                    f"{whole} in {self.folder} is written and intact, but could not be marked as "
                    f"the best: {self._reason(error)}"
                ) from error
        self._drop_old()
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
                found = self.load(step)
                if accept is not None:
                    accept(found)
            except CheckpointError as error:
                complaints.append(str(error))
            else:
                return found, complaints
        return None, complaints

    def load(self, step: int) -> Checkpoint:
        """Read the checkpoint of a step, verified against its checksums."""
        place = self.place(step)
        manifest = self._verified(step)
        try:
            state = torch.load(place / _STATE, map_location="cpu", weights_only=True)
            weights = load_file(place / _WEIGHTS)
        except Exception as error:
            # torch's own words advise to load it unsafely, which runs whatever is in it.
            name = _WEIGHTS if isinstance(error, SafetensorError) else _STATE
            raise CheckpointError(
                f"{place / name} cannot be read: it holds something else than the tensors and "
                "plain values of a checkpoint, and nothing else is ever loaded"
            ) from error
        if not isinstance(state, dict):
            raise CheckpointError(f"{place / _STATE} is damaged: not the state of a run")
        return Checkpoint(step, weights, state, manifest.get("config", {}))

    def best(self) -> tuple[int | None, str | None]:
        """The step of the best checkpoint, if one was marked; and what is wrong with its mark."""
        marker = self.folder / "best"
        flags = {step: self._flag(step) for step in self.steps()}
        said = max((step for step, flag in flags.items() if flag), default=None)
        try:
            found = _NAME.fullmatch(marker.read_text(encoding="utf-8").strip())
        except (OSError, UnicodeDecodeError):
            found = None
        named = int(found[1]) if found else None
        if named in flags and flags[named] is not False:
            # A process killed before it wrote the mark leaves that of the best before.
            return (named if flags[named] is None else said), None
        if said is None and not marker.exists():
            return None, None
        why = f"{marker} is {'damaged' if marker.exists() else 'missing'}"
        if said is not None:
            return said, f"{why}; the checkpoint of step {said} says that it is the best"
        return None, f"{why}, and no checkpoint says that it is the best"

    def repair_best(self) -> str | None:
        """Write the mark of the best again where it is wrong; says what was."""
        step, complaint = self.best()
        if complaint is not None and step is not None:
            write_text(self.folder / "best", self.place(step).name)
        elif complaint is not None:
            (self.folder / "best").unlink(missing_ok=True)
        return complaint

    def best_step(self) -> int | None:
        """The step whose checkpoint was marked best, if it is still there."""
        return self.best()[0]

    def steps(self) -> list[int]:
        """Steps that have a checkpoint, ascending."""
        if not self.folder.is_dir():
            return []
        names = (_NAME.fullmatch(p.name) for p in self.folder.iterdir() if p.is_dir())
        return sorted(int(name[1]) for name in names if name)

    def place(self, step: int) -> Path:
        """The folder of a step's checkpoint."""
        return self.folder / f"step-{step:08d}"

    def complaint(self, step: int) -> str | None:
        """What is wrong with the files of a checkpoint; None if they are as they were written."""
        try:
            self._verified(step)
        except CheckpointError as error:
            return str(error)
        return None

    def manifest(self, step: int) -> dict[str, Any]:
        """What the manifest of a checkpoint says; `CheckpointError` if it cannot be read."""
        place = self.place(step)
        try:
            found = read_sealed(place / _MANIFEST)
        except (OSError, ValueError) as error:
            why = "it has no manifest.json" if isinstance(error, FileNotFoundError) else error
            raise CheckpointError(f"{place} is damaged: {why}") from error
        kinds = (("step", int), ("sha256", dict), ("config", dict), ("log", dict))
        wrong = [key for key, kind in kinds if not isinstance(found.get(key, kind()), kind)]
        if wrong or found.get("step") != step:
            text = f"its {wrong[0] if wrong else 'step'} is not that of a checkpoint"
            raise CheckpointError(f"{place / _MANIFEST} is damaged: {text}")
        return found

    def _verified(self, step: int) -> dict[str, Any]:
        place, manifest = self.place(step), self.manifest(step)
        expected = manifest.get("sha256", {})
        for name in (_WEIGHTS, _STATE):
            if name not in expected:
                raise CheckpointError(f"{place / _MANIFEST} is damaged: no checksum of {name}")
            try:
                same = sha256_of(place / name) == expected[name]
            except OSError as error:
                raise CheckpointError(f"{place} is damaged: {error.strerror}: {name}") from error
            if not same:
                raise CheckpointError(f"{place / name} is damaged: its checksum differs")
        return manifest

    def _flag(self, step: int) -> bool | None:
        """Whether a checkpoint was the best when it was written; None where it does not say."""
        try:
            found = self.manifest(step).get("best")
        except CheckpointError:
            return None
        return found if isinstance(found, bool) else None

    def _write(self, checkpoint: Checkpoint, place: Path, best: bool) -> None:
        tensors = {k: v.detach().cpu().contiguous() for k, v in checkpoint.weights.items()}
        save_file(tensors, place / _WEIGHTS)
        torch.save(dict(checkpoint.state), place / _STATE)
        log = {key: checkpoint.state.get(f"log_{key}") for key in ("offset", "sha256")}
        manifest = {
            "step": checkpoint.step,
            "sha256": sums_of(place, (_WEIGHTS, _STATE)),
            "best": best,
            "config": dict(checkpoint.config),
            "log": {key: value for key, value in log.items() if value is not None},
        }
        write_sealed(place / _MANIFEST, manifest)

    def _reason(self, error: Exception) -> str:
        """The error in words; torch says of a full disk only that a position is unexpected."""
        if isinstance(error, OSError):
            return error.strerror or str(error)
        place = next(p for p in (self.folder, *self.folder.absolute().parents) if p.is_dir())
        return f"{error} ({shutil.disk_usage(place).free / 1e6:,.0f} MB are free there)"

    def _drop_old(self) -> None:
        kept = {*self.steps()[-self.keep :], self.best_step()}
        for step in self.steps():
            if step not in kept:
                shutil.rmtree(self.place(step), ignore_errors=True)
        for leftover in self.folder.glob(".step-*"):  # of a run that was killed while writing
            shutil.rmtree(leftover, ignore_errors=True)


# Which config a run and its checkpoints were made with: what may differ, and what may not.

# What may differ between a run and the config it is resumed with.
_MAY_CHANGE = {
    "distributed.timeout",
    "train.steps",
    "train.keep_memory",
    "train.log_every",
    "train.loggers",
    "train.threads",
    "train.tensorboard",
}
# What says how a network is looked at, not which one it is.
_OF_LOOKING = ("data.root", "data.workers", "data.eval_splits", "evaluate.", "train.", "guard.")


def config_values(config: Config) -> dict[str, Any]:
    """Every key of a config by its dotted name, as JSON has it: what a checkpoint carries.

    >>> config_values(Config())["batch.p"]
    8
    """
    return _flat(config.model_dump(mode="json"))


def changed_keys(before: Mapping[str, Any], now: Config) -> dict[str, tuple[Any, Any]]:
    """Keys whose values differ, as `(before, now)`; those that may change are left out.

    Keys that only one of the two has are of another version, and are not compared.
    """
    values = config_values(now)
    return {
        key: (old, values[key])
        for key, old in before.items()
        if key in values and key not in _MAY_CHANGE and old != values[key]
    }


def is_of_the_network(key: str) -> bool:
    """Whether a key is about how a network was made, not about how it is looked at."""
    return not key.startswith(_OF_LOOKING)


def check_same(before: Config, now: Config) -> None:
    """Raise `InputError` for a key that may not change and is not as the run was started with."""
    old, new = config_values(before), config_values(now)
    for key in [*old, *(key for key in new if key not in old)]:
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


# Whether a checkpoint is of this run: made with its config, for its network.


def check_config(checkpoint: Checkpoint, config: Config, *, looking: bool = False) -> list[str]:
    """Raise `CheckpointError` for a checkpoint that was made with another config.

    Keys that only say how a network is looked at (`[evaluate]`, `data.root`, ...) are refused too
    with `looking`; without, a line about each is returned.
    """
    changed = changed_keys(checkpoint.config, config)
    lines = []
    for key, (old, new) in changed.items():
        said = f"was made with {key} = {old!r}, where config.toml says {new!r}"
        if looking or is_of_the_network(key):
            which = f"the checkpoint of step {checkpoint.step} is of another run: it"
            raise CheckpointError(f"{which} {said.replace('config.toml', 'the config')}")
        lines.append(f"the run {said}")
    return lines


def check_tensors(step: int, given: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Raise `CheckpointError` unless names and shapes are those of the network."""
    shapes = {name: list(tensor.shape) for name, tensor in given.items()}
    for name, tensor in wanted.items():
        if shapes.pop(name, None) != list(tensor.shape):
            found = list(given[name].shape) if name in given else "missing"
            what = f"{name} is {found}, and should be {list(tensor.shape)}"
            break
    else:
        if not shapes:
            return
        what = f"{next(iter(shapes))} is not a part of it"
    raise CheckpointError(f"the checkpoint of step {step} is of another network: {what}")
