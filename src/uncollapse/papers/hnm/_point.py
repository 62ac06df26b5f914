"""One run of a figure: its diameters, the bound HNM (17), and the drift it began with."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from uncollapse.geometry import diameter_lower_bound
from uncollapse.papers.hnm._start import at_the_start
from uncollapse.sweep import is_collapsed
from uncollapse.training import Run

__all__ = ["Point", "measure"]


@dataclass(frozen=True)
class Point:
    """A trained network.

    `start` and `end` are the diameters of the embedded evaluation images before and after training.
    `hardest` and `loss` are the triplet loss at initialisation in batches of the run's own shape:
    of the hardest triplet (what (17) means) and the batch-hard mean (what training minimises);
    `bound` is (17) with the first and `mean_bound` with the second, both with c = 2. `drift` is
    the radial drift at initialisation, in neither paper. `anchors` is the share of a batch's
    samples that have a positive in it. `recall` is R@1; where queries search a gallery it is by the
    protocol of Market-1501, and `mean_ap` its mAP; `recall_start` and `mean_ap_start` are those of
    the untrained network. `batch_start`, `batch_quarter`, `batch_half` and `batch_end` are
    diameters of training batches, before training (a mean of 8) and after these shares of it;
    `batch_after` is that of the first 8 batches again.
    """

    run: str
    p: int | None
    k: int | None
    batch: int
    dim: int
    margin: float
    seed: int
    start: float
    end: float
    hardest: float
    loss: float
    bound: float
    mean_bound: float
    drift: float
    anchors: float
    batch_end: float
    loss_end: float
    recall: float
    mean_ap: float = math.nan
    recall_start: float = math.nan
    mean_ap_start: float = math.nan
    batch_start: float = math.nan
    batch_quarter: float = math.nan
    batch_half: float = math.nan
    batch_after: float = math.nan

    @property
    def left(self) -> float:
        """The share of the first diameter that is left."""
        return self.end / self.start

    @property
    def unsettled(self) -> bool:
        """Whether the diameter is that of batch norm's running statistics, not of the network.

        Evaluated, less than a fifth of the share is left that batches in training mode keep.
        """
        return self.left * self.batch_start < 0.2 * self.batch_after

    @property
    def collapsed(self) -> bool:
        """Below 1 % of the diameter before training, as everywhere in the project."""
        return is_collapsed(None, self.start, self.end)

    @classmethod
    def heading(cls) -> list[str]:
        """Names of the columns of `row`."""
        return [field.name for field in fields(cls)] + ["left", "collapsed"]

    def row(self) -> list[object]:
        """For a table."""
        own = [getattr(self, field.name) for field in fields(self)]
        values = [f"{value:.6g}" if isinstance(value, float) else value for value in own]
        return [*values, f"{self.left:.6g}", self.collapsed]


def measure(run: Run) -> Point:
    """What a finished run shows."""
    config = run.config
    start = at_the_start(run)
    found = run.summary["metrics"]
    uniform = config.batch.sampler == "uniform"
    p, k = (None, None) if uniform else (config.batch.p, config.batch.k)
    split = next(iter(config.data.eval_splits), "")
    return Point(
        run=run.path.name,
        p=p,
        k=k,
        batch=config.batch.size if p is None or k is None else p * k,
        dim=config.model.dim,
        margin=config.loss.mining_margin,
        seed=config.seed,
        start=start.diameter,
        end=start.end,
        hardest=start.hardest,
        loss=start.loss,
        bound=diameter_lower_bound(start.diameter, start.hardest),
        mean_bound=diameter_lower_bound(start.diameter, start.loss),
        drift=start.drift,
        anchors=start.anchors,
        batch_end=float(found["diameter"]),
        loss_end=float(found["loss"]),
        recall=float(found.get(f"{split}/recall@1", "nan")),
        mean_ap=float(found.get(f"{split}/mAP", "nan")),
        recall_start=start.scores.get("recall@1", math.nan),
        mean_ap_start=start.scores.get("mAP", math.nan),
        batch_start=start.batch,
        batch_quarter=_batch_at(run, 0.25),
        batch_half=_batch_at(run, 0.5),
        batch_after=start.batch_end,
    )


def _batch_at(run: Run, share: float) -> float:
    """Diameter of the training batch logged nearest to this share of the steps."""
    wanted = share * run.config.train.steps
    logged = [line for line in run.metrics() if "diameter" in line]
    nearest = min(logged, key=lambda line: abs(line["step"] - wanted), default=None)
    return math.nan if nearest is None else float(nearest["diameter"])
