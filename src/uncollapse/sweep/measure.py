"""Diameters before and after a run, and HNM (17) between them, kept beside the run."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from uncollapse.data import LabelledImages
from uncollapse.geometry import diameter, diameter_lower_bound, hard_mined_loss
from uncollapse.training import Config, Run, embed
from uncollapse.training.assemble import build_model, build_sampler, load_eval_data
from uncollapse.training.checkpoint import write_text
from uncollapse.training.evaluation import evenly_spaced

__all__ = ["average_statistics", "diameters", "measure_run", "measures_file"]

_ROWS = 2000  # samples of the evaluation split whose diameter is taken
_BATCHES = 8


def diameters(run: Run) -> dict[str, float | None]:
    """What `measure_run` found; measured now where that was not done yet.

    Keys: `diameter_init` and `diameter` of the embeddings of the first evaluation split (at most
    2,000 samples of it, evenly spaced; the training split if there is no other), `hard_loss_init`
    and `bound`.
    """
    place = measures_file(run.path)
    if not place.is_file():
        measure_run(run)
    found: dict[str, float | None] = json.loads(place.read_text(encoding="utf-8"))
    return found


def measure_run(run: Run) -> None:
    """Measure the network as it was initialised and as it ended, and write that down.

    `bound` is HNM (17) with c = 2. Its loss is that of the hardest triplet in batches of the run's
    own shape, the mean of 8: it grows with the batch, as the paper says, while the diameter does
    not. None where the loss is no plain triplet loss.
    """
    config = run.config
    split = next(iter(config.data.eval_splits), config.data.train_split)
    data = load_eval_data(config, split)
    part = data.subset(evenly_spaced(len(data), _ROWS))
    before = build_model(config, run.sample_shape).train()
    average_statistics(before)
    hardest = _hard_loss(before, config)  # its batches give batch norm its statistics
    start = diameter(embed(before, part, batch=config.evaluate.batch))
    end = diameter(embed(run.load_model(), part, batch=config.evaluate.batch))
    bound = None if hardest is None else diameter_lower_bound(start, hardest)
    found = {"diameter_init": start, "diameter": end, "hard_loss_init": hardest, "bound": bound}
    finite = {k: v if v is not None and math.isfinite(v) else None for k, v in found.items()}
    write_text(measures_file(run.path), json.dumps(finite, indent=1))


def measures_file(path: Path) -> Path:
    """Where the measures of a run are kept."""
    return path / "diameters.json"


def average_statistics(model: nn.Module) -> None:
    """Let batch norm remember the plain mean of all batches it sees from now on.

    Batch norm that has seen nothing would be evaluated with mean 0 and variance 1, which is another
    network: a GoogLeNet's diameter is then 0. Frozen layers are left as they are.

    >>> norm = nn.BatchNorm1d(2)
    >>> average_statistics(norm)
    >>> norm.momentum is None
    True
    """
    for layer in model.modules():
        if isinstance(layer, _BatchNorm) and layer.training:
            layer.reset_running_stats()
            layer.momentum = None


def _hard_loss(model: nn.Module, config: Config) -> float | None:
    margin = config.loss.hinge_margin
    if margin is None:
        return None
    data = load_eval_data(config, config.data.train_split)
    batches = itertools.islice(build_sampler(config, data), _BATCHES)
    found = [_hardest(model, data, rows, margin) for rows in batches]
    known = [value for value in found if value is not None]
    return sum(known) / len(known) if known else None


@torch.no_grad()
def _hardest(
    model: nn.Module, data: LabelledImages, rows: list[int], margin: float
) -> float | None:
    images, labels = data[rows]
    z = model(images).float()
    if len(torch.unique(labels)) < 2:  # a uniform batch may hold one class
        return None
    return hard_mined_loss(z, labels, margin)
