"""A few training steps on a copy: does the loss learn faster than the embedding shrinks?"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from uncollapse._check import check_int, check_number
from uncollapse.distances import pairwise_distances

__all__ = ["Probe", "probe"]

_WINDOW = 5  # steps averaged at both ends


@dataclass(frozen=True)
class Probe:
    """Factors over the probe, start to end, of the mean distance and of the relative loss.

    `score` is log(relative loss factor) - log(scale factor): during a collapse the scale falls and
    the relative loss (loss over mean distance) rises, so it grows; learning lowers it.
    """

    scale_factor: float
    relative_loss_factor: float
    score: float

    @property
    def collapsing(self) -> bool:
        """Whether it shrank while its relative loss did not fall."""
        return self.scale_factor < 0.9 and self.relative_loss_factor >= 1.0


def probe(
    model: nn.Module,
    loss_fn: nn.Module,
    batches: Iterator[tuple[Tensor, Tensor]],
    steps: int = 50,
    *,
    lr: float = 1e-3,
) -> Probe:
    """Train a copy of the network for `steps` with Adam; the network itself is left alone."""
    check_int("steps", steps, 2 * _WINDOW), check_number("lr", lr, 0.0)
    trial = copy.deepcopy(model).train()
    device = next(trial.parameters(), torch.empty(0)).device
    optimiser = torch.optim.Adam(trial.parameters(), lr=lr)
    scales, losses = [], []
    for _, (samples, labels) in zip(range(steps), batches, strict=False):
        z = trial(samples.to(device)).float()
        loss = loss_fn(z, labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        n = len(z)
        scales.append(float(pairwise_distances(z.detach()).sum()) / (n * (n - 1)))
        losses.append(float(loss.detach()))
    tiny = 1e-300
    ratios = [value / max(scale, tiny) for value, scale in zip(losses, scales, strict=True)]
    scale_factor = _mean(scales[-_WINDOW:]) / max(_mean(scales[:_WINDOW]), tiny)
    relative = _mean(ratios[-_WINDOW:]) / max(_mean(ratios[:_WINDOW]), tiny)
    score = math.log(max(relative, tiny)) - math.log(max(scale_factor, tiny))
    return Probe(scale_factor, relative, score)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
