"""One run of a figure: its diameters, the bound HNM (17), and the drift it began with."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from uncollapse._check import ArrayLike
from uncollapse.health import drift
from uncollapse.sweep import Outcome, diameters, is_collapsed
from uncollapse.training import Config
from uncollapse.training.assemble import (
    build_loss,
    build_model,
    build_sampler,
    load_eval_data,
    pick_device,
)

__all__ = ["Point", "measure"]

_BATCHES = 8


@dataclass(frozen=True)
class Point:
    """A trained network.

    `start` and `end` are the diameters of the embedded evaluation images before and after training.
    `hardest` and `loss` are the triplet loss at initialisation in batches of the run's own shape:
    of the hardest triplet (what (17) means) and the batch-hard mean (what training minimises);
    `bound` is (17) with the first and `mean_bound` with the second, both with c = 2. `drift` is
    the radial drift at initialisation, in neither paper. `anchors` is the share of a batch's
    samples that have a positive in it.
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

    @property
    def left(self) -> float:
        """The share of the first diameter that is left."""
        return self.end / self.start

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


def measure(outcome: Outcome) -> Point:
    """What a finished run shows."""
    run = outcome.run
    config = run.config
    sizes = {key: float(value or 0.0) for key, value in diameters(run).items()}
    loss, pull, anchors = _at_the_start(config, run.sample_shape)
    found = run.summary["metrics"]
    uniform = config.batch.sampler == "uniform"
    p, k = (None, None) if uniform else (config.batch.p, config.batch.k)
    split = next(iter(config.data.eval_splits), "")
    return Point(
        run=outcome.name,
        p=p,
        k=k,
        batch=config.batch.size if p is None or k is None else p * k,
        dim=config.model.dim,
        margin=float(config.loss.margin or 0.0),
        seed=config.seed,
        start=sizes["diameter_init"],
        end=sizes["diameter"],
        hardest=sizes["hard_loss_init"],
        loss=loss,
        bound=sizes["bound"],
        mean_bound=sizes["diameter_init"] - 2.0 * loss,  # HNM (17) with c = 2
        drift=pull,
        anchors=anchors,
        batch_end=float(found["diameter"]),
        loss_end=float(found["loss"]),
        recall=float(found.get(f"{split}/recall@1", "nan")),
    )


@torch.no_grad()
def _at_the_start(config: Config, shape: tuple[int, ...]) -> tuple[float, float, float]:
    """Batch-hard loss, drift and the share of anchors with a positive, in eight batches."""
    data = load_eval_data(config, config.data.train_split)
    device = pick_device(config.train.device)
    model = build_model(config, shape).to(device).eval()
    loss_fn: Callable[[Tensor, ArrayLike], Tensor] = build_loss(config, data)
    embedded, losses, shares = [], [], []
    for rows in itertools.islice(build_sampler(config, data), _BATCHES):
        images, labels = data[rows]
        _, inverse, counts = torch.unique(labels, return_inverse=True, return_counts=True)
        shares.append(float((counts[inverse] > 1).float().mean()))
        if shares[-1] == 0.0 or len(counts) < 2:  # a uniform batch may hold no triplet
            losses.append(0.0)
            continue
        z = model(images.to(device)).float().cpu()
        embedded.append((z, labels))
        losses.append(float(loss_fn(z, labels)))
    pull = drift(loss_fn, embedded).value if embedded else 0.0
    return sum(losses) / len(losses), pull, sum(shares) / len(shares)
