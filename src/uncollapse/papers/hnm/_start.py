"""A network before training: its diameter, its loss, and so the bound HNM (17)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from uncollapse.training import NotMeasuredError, Run

__all__ = ["Start", "at_the_start"]


@dataclass(frozen=True)
class Start:
    """Means over batches of the run's own shape, and the diameter of the evaluation images.

    `end` is that diameter after training; `scores` are of the untrained network, `batch` is
    the mean diameter of a batch and `batch_end` that after training, both in training mode.
    """

    diameter: float
    end: float
    hardest: float
    loss: float
    drift: float
    anchors: float
    scores: Mapping[str, float]
    batch: float
    batch_end: float


def at_the_start(run: Run) -> Start:
    """What (17) needs to know of the network as it was initialised, as it was measured.

    Raises `NotMeasuredError` for a run that has not ended or has no plain triplet loss.
    """
    measures = run.measures()
    batches, after = measures.before.batches, measures.after
    if after is None or batches.hard_mined_loss is None or batches.drift is None:
        raise NotMeasuredError(run.path, "measures of a plain triplet loss, before and after")
    return Start(
        diameter=measures.before.diameter,
        end=after.diameter,
        hardest=batches.hard_mined_loss,
        loss=batches.loss,
        drift=batches.drift,
        anchors=batches.anchors,
        scores=measures.before.splits[measures.split].scores,
        batch=batches.diameter,
        batch_end=after.batches.diameter,
    )
