"""Checkpoints that a crash cannot spoil: written aside, checksummed, renamed, verified on load."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from uncollapse._base.files import read_json, write_json, write_text, written_aside

__all__ = ["Checkpoint", "CheckpointError", "CheckpointStore"]

_WEIGHTS, _STATE, _MANIFEST = "weights.safetensors", "state.pt", "manifest.json"


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written or used; the message says what is left."""


@dataclass(frozen=True)
class Checkpoint:
    """What a run needs to go on: `weights` of the network, and the `state` of all the rest."""

    step: int
    weights: Mapping[str, Tensor]
    state: Mapping[str, Any]


@dataclass(frozen=True)
class CheckpointStore:
    """The checkpoints of one run, `folder/step-00000100/`: the last `keep`, and the best.

    A checkpoint's folder appears by one rename when all its files are on disk, so it is there whole
    or not at all; its manifest holds the files' SHA-256.
    """

    folder: Path
    keep: int = 2

    def save(self, checkpoint: Checkpoint, *, best: bool = False) -> Path:
        """Write a checkpoint and drop the older ones; an error leaves those untouched."""
        final = self.folder / f"step-{checkpoint.step:08d}"
        try:
            with written_aside(final, folder=True) as aside:
                tensors = {k: v.detach().cpu().contiguous() for k, v in checkpoint.weights.items()}
                save_file(tensors, aside / _WEIGHTS)
                torch.save(dict(checkpoint.state), aside / _STATE)
                sums = {name: _sha256(aside / name) for name in (_WEIGHTS, _STATE)}
                write_json(aside / _MANIFEST, {"step": checkpoint.step, "sha256": sums})
            if best:
                write_text(self.folder / "best", final.name)
        except (OSError, RuntimeError) as error:  # torch reports a full disk as RuntimeError
            last = self.steps()
            left = f"the checkpoint of step {last[-1]} is intact" if last else "there is none yet"
            raise CheckpointError(
                f"cannot write the checkpoint of step {checkpoint.step} in {self.folder}: "
                f"{error}; {left}"
            ) from error
        self._drop_old()
        return final

    def load_last(self) -> tuple[Checkpoint | None, list[str]]:
        """The newest checkpoint that verifies, and a line about each newer one that does not."""
        complaints: list[str] = []
        for step in reversed(self.steps()):
            try:
                return self.load(step), complaints
            except CheckpointError as error:
                complaints.append(str(error))
        return None, complaints

    def load(self, step: int) -> Checkpoint:
        """Read the checkpoint of a step, verified against its checksums."""
        place = self.folder / f"step-{step:08d}"
        self._verify(place)
        state = torch.load(place / _STATE, map_location="cpu", weights_only=True)
        return Checkpoint(step, load_file(place / _WEIGHTS), state)

    def best_step(self) -> int | None:
        """The step whose checkpoint was marked best, if it is still there."""
        marker = self.folder / "best"
        if not marker.is_file():
            return None
        name = marker.read_text(encoding="utf-8").strip()
        return int(name.removeprefix("step-")) if (self.folder / name).is_dir() else None

    def steps(self) -> list[int]:
        """Steps that have a checkpoint, ascending."""
        if not self.folder.is_dir():
            return []
        return sorted(int(p.name[5:]) for p in self.folder.glob("step-*") if p.name[5:].isdigit())

    def _verify(self, place: Path) -> None:
        try:
            expected = read_json(place / _MANIFEST)["sha256"]
            for name, digest in expected.items():
                if _sha256(place / name) != digest:
                    raise CheckpointError(f"{place / name} is damaged: its checksum differs")
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise CheckpointError(f"{place} is damaged: {error}") from error

    def _drop_old(self) -> None:
        kept = {*self.steps()[-self.keep :], self.best_step()}
        for step in self.steps():
            if step not in kept:
                shutil.rmtree(self.folder / f"step-{step:08d}", ignore_errors=True)
        for leftover in self.folder.glob(".step-*"):  # of a run that was killed while writing
            shutil.rmtree(leftover, ignore_errors=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
