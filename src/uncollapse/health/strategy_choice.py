"""Which strategy a rescued run goes on with: ranked by the adviser, measured, and raced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from uncollapse._base.check import check_int
from uncollapse.health.monitor import CollapseMonitor
from uncollapse.health.race import Race, Trial, plan_race, run_race
from uncollapse.health.radial_drift import LossFn, drift, has_unit_rows
from uncollapse.health.ranking import contenders, rank_strategies
from uncollapse.health.strategy import Strategy, apply_strategy, left_alone

__all__ = ["StrategyChoice"]

_SHARE = 0.07  # of a run's steps that its races may cost: a tenth with all that goes with them
_USUAL_STEPS = 800  # of a run that does not say how many it has


class StrategyChoice:
    """Chooses for a loss, which it changes and puts back; `left` is what races may still cost.

    Without a trial there are no races, and the first strategy that does not shrink is taken.
    """

    def __init__(
        self, loss_fn: LossFn, trial: Trial | None, *, tolerance: float, steps: int | None
    ) -> None:
        self.loss_fn, self.trial, self.tolerance = loss_fn, trial, tolerance
        self.left = _SHARE * check_int("steps", _USUAL_STEPS if steps is None else steps)

    def measured(
        self,
        first: Strategy,
        present: Strategy,
        failed: Sequence[Strategy],
        monitor: CollapseMonitor,
    ) -> tuple[dict[Strategy, float], list[Strategy]]:
        """Drifts of the alternatives that have not failed, and those of them that do not shrink.

        What a race may choose from comes first; the others are measured where none of it is safe.
        """
        ranked = [one for one in rank_strategies(first, monitor.settings) if one not in failed]
        drifts: dict[Strategy, float] = {}
        for some in (contenders(first, ranked), ranked):
            for one in some:
                if one not in drifts:
                    drifts[one] = self.drift(one, present, monitor)
            safe = [one for one in some if drifts[one] <= self.tolerance]
            if safe:
                return drifts, safe
        return drifts, []

    def raced(self, safe: Sequence[Strategy], size: int) -> tuple[Strategy, Race | None]:
        """The winner of a race, in whose state the run then is; without a race the first."""
        plan = plan_race(len(safe), self.left, size)
        if self.trial is None or plan is None:
            return safe[0], None
        random = torch.get_rng_state()
        race = run_race(self.trial, safe, self._apply, plan, size)
        torch.set_rng_state(random)
        if race is None:
            return safe[0], None
        self.left -= race.spent
        return next(one for one in safe if str(one) == race.chosen), race

    def drift(self, strategy: Strategy, present: Strategy, monitor: CollapseMonitor) -> float:
        """Drift of a strategy on the reservoir; the loss does the present one again afterwards."""
        rows, labels = monitor.reservoir.rows()
        if labels is None:
            return 0.0
        inner: Any = self.loss_fn
        own = inner.parameters() if isinstance(inner, nn.Module) else iter(())
        device = next(own, rows).device
        with left_alone(self.loss_fn, present):
            apply_strategy(self.loss_fn, strategy)
            unit = has_unit_rows(rows)
            return drift(self.loss_fn, rows.to(device), labels, normalized=unit).value

    def _apply(self, strategy: Strategy) -> None:
        apply_strategy(self.loss_fn, strategy)
