"""Scores of a run's last network on a split, in percent, measured once and kept beside the run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from uncollapse.data import LabelledImages
from uncollapse.metrics import clustering, retrieval
from uncollapse.papers._beside import Score
from uncollapse.papers.eps._study import Trained
from uncollapse.training import Run, embed
from uncollapse.training.assemble import load_eval_data
from uncollapse.training.checkpoint import write_text

__all__ = ["Column", "measure", "score_rows"]


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


def measure(run: Run, columns: Sequence[Column]) -> dict[str, float]:
    """The scores by the columns' titles."""
    file = run.path / "scores.json"
    kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    step = run.summary["step"]
    known: dict[str, float] = kept["scores"] if kept.get("step") == step else {}
    for split in dict.fromkeys(column.split for column in columns):
        missing = [c for c in columns if c.split == split and c.key not in known]
        if missing:
            known |= _measure(run, load_eval_data(run.config, split), missing)
            write_text(file, json.dumps({"step": step, "scores": known}, indent=1))
    return {column.title: known[column.key] for column in columns}


def score_rows(
    trained: Trained,
    columns: Sequence[Column],
    paper: Mapping[str, Sequence[float | None]],
    than: Mapping[str, str],
) -> list[Score]:
    """A score a method and column, beside the paper's row of the same columns."""
    found = {m: [measure(run, columns) for run in runs] for m, runs in trained.runs.items()}
    rows = []
    for method, scores in found.items():
        theirs = paper.get(method, [None] * len(columns))
        for column, value in zip(columns, theirs, strict=True):
            ours = [one[column.title] for one in scores]
            rows.append(Score(method, column.title, value, ours, than.get(method)))
    return rows


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
