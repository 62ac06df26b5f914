"""A few training steps on a copy: does the loss learn faster than the embedding shrinks?"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from uncollapse._base.allocator import keep_memory
from uncollapse._base.check import check_int, check_number
from uncollapse.health.loss_pull import pull
from uncollapse.health.modal_drift import MODE_NEIGHBOURS, mode_rates
from uncollapse.health.radial_drift import radial_of
from uncollapse.losses.memory import memories

__all__ = ["NO_DRIFT", "Probe", "predict_scale", "probe"]

NO_DRIFT = 0.02  # drifts up to this do not shrink: that of a healthy batch varies by as much
_LEAST = 10  # steps of a probe
_LAST = 4  # of its batches whose mode drift is that after the probe
_STEADY = 0.2  # a drift that fell by less in the probe is taken to have fallen by this share
_TINY = 1e-30


@dataclass(frozen=True)
class Probe:
    """Mean distance, loss over mean distance, and drift of each batch of a probe, before its step.

    Factors and `predicted` compare the first and the last fifth of the steps. `modes` has the mode
    drift of each batch, NaN for one that shows no modes.

    >>> shrinks = Probe((1.0,) * 5 + (0.5,) * 5, (1.0,) * 5 + (2.0,) * 5, (0.3,) * 10)
    >>> learns = Probe((1.0,) * 5 + (0.5,) * 5, (1.0,) * 5 + (0.1,) * 5, (0.3,) * 5 + (0.1,) * 5)
    >>> f"{shrinks.predicted:.3g} {learns.predicted:.3g}"
    '0.0312 0.354'
    """

    scales: tuple[float, ...]
    relative_losses: tuple[float, ...]
    drifts: tuple[float, ...]
    modes: tuple[float, ...] = ()

    @property
    def mode_drift(self) -> float:
        """Mode drift after the probe, the mean of its last four batches; NaN where none shows any.

        >>> Probe((), (), (), (9.0, math.nan, 1.0, 2.0, 3.0)).mode_drift
        2.0
        """
        seen = [rate for rate in self.modes[-_LAST:] if not math.isnan(rate)]
        return sum(seen) / len(seen) if seen else math.nan

    @property
    def scale_factor(self) -> float:
        """Mean distance at the end over that at the start."""
        start, end = self._ends(self.scales)
        return end / max(start, _TINY)

    @property
    def relative_loss_factor(self) -> float:
        """The same of the relative loss. In a collapse it does not fall while the scale does."""
        start, end = self._ends(self.relative_losses)
        return end / max(start, _TINY)

    @property
    def predicted(self) -> float:
        """The share of the scale that would be left in the end: see `predict_scale`."""
        return predict_scale(self.scale_factor, *self._ends(self.drifts))

    def _ends(self, values: Sequence[float]) -> tuple[float, float]:
        size = max(1, len(values) // 5)
        return sum(values[:size]) / size, sum(values[-size:]) / size


def predict_scale(left: float, drift_then: float, drift_now: float) -> float:
    """The share of the scale that will be left in the end, if the drift falls on as it fell.

    Gradient flow shrinks log(scale) at a rate proportional to the drift. If that falls by the
    factor r while the share `left` stays, and so on for ever, then log(scale) falls by
    log(left)·(1 + r + r² + ...) = log(left) / (1 - r). A drift that is gone shrinks no further; one
    that falls little, or not at all, is taken to fall by a fifth, so that log(scale) falls five
    times as far as it has: without end would be too sure of a few steps.

    >>> predict_scale(0.5, 0.4, 0.2), predict_scale(0.5, 0.4, 0.0), predict_scale(2.0, 0.4, 0.4)
    (0.25, 0.5, 2.0)
    """
    left = max(left, _TINY)
    if left >= 1.0 or drift_now <= NO_DRIFT:
        return left
    fall = (drift_then - drift_now) / drift_then if drift_then > 0 else 0.0
    return float(max(left ** (1.0 / min(max(fall, _STEADY), 1.0)), _TINY))


def probe(
    model: nn.Module,
    loss_fn: nn.Module,
    batches: Iterator[tuple[Tensor, Tensor]],
    steps: int = 50,
    *,
    lr: float = 1e-3,
    normalized: bool = False,
) -> Probe:
    """Train a copy of the network for `steps` with Adam; the network itself is left alone.

    So is a loss with parameters of its own (proxies, a classifier) or a memory: a copy of it is
    trained along, at the same rate. `normalized` as for `drift`: the embeddings that count have
    length 1.
    """
    check_int("steps", steps, _LEAST), check_number("lr", lr, 0.0)
    keep_memory()
    trial = copy.deepcopy(model).train()
    device = next(trial.parameters(), torch.empty(0)).device
    if _learned(loss_fn) or memories(loss_fn):
        loss_fn = copy.deepcopy(loss_fn)
    optimiser = torch.optim.Adam([*trial.parameters(), *_learned(loss_fn)], lr=lr)
    seen: list[tuple[float, float, float]] = []
    modes: list[float] = []
    for _, (samples, labels) in zip(range(steps), batches, strict=False):
        z = trial(samples.to(device)).float()
        found = pull(loss_fn, z.detach(), labels, normalized)
        seen.append(radial_of(found))
        modes.append(mode_rates(found, labels, MODE_NEIGHBOURS)[0])
        loss = loss_fn(z, labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    drifts, relative, scales = zip(*seen, strict=True)
    return Probe(scales, relative, drifts, tuple(modes))


def _learned(loss_fn: object) -> list[nn.Parameter]:
    """What a loss learns; nothing of a function."""
    every = loss_fn.parameters() if isinstance(loss_fn, nn.Module) else ()
    return [p for p in every if p.requires_grad]
