"""Scores of a run's last network, in percent, kept beside the run; and its embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from uncollapse._base.files import read_json, write_json
from uncollapse.data import LabelledImages
from uncollapse.metrics import clustering, retrieval
from uncollapse.papers._study import Trained
from uncollapse.training import Run, embed
from uncollapse.training.assemble import load_eval_data
from uncollapse.training.evaluation import evenly_spaced

__all__ = ["Column", "Embedded", "columns", "embed_split", "measure", "measure_all"]


@dataclass(frozen=True)
class Column:
    """A column of a table: Recall@`k`, or NMI with `clusters` times as many clusters as classes.

    `fine` judges by the hidden labels (digits, letters) instead of those trained on.
    """

    title: str
    split: str
    fine: bool = False
    k: int | None = None
    clusters: int = 1

    @property
    def key(self) -> str:
        """Name in the file of scores."""
        what = f"nmi x{self.clusters}" if self.k is None else f"recall@{self.k}"
        return f"{self.split}/{'fine/' * self.fine}{what}"


def columns(
    split: str, ks: Sequence[int], nmi: Mapping[str, int], *, name: str = "", fine: bool = False
) -> list[Column]:
    """Recall@k for the `ks`, then NMI by title with so many clusters per class.

    >>> [column.title for column in columns("test", [1, 2], {"NMI+": 10})]
    ['R@1', 'R@2', 'NMI+']
    """
    recalls = [Column(f"{name} R@{k}".strip(), split, fine, k) for k in ks]
    return recalls + [
        Column(f"{name} {title}".strip(), split, fine, clusters=count)
        for title, count in nmi.items()
    ]


def measure(run: Run, columns: Sequence[Column]) -> dict[str, float]:
    """The scores by the columns' titles."""
    file = run.path / "scores.json"
    kept: dict[str, Any] = read_json(file) if file.is_file() else {}
    step = run.summary["step"]
    known: dict[str, float] = kept["scores"] if kept.get("step") == step else {}
    for split in dict.fromkeys(column.split for column in columns):
        missing = [c for c in columns if c.split == split and c.key not in known]
        if missing:
            known |= _measure(run, load_eval_data(run.config, split), missing)
            write_json(file, {"step": step, "scores": known})
    return {column.title: known[column.key] for column in columns}


def measure_all(trained: Trained, column: Column) -> dict[str, list[float]]:
    """One score of every run, by cell and in the order of the seeds."""
    return {
        cell: [measure(run, [column])[column.title] for run in runs]
        for cell, runs in trained.runs.items()
    }


@dataclass(frozen=True)
class Embedded:
    """Embeddings of some rows of a split, by the run's last network, and the split they are of."""

    embeddings: Tensor
    rows: Tensor
    data: LabelledImages


def embed_split(run: Run, split: str, most: int) -> Embedded:
    """At most so many rows of a split, the same ones for every run."""
    data = load_eval_data(run.config, split)
    rows = evenly_spaced(len(data), most)
    return Embedded(embed(run.load_model(), data.subset(rows)), rows, data)


def _measure(run: Run, data: LabelledImages, columns: Sequence[Column]) -> dict[str, float]:
    z = embed(run.load_model(), data)
    found: dict[str, float] = {}
    for fine in {column.fine for column in columns}:
        labels = (data.by_fine_labels() if fine else data).labels
        mine = [column for column in columns if column.fine == fine]
        ks = [column.k for column in mine if column.k is not None]
        recall = retrieval(z, labels, ks=ks, progress=False).recall if ks else {}
        for column in mine:
            if column.k is not None:
                found[column.key] = 100.0 * float(recall[column.k])
                continue
            # With fewer samples than clusters every sample would be one.
            most = max(1, len(z) // (2 * len(set(labels.tolist()))))
            times = min(column.clusters, most)
            result = clustering(z, labels, multiplier=times, restarts=1)
            found[column.key] = 100.0 * result.nmi
    return found
