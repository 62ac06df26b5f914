"""A split of a run before and after training, as it was measured: read from the run's folder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from uncollapse._base.arrays import Array
from uncollapse._base.files import DamagedFileError
from uncollapse.health import Health
from uncollapse.report.neighbours import Neighbourhood
from uncollapse.training import NotMeasuredError, Run
from uncollapse.training.measured_rows import Samples, SplitRows
from uncollapse.training.measures import SplitFacts, name_labels

__all__ = ["Snapshot", "take_snapshot"]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The rows of a split that were measured, with their embeddings `before` and `after` training.

    `health` is that of the trained embedding at `step`, with the untrained one as the reference,
    `start` that of the untrained one; `facts` say what the split is. `samples` are None where the
    embedding is not finite. `modes` is the mode drift of the run's loss on training batches, before
    and after; None where not measured.
    """

    split: str
    facts: SplitFacts
    step: int
    rows: SplitRows
    before: Tensor
    after: Tensor
    health: Health
    start: Health
    samples: Samples | None
    modes: tuple[float | None, float | None] = (None, None)

    @property
    def labels(self) -> Array:
        """Names of the classes, one a row."""
        return name_labels(self.rows.labels, self.facts.class_names)

    @property
    def fine_labels(self) -> Array | None:
        """Names of the fine classes, one a row."""
        fine = self.rows.fine_labels
        return None if fine is None else name_labels(fine, self.facts.fine_names)

    @property
    def finest(self) -> Array:
        """The finest labels there are."""
        fine = self.fine_labels
        return self.labels if fine is None else fine

    @property
    def finite(self) -> bool:
        """Whether there is something to draw."""
        return math.isfinite(self.health.diameter)

    @property
    def sampled(self) -> str:
        """How much of the split was looked at, in words."""
        if self.facts.rows == self.facts.total:
            return f"all {self.facts.total:,} samples of {self.split}"
        return f"{self.facts.rows:,} of {self.facts.total:,} samples of {self.split}"

    @property
    def neighbours(self) -> Neighbourhood | None:
        """The queries and their nearest rows, judged by the finest labels."""
        if self.samples is None:
            return None
        found = Neighbourhood(self.samples.queries.numpy(), self.samples.neighbours.numpy())
        return found.by(self.finest)

    @property
    def pictures(self) -> Mapping[int, Tensor] | None:
        """The pictures of queries and neighbours, by row; None where samples are no pictures."""
        if self.samples is None or self.samples.pixels is None:
            return None
        return dict(zip(self.samples.shown.tolist(), self.samples.pixels, strict=True))

    @property
    def texts(self) -> Mapping[int, str] | None:
        """The texts of queries and neighbours, by row; None where samples are no texts."""
        return None if self.samples is None else self.samples.texts_by_place()


def take_snapshot(run: Run, split: str) -> Snapshot | str:
    """What was measured on a split; a sentence that says why where nothing was."""
    try:
        measures = run.measures()
        if measures.after is None:
            raise NotMeasuredError(run.path, "measures after training: it has not ended")
        if split not in measures.splits:
            raise NotMeasuredError(run.path, f"measures of the split {split!r}")
        before, after = run.rows("before", split), run.rows("after", split)
        health = measures.after.splits[split].health
        samples = run.samples(split) if math.isfinite(health.diameter) else None
    except (NotMeasuredError, DamagedFileError) as error:
        return f"Nothing is known of the embeddings of {split}: {error}."
    return Snapshot(
        split,
        measures.splits[split],
        measures.after.step,
        after,
        before.embeddings,
        after.embeddings,
        health,
        measures.before.splits[split].health,
        samples,
        (measures.before.batches.modes, measures.after.batches.modes),
    )
