"""The table of a sweep: one row per run, written anew as runs end."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uncollapse._base.files import write_csv
from uncollapse.health.verdict import Thresholds
from uncollapse.training.measures import RunFolder, start_scores

if TYPE_CHECKING:
    from uncollapse.sweep import Job, Outcome, Sweep

Row = dict[str, Any]
_FALLEN = Thresholds().collapse_ratio
_PERIOD = 2.0  # seconds between two writings while runs end quickly


def diameters(run: RunFolder) -> dict[str, float | None]:
    """Diameters before and after a run, and HNM (17) between them, from its measures.

    Keys: `diameter_init` and `diameter` of the embeddings of the first evaluation split (the
    training split if there is no other), `hard_loss_init`, and `bound`, which is (17) with c = 2.
    The last two are None where the loss is no plain triplet loss, and so is what is not finite.

    Raises `NotMeasuredError` for a run without measures.
    """
    measures = run.measures()
    values = {
        "diameter_init": measures.before.diameter,
        "diameter": None if measures.after is None else measures.after.diameter,
        "hard_loss_init": measures.before.batches.hard_mined_loss,
        "bound": measures.bound(),
    }
    return {k: v if v is not None and math.isfinite(v) else None for k, v in values.items()}


def recalls_init(run: RunFolder) -> dict[str, float]:
    """`recall_init` and `fine_recall_init`: R@1 (the smallest k) before training, where measured.

    By labels and by fine labels, on the first evaluation split: what `primary_recall` began with.
    """
    config, scores = run.values, start_scores(run)
    split, k = next(iter(config["data.eval_splits"]), ""), min(config["evaluate.ks"])
    keys = {"recall_init": f"{split}/recall@{k}", "fine_recall_init": f"{split}/fine/recall@{k}"}
    return {name: scores[key] for name, key in keys.items() if key in scores}


def is_collapsed(verdict: str | None, before: float | None, after: float | None) -> bool:
    """Whether a run collapsed to a point.

    It did if the monitor's last verdict is `network-collapse`, or if the diameter fell below
    `Thresholds.collapse_ratio` (1 %) of what it was before training.

    >>> is_collapsed("healthy", 2.0, 0.5), is_collapsed(None, 2.0, 0.01)
    (False, True)
    """
    fell = before is not None and after is not None and after < _FALLEN * before
    return verdict == "network-collapse" or fell


def result_row(sweep: Sweep, job: Job, outcome: Outcome) -> Row:
    """A run as a row: where it stands, how it ended, what was measured."""
    row: Row = {"run": job.name, **sweep.point(job.config), "seed": job.config.seed}
    row["status"] = outcome.status
    if outcome.status in ("finished", "stopped"):
        run = outcome.run
        summary, sizes = run.summary, diameters(run)
        metrics: Mapping[str, Any] = summary["metrics"]
        # A run that the guard stopped had collapsed, whatever the last logged line said before.
        verdict = "network-collapse" if summary["status"] == "stopped" else metrics.get("verdict")
        row |= {
            "verdict": verdict,
            "collapsed": is_collapsed(verdict, sizes["diameter_init"], sizes["diameter"]),
            **sizes,
            "loss": metrics.get("loss"),
            **{key: value for key, value in metrics.items() if "/" in key},
            **recalls_init(run),
            "step": summary["step"],
        }
    return row | {"seconds": outcome.seconds, "error": outcome.error}


def primary_recall(row: Mapping[str, Any], *, fine: bool = False) -> float | None:
    """R@1 (the smallest k) by labels, or by `fine` ones, on the first evaluation split.

    None if there is none.

    >>> primary_recall({"run": "a", "test/recall@1": 0.5, "test/fine/recall@1": 0.4})
    0.5
    """
    keys = (key for key in row if "/recall@" in key)
    recall = row.get(next((key for key in keys if ("fine/" in key) == fine), ""))
    return None if recall in (None, "") else float(recall)


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """The last word of each key, or the whole key where that would not tell them apart.

    >>> short_names(["batch.p", "loss.margin", "mining.margin"])
    {'batch.p': 'p', 'loss.margin': 'loss.margin', 'mining.margin': 'mining.margin'}
    """
    last = [key.rpartition(".")[2] for key in keys]
    return {k: w if last.count(w) == 1 else k for k, w in zip(keys, last, strict=True)}


class Results:
    """`results.csv` in a folder: the rows in the order given, others as they came."""

    def __init__(self, folder: Path, order: Sequence[str]) -> None:
        self.path = folder / "results.csv"
        self._rows: dict[str, Row] = {name: {} for name in order}
        self._written = 0.0

    @property
    def rows(self) -> list[Row]:
        """The rows so far."""
        return [row for row in self._rows.values() if row]

    def add(self, row: Row) -> None:
        """Take in a run; the file follows within a moment."""
        self._rows[row["run"]] = row
        if time.monotonic() - self._written > _PERIOD:
            self.write()

    def write(self) -> None:
        """Write the file, atomically."""
        self._written = time.monotonic()
        rows = self.rows
        # The columns of a row that knows all of them stand in its order; an error comes last.
        longest = max(rows, key=len, default={})
        fields = list(dict.fromkeys([*longest, *(key for row in rows for key in row)]))
        write_csv(self.path, fields, ([row.get(key, "") for key in fields] for row in rows))
