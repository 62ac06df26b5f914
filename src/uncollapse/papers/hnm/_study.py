"""A figure of trained networks: its panels, what each scale trains, and the runs that makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uncollapse.papers._beside import Claim
from uncollapse.papers.hnm._point import Point
from uncollapse.sweep import Job
from uncollapse.training import Config, parse_config

__all__ = ["Batch", "Panel", "Setup", "Study"]

# P classes of K samples, or so many samples drawn at random (HNM appendix D).
Batch = tuple[int, int] | int


@dataclass(frozen=True)
class Setup:
    """What is trained at one scale: a grid of batches at `dim`, and of `dims` at `batch`.

    `data` and `model` are those sections of a config. `differs` says, in words, what is not as in
    the paper or what the paper leaves open.
    """

    data: Mapping[str, Any]
    model: Mapping[str, Any]
    steps: int
    seeds: int
    batches: Sequence[Batch]
    dims: Sequence[int]
    batch: Batch
    differs: str
    dim: int = 128
    lr: float = 3e-4

    def config(self, batch: Batch, dim: int, margin: float, seed: int) -> Config:
        """One run: batch-hard triplets, no guard, Adam at a constant rate."""
        if isinstance(batch, int):
            batches: dict[str, Any] = {"sampler": "uniform", "size": batch}
        else:
            batches = {"p": batch[0], "k": batch[1]}
        often = max(1, self.steps // 20)
        return parse_config(
            {
                "seed": seed,
                "data": dict(self.data),
                "model": {**self.model, "dim": dim},
                "batch": batches,
                "mining": {"positives": "hard", "negatives": "hard"},
                "loss": {"name": "triplet", "margin": margin},
                "guard": {"action": "off"},
                "optimiser": {"name": "adam", "lr": self.lr},
                "evaluate": {"ks": [1], "max_samples": 2000},
                "train": {
                    "steps": self.steps,
                    "log_every": often,
                    "evaluate_every": self.steps,
                    "checkpoint_every": max(500, often),
                },
            }
        )

    def name(self, batch: Batch, dim: int, margin: float, seed: int) -> str:
        """The run's directory: the same for the same run, whichever figure asks for it."""
        hidden = "x".join(map(str, self.model.get("hidden", ())))
        size = self.data.get("size", "")
        shape = f"n{batch}" if isinstance(batch, int) else f"p{batch[0]}k{batch[1]}"
        what = f"{self.data['name']}{size}-{self.model['backbone']}{hidden}-{self.steps}"
        return f"{what}-lr{self.lr:g}-m{margin:g}-{shape}-d{dim}-s{seed}"


@dataclass(frozen=True)
class Panel:
    """One plot: the diameter against the batch size or the dimension (`axis`).

    `setups` are by scale; the first whose data is there is taken. `title` is what tells it from the
    other panel, beyond what a setup says.
    """

    axis: str
    setups: Mapping[str, Sequence[Setup]]
    margin: float = 0.0
    title: str = ""

    @property
    def short(self) -> str:
        """What tells the panel's rows in a table."""
        words = self.title or ("batch size" if self.axis == "batch" else "dimension")
        return f"{words}, margin {self.margin:g}" if self.margin else words

    def heading(self, setup: Setup) -> str:
        """What the panel shows, in a line."""
        if self.axis == "batch":
            fixed = f"batch size at d = {setup.dim}"
        elif isinstance(setup.batch, int):
            fixed = f"dimension at N = {setup.batch}"
        else:
            fixed = "dimension at P = {}, K = {}".format(*setup.batch)
        prefix = f"{self.title}: " if self.title else ""
        return f"{prefix}{fixed}, margin {self.margin:g}"

    def jobs(self, setup: Setup, seeds: Sequence[int], root: str | Path | None = None) -> list[Job]:
        """The runs of the panel, cell by cell, on the data below `root`."""
        if self.axis == "batch":
            cells = [(batch, setup.dim) for batch in setup.batches]
        else:
            cells = [(setup.batch, dim) for dim in setup.dims]
        asked = [(batch, dim, self.margin, seed) for batch, dim in cells for seed in seeds]
        return [Job(setup.name(*one), setup.config(*one).with_root(root)) for one in asked]


@dataclass(frozen=True)
class Study:
    """A figure: its panels, and what the paper says of it beyond what it says of every panel."""

    name: str
    title: str
    panels: Sequence[Panel]
    more: Callable[[Sequence[Sequence[Point]]], list[Claim]] | None = None
