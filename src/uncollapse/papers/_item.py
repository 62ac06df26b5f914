"""What `uncollapse reproduce` can make: one item a figure, table or set of claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from uncollapse._base.check import check_choice

__all__ = ["SCALES", "Item", "Request"]

# Embedded data in seconds; real data on two cores; the paper's own protocol on a GPU.
SCALES = ("smoke", "laptop", "paper")


@dataclass(frozen=True)
class Request:
    """What an item is asked for: where to, how large, with what, and where to tell of it.

    `seed` is the first of `seeds` (None: as many as the scale has). `data_root` holds the datasets
    (None: `UNCOLLAPSE_DATA`), `weights` is a file of ImageNet weights for the protocols that start
    from them, `processes` runs so many trainings at a time (None: one a core).
    """

    out: Path
    seed: int
    console: Console
    scale: str
    data_root: Path | None = None
    processes: int | None = None
    weights: Path | None = None
    seeds: int | None = None

    def folder(self, name: str) -> Path:
        """`out/name/scale`, where an item that trains puts its files."""
        path = self.out / name / self.scale
        path.mkdir(parents=True, exist_ok=True)
        return path

    def runs(self, study: str) -> Path:
        """Run directories of a study; items with the same protocol name the same one."""
        return self.folder(f"runs/{study}")

    def command(self, name: str) -> str:
        """The command that asks for the same."""
        words = ["uncollapse reproduce", name, "--scale", self.scale]
        words += ["--seed", str(self.seed)] if self.seed else []
        words += ["--seeds", str(self.seeds)] if self.seeds is not None else []
        words += ["--weights", self.weights.name] if self.weights is not None else []
        return " ".join(words)


@dataclass(frozen=True)
class Item:
    """One thing that can be reproduced. `make` writes files into a folder and returns them.

    `time` is one for all scales, or one a scale. The first of the `scales` is the usual one.
    """

    name: str
    summary: str
    needs: str
    time: str | Mapping[str, str]
    make: Callable[[Request], list[Path]]
    scales: tuple[str, ...] = ("laptop",)

    def time_at(self, scale: str) -> str:
        """How long it takes at a scale; empty where it has none."""
        if scale not in self.scales:
            return ""
        return self.time if isinstance(self.time, str) else self.time[scale]

    def run(
        self,
        out: Path,
        seed: int,
        console: Console,
        scale: str | None = None,
        *,
        data_root: Path | None = None,
        processes: int | None = None,
        weights: Path | None = None,
        seeds: int | None = None,
    ) -> list[Path]:
        """Make the item at one of its scales (the first by default)."""
        scale = self.scales[0] if scale is None else scale
        check_choice("scale", scale, self.scales)
        out.mkdir(parents=True, exist_ok=True)
        return self.make(Request(out, seed, console, scale, data_root, processes, weights, seeds))
