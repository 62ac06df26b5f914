"""What a forecast found: a cell for each shape, dimension and strategy, and what to choose."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from uncollapse.health.advice import advise_on
from uncollapse.health.modal_drift import ModeDrift
from uncollapse.health.mode_choice import keeps_modes, merges_modes, merging_words
from uncollapse.health.run_settings import RunSettings
from uncollapse.health.strategy import Strategy, changed_keys
from uncollapse.health.thresholds import Thresholds
from uncollapse.health.trial_steps import NO_DRIFT, Probe

__all__ = ["DANGEROUS", "Cell", "Forecast"]

DANGEROUS = 0.25  # drift above which, without a probe, runs are expected to collapse


@dataclass(frozen=True)
class Cell:
    """The prediction for one batch shape, dimension and strategy.

    `bound` is HNM (17): diameter - c·loss, with the loss of the hardest triplet; a forecast, not a
    guarantee, and without content where it is negative.

    `risk` is `none` for a drift that does not shrink (at most 0.02), `high` above 0.25, `some`
    between. A probe knows better: `high` if the share of the scale it predicts is one that the
    monitor would call shrinking (0.25), `some` if the embedding is to shrink at all, else `none`.
    It is of the whole embedding; `modes`, the mode drift at the start, is of the modes of a class.
    """

    p: int
    k: int
    dim: int
    strategy: Strategy
    drift: float
    spread: float
    relative_loss: float
    diameter: float
    loss: float
    bound: float
    probe: Probe | None = None
    modes: ModeDrift | None = None

    @property
    def mode_drift(self) -> float:
        """Mode drift after the probe; without one at the start. NaN where batches show no modes."""
        if self.probe is not None and not math.isnan(self.probe.mode_drift):
            return self.probe.mode_drift
        return math.nan if self.modes is None else self.modes.value

    @property
    def risk(self) -> str:
        """`none`, `some` or `high`."""
        if self.probe is not None:
            left = self.probe.predicted
            return "high" if left <= Thresholds().shrink_ratio else "some" if left < 0.9 else "none"
        if self.drift <= NO_DRIFT:
            return "none"
        return "high" if self.drift > DANGEROUS else "some"


@dataclass(frozen=True)
class Forecast:
    """Cells of the strategy asked about, the same cells under alternatives, and what to choose.

    `several_modes`: whether classes have several modes to keep; None where that is not known.
    """

    cells: tuple[Cell, ...]
    alternatives: tuple[Cell, ...]
    c: float
    several_modes: bool | None = None
    settings: RunSettings = field(default_factory=RunSettings)

    @property
    def recommended(self) -> Cell:
        """The largest batch and dimension, with the own strategy if that is safe there.

        If it is not, with the adviser's first choice (`rank_strategies`) that is: changing what is
        mined keeps the batch. Where classes are known to have several modes, a safe strategy that
        keeps them is preferred, the own one first; `several_modes=False` lets modes count for
        nothing. Smaller shapes come in only where nothing is safe at the largest.
        """
        every = (*self.cells, *self.alternatives)
        shapes = {(cell.p * cell.k, cell.dim): (cell.p, cell.k, cell.dim) for cell in every}
        for key in sorted(shapes, reverse=True):
            shape = shapes[key]
            here = [one for one in every if (one.p, one.k, one.dim) == shape]
            safe = [one for one in here if one.risk == "none"]
            kept = [one for one in safe if keeps_modes(one)] if self.several_modes else []
            if kept or safe:
                return (kept or safe)[0]
        return min(self.cells, key=lambda cell: cell.drift)

    @property
    def reason(self) -> str:
        """Why that one, in words."""
        cell = self.recommended
        shape = f"P={cell.p}, K={cell.k}, dim={cell.dim} with {cell.strategy}"
        if cell.risk != "none":
            return f"{shape}: drift {cell.drift:+.3f} is the smallest; every strategy tried shrinks"
        if cell in self.cells:
            said = f"{shape}: {_why(cell)}, and more samples teach more"
            return said + ("" if self.several_modes is False else self._other_modes(cell))
        own = next(
            one for one in self.cells if (one.p, one.k, one.dim) == (cell.p, cell.k, cell.dim)
        )
        if own.risk == "none":
            return f"{shape}: {merging_words([own], cell)}, and classes here have several modes"
        known = replace(self.settings, k=cell.k, batch_size=cell.p * cell.k)
        advice = advise_on("network-collapse", known)
        return (
            f"{shape}: {own.strategy} {_shrinks(own)}; {advice.sentence} (drift {cell.drift:+.3f} "
            f"there): {advice.evidence}"
        )

    def _other_modes(self, cell: Cell) -> str:
        """What keeps the modes of a class, where the cell merges them."""
        same = [
            one
            for one in self.alternatives
            if (one.p, one.k, one.dim) == (cell.p, cell.k, cell.dim) and one.risk == "none"
        ]
        kept = [one for one in same if keeps_modes(one)]
        if not merges_modes(cell) or not kept:
            return ""
        nearest = min(kept, key=lambda one: len(changed_keys(cell.strategy, one.strategy)))
        return f"; {merging_words([cell], nearest)}, if your classes have several"

    def to_rows(self) -> list[dict[str, Any]]:
        """One flat dict a cell, own strategy first: for tables and files."""
        return [_row(cell) for cell in (*self.cells, *self.alternatives)]

    def __str__(self) -> str:
        head = (
            "   P    K   dim  strategy                        drift   spread    modes  diameter  "
        )
        lines = [head + f"loss    bound(c={self.c:g})  risk"]
        for cell in (*self.cells, *self.alternatives):
            lines.append(
                f"{cell.p:4d} {cell.k:4d} {cell.dim:5d}  {cell.strategy!s:28s} {cell.drift:+8.3f} "
                f"{cell.spread:8.3f} {cell.mode_drift:+8.2f} {cell.diameter:9.3g} {cell.loss:7.3g} "
                f"{cell.bound:9.3g}"
                f"     {cell.risk}"
            )
        lines.append(f"recommended: {self.reason}")
        lines.append("(17) is a forecast, not a guarantee: training has been seen to violate it.")
        return "\n".join(lines)


def _why(cell: Cell) -> str:
    if cell.probe is None:
        return f"drift {cell.drift:+.3f} does not shrink"
    steps, left = len(cell.probe.scales), cell.probe.predicted
    return f"{steps} steps of training predict that {left:.2g} times the scale is left"


def _shrinks(cell: Cell) -> str:
    if cell.probe is None:
        return f"shrinks the embedding (drift {cell.drift:+.3f})"
    steps, left = len(cell.probe.scales), cell.probe.predicted
    return f"is predicted to keep {left:.2g} of its scale ({steps} steps of training)"


def _row(cell: Cell) -> dict[str, Any]:
    row = {
        key: value for key, value in vars(cell).items() if key not in ("strategy", "probe", "modes")
    }
    row |= {"strategy": str(cell.strategy), "risk": cell.risk}
    if cell.modes is not None:
        row |= {"mode_drift": cell.modes.value, "mode_spread": cell.modes.spread}
    if cell.probe is not None:
        seen = cell.probe
        row |= {
            "probe_scale_factor": seen.scale_factor,
            "probe_relative_loss_factor": seen.relative_loss_factor,
            "probe_predicted": seen.predicted,
            "probe_mode_drift": seen.mode_drift,
        }
    return row
