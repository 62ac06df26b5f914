"""What a figure of trained networks trains: a grid of batch sizes, and one of dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from uncollapse.papers._study import Cells, Sections, Setup

__all__ = ["Batch", "Grid", "grid"]

# P classes of K samples, or so many samples drawn at random (HNM appendix D).
Batch = tuple[int, int] | int


@dataclass(frozen=True, kw_only=True)
class Grid(Setup):
    """A protocol at one scale, with `batches` at the dimension `dim` and `dims` at `batch`."""

    batches: Sequence[Batch]
    dims: Sequence[int]
    batch: Batch
    dim: int

    def cells(self, axis: str, margin: float) -> Cells:
        """The runs along an axis, `batch` or `dim`, by name.

        The name is the same for the same run, whichever figure asks for it.
        """
        if axis == "batch":
            shapes = [(batch, self.dim) for batch in self.batches]
        else:
            shapes = [(self.batch, dim) for dim in self.dims]
        data, model, train = self.config["data"], self.config["model"], self.config["train"]
        hidden = "x".join(map(str, model.get("hidden", ())))
        size = data.get("size", "")
        side = "x".join(map(str, size)) if isinstance(size, list) else size
        what = f"{data['name']}{side}-{model['backbone']}{hidden}-{train['steps']}"
        what += f"-lr{self.config['optimizer']['lr']:g}-m{margin:g}"
        found: dict[str, Sections] = {}
        for batch, dim in shapes:
            section: dict[str, Any] = {"sampler": "uniform", "size": batch}
            shape = f"n{batch}"
            if not isinstance(batch, int):
                section = {"p": batch[0], "k": batch[1]}
                shape = f"p{batch[0]}k{batch[1]}"
            found[f"{what}-{shape}-d{dim}"] = {
                "batch": section,
                "model": {"dim": dim},
                "loss": {"margin": margin},
            }
        return found


def grid(
    data: Mapping[str, Any],
    model: Mapping[str, Any],
    *,
    steps: int,
    seeds: int,
    batches: Sequence[Batch],
    dims: Sequence[int],
    batch: Batch,
    differs: str,
    dim: int = 128,
    lr: float = 3e-4,
) -> Grid:
    """Batch-hard triplets from scratch, no guard, Adam at a constant rate, in these batches."""
    often = max(1, steps // 20)
    hidden = f" {list(model['hidden'])}" if "hidden" in model else ""
    return Grid(
        config={
            "data": data,
            "model": model,
            "mining": {"positives": "hard", "negatives": "hard"},
            "loss": {"name": "triplet"},
            "guard": {"action": "off"},
            "optimizer": {"name": "adam", "lr": lr},
            "evaluate": {"ks": [1], "max_samples": 2000},
            "train": {
                "steps": steps,
                "log_every": often,
                "evaluate_every": steps,
                "checkpoint_every": max(500, often),
            },
        },
        seeds=seeds,
        words=f"{model['backbone']}{hidden} from scratch, batch-hard triplets, {steps:,} steps of "
        f"Adam at {lr:g}",
        differs=differs,
        batches=batches,
        dims=dims,
        batch=batch,
        dim=dim,
    )
