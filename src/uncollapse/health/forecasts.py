"""Predict collapse before training: drift, and the bound HNM (17), over batch shapes and dims."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn

from uncollapse._base.arrays import class_ids
from uncollapse._base.check import InputError, check_int, check_number
from uncollapse._base.result import Card, Shown
from uncollapse._base.table import Table
from uncollapse.geometry import diameter, diameter_lower_bound, hard_mined_loss
from uncollapse.health import drifts
from uncollapse.health import strategy as strategies
from uncollapse.health.advice import RunSettings, Strategy, advise_on, changed_keys, rank_strategies
from uncollapse.health.drifts import ModeDrift, Probe
from uncollapse.health.verdict import DANGEROUS, NO_DRIFT, Thresholds
from uncollapse.losses import TripletLoss
from uncollapse.losses.base import Wrapper, innermost
from uncollapse.mining import Miner
from uncollapse.samplers import PKSampler

__all__ = ["Forecast", "ForecastCell", "embedded_batches", "forecast"]

Model = nn.Module | Callable[[int], nn.Module]


class LabelledData(Protocol):
    """Samples that can be drawn by row: `data[rows]` gives `(samples, labels)`."""

    @property
    def labels(self) -> Tensor:
        """One label per row."""

    def __getitem__(self, rows: Any) -> Any: ...


@dataclass(frozen=True)
class ForecastCell:
    """The prediction for one batch shape, dimension and strategy.

    `bound` is HNM (17): diameter - c·loss, with the loss of the hardest triplet; a forecast, not a
    guarantee, and meaningless where it is negative.

    `risk` is `none` for a drift that does not shrink (at most 0.02), `high` above 0.25, `some`
    between. A probe overrules this: `high` if the monitor would call the share of the scale that
    it predicts shrinking (0.25), `some` if that is below 0.9, else `none`. The risk concerns the
    whole embedding; `modes` is the mode drift at the start.
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
    def shape(self) -> tuple[int, int, int]:
        """P, K and the dimension."""
        return self.p, self.k, self.dim

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

    @property
    def outcome(self) -> str:
        """What becomes of the embedding, in words, by what the risk is judged by."""
        if self.probe is not None:
            steps, left = len(self.probe.scales), self.probe.predicted
            return f"is predicted to keep {left:.2g} of its scale ({steps} steps of training)"
        does = "does not shrink" if self.risk == "none" else "shrinks"
        return f"{does} the embedding (drift {self.drift:+.3f})"

    @property
    def keeps_modes(self) -> bool:
        """Whether its mode drift is known and at most 0.1."""
        return self.mode_drift <= drifts.MODES_KEPT

    def to_row(self) -> dict[str, Any]:
        """A flat dict of plain values, for tables and files."""
        left_out = ("strategy", "probe", "modes")
        row = {key: value for key, value in vars(self).items() if key not in left_out}
        row |= {"strategy": str(self.strategy), "risk": self.risk}
        if self.modes is not None:
            row |= {"mode_drift": self.modes.value, "mode_spread": self.modes.spread}
        if self.probe is not None:
            for name in ("scale_factor", "relative_loss_factor", "predicted", "mode_drift"):
                row[f"probe_{name}"] = getattr(self.probe, name)
        return row


@dataclass(frozen=True, repr=False)
class Forecast(Shown):
    """Cells of the strategy asked about, the same cells under alternatives, and what to choose.

    `several_modes`: whether classes have several modes to keep; None where that is not known.
    """

    cells: tuple[ForecastCell, ...]
    alternatives: tuple[ForecastCell, ...]
    c: float
    several_modes: bool | None = None
    settings: RunSettings = field(default_factory=RunSettings)

    @property
    def recommended(self) -> ForecastCell:
        """The largest batch and dimension, with the run's own strategy if that is safe there.

        If it is not, with the first safe choice of the adviser (`rank_strategies`): changing what
        is mined keeps the batch. Where classes are known to have several modes, a safe strategy
        that keeps them is preferred, the own one first; `several_modes=False` ignores modes.
        Smaller shapes are recommended only if nothing is safe at the largest.
        """
        every = (*self.cells, *self.alternatives)
        shapes = {(cell.p * cell.k, cell.dim): cell.shape for cell in every}
        for size in sorted(shapes, reverse=True):
            here = [cell for cell in every if cell.shape == shapes[size]]
            safe = [cell for cell in here if cell.risk == "none"]
            kept = [cell for cell in safe if cell.keeps_modes] if self.several_modes else []
            if kept or safe:
                return (kept or safe)[0]
        return min(self.cells, key=lambda cell: cell.drift)

    @property
    def reason(self) -> str:
        """Why that cell is recommended, in one sentence."""
        cell = self.recommended
        shape = f"P={cell.p}, K={cell.k}, dim={cell.dim} with {cell.strategy}"
        if cell.risk != "none":
            return f"{shape}: drift {cell.drift:+.3f} is the smallest; every strategy tried shrinks"
        if cell in self.cells:
            modes = "" if self.several_modes is False else self._other_modes(cell)
            return f"{shape}: it {cell.outcome}, and more samples teach more{modes}"
        own = next(other for other in self.cells if other.shape == cell.shape)
        if own.risk == "none":
            return f"{shape}: {_mode_words(own, cell)}, and classes here have several modes"
        known = replace(self.settings, k=cell.k, batch_size=cell.p * cell.k)
        here = (each for each in (*self.cells, *self.alternatives) if each.shape == cell.shape)
        drifts = {each.strategy: each.drift for each in here}
        advice = advise_on("network-collapse", known, lambda each: drifts.get(each, math.nan))
        return (
            f"{shape}: {own.strategy} {own.outcome}; {advice.sentence} (drift {cell.drift:+.3f} "
            f"there): {advice.evidence}"
        )

    def _other_modes(self, cell: ForecastCell) -> str:
        """Which alternative keeps the modes of a class, if the cell merges them; else empty."""
        here = [other for other in self.alternatives if other.shape == cell.shape]
        kept = [other for other in here if other.risk == "none" and other.keeps_modes]
        if not cell.mode_drift > drifts.MODES_KEPT or not kept:
            return ""
        nearest = min(kept, key=lambda other: len(changed_keys(cell.strategy, other.strategy)))
        return f"; {_mode_words(cell, nearest)}, if your classes have several"

    def to_rows(self) -> list[dict[str, Any]]:
        """One flat dict per cell, own strategy first: for tables and files."""
        return [cell.to_row() for cell in (*self.cells, *self.alternatives)]

    def card(self) -> Card:
        """The risk, what is recommended and why, and every drift."""
        cells, own = (*self.cells, *self.alternatives), self.cells[0]
        figures = {f"{cell.strategy}, {cell.p} x {cell.k}": f"{cell.drift:+.3f}" for cell in cells}
        tone = {"none": "good", "some": "warn", "high": "bad"}[own.risk]
        title = f"Risk of collapse with {own.strategy}: {own.risk}"
        return Card(title, [f"recommended: {self.reason}", "drifts at the start:"], tone, figures)

    def __str__(self) -> str:
        head = ["P", "K", "dim", "strategy", "drift", "spread", "modes", "diameter", "loss"]
        table = Table([*head, f"bound (c={self.c:g})", "risk"])
        for cell in (*self.cells, *self.alternatives):
            drifts = f"{cell.drift:+.3f}", f"{cell.spread:.3f}", f"{cell.mode_drift:+.2f}"
            figures = cell.diameter, cell.loss, cell.bound
            table.add(*cell.shape, str(cell.strategy), *drifts, *figures, cell.risk)
        return (
            f"{table.markdown()}\nrecommended: {self.reason}\n"
            "(17) is a forecast, not a guarantee: training has been seen to violate it."
        )


def _mode_words(merging: ForecastCell, keeping: ForecastCell) -> str:
    names = str(merging.strategy), str(keeping.strategy)
    return strategies.mode_words(names[0], merging.mode_drift, names[1], keeping.mode_drift)


def forecast(
    model: Model,
    data: LabelledData,
    p: Sequence[int] = (2, 4, 8, 18),
    k: Sequence[int] = (2, 4, 8, 16, 32),
    dim: Sequence[int] | None = None,
    *,
    loss_fn: TripletLoss | Wrapper | None = None,
    alternatives: bool = True,
    c: float = 2.0,
    batches: int = 8,
    probe_steps: int = 0,
    probe_lr: float = 1e-3,
    stepping: drifts.Stepping | None = None,
    seed: int = 0,
    several_modes: bool | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Forecast:
    """Drift, mode drift, diameter, hard-mined loss and the bound (17) at initialisation.

    `model` is a network, or a function from a dimension to one (needed when `dim` is given; each
    must be newly initialised). `loss_fn` is the triplet loss to ask about: by default batch-hard
    with margin 0.2, HNM's. `probe_steps` adds a short training of a copy for each of its cells,
    with Adam at `probe_lr`, or with the run's own optimizer and schedule (`stepping`).
    Where it has a memory, drifts are those with a full one, of other samples through the same
    network. `several_modes`: a recommended strategy must keep the modes of a class; by default
    where the data has `fine_labels` that divide a class. Shapes that the data cannot fill
    (fewer classes than P, or K beyond the largest class in a batch beyond all samples) are left
    out; `InputError` where that leaves none.
    """
    loss_fn = loss_fn or TripletLoss(margin=0.2, miner=Miner("hard", "hard"))
    _check_inputs(loss_fn, data, batches, probe_steps, c)
    shapes, networks = _shapes(data, p, k), _networks(model, dim)
    several = strategies.finer_classes(data) if several_modes is None else several_modes
    settings = replace(strategies.settings_of(loss_fn), several_modes=several)
    first = strategies.strategy_of(loss_fn)
    others = rank_strategies(first, settings) if alternatives else []
    cells, extra = list[ForecastCell](), list[ForecastCell]()
    for done, (network, shape) in enumerate(itertools.product(networks, shapes), 1):
        embedded = list(embedded_batches(network, data, *shape, batches, seed))
        if loss_fn.normalize:
            embedded = [(nn.functional.normalize(z, dim=1), labels) for z, labels in embedded]
        unit = drifts.has_unit_rows(embedded[0][0])
        unseen = other_batches(network, data, *shape, batches, seed)
        try:
            with drifts.filled_memories(loss_fn, unseen):
                for strategy in (first, *others):
                    strategies.apply_strategy(loss_fn, strategy)
                    cell = _cell(loss_fn, embedded, shape, strategy, c, unit)
                    (cells if strategy == first else extra).append(cell)
            if probe_steps:  # a memory begins empty there, as in the run
                strategies.apply_strategy(loss_fn, first)
                given = (network, loss_fn, _batches(data, *shape, seed), probe_steps)
                short = drifts.probe(*given, lr=probe_lr, stepping=stepping, normalize=unit)
                cells[-1] = replace(cells[-1], probe=short)
        finally:
            strategies.apply_strategy(loss_fn, first)
        if progress is not None:
            progress(done, len(networks) * len(shapes))
    return Forecast(tuple(cells), tuple(extra), c, several, settings)


def _check_inputs(loss_fn: object, data: object, batches: int, probe_steps: int, c: float) -> None:
    check_number("c", c, 0.0)
    check_int("batches", batches)
    check_int("probe_steps", probe_steps, 0)
    if not isinstance(innermost(loss_fn), TripletLoss):
        allowed = "a TripletLoss, also in an IdentityLoss or other wrapper, or None for batch-hard"
        raise InputError("loss_fn", type(loss_fn).__name__, allowed)
    if not hasattr(data, "labels"):
        allowed = "a dataset with .labels: uc.data.LabelledImages(uc.data.TensorSource(x), labels)"
        raise InputError("data", type(data).__name__, allowed)


def _shapes(data: LabelledData, p: Sequence[int], k: Sequence[int]) -> list[tuple[int, int]]:
    """The batch shapes that the data can fill, known before a batch is drawn."""
    ids, names = class_ids(data.labels, None)
    classes, largest = len(names), int(np.bincount(ids).max())
    some = [a for a in p if check_int("p", a) <= classes]
    if not some:
        raise InputError("p", list(p), f"at least one P of at most {classes}, the data's classes")
    fits = [(a, b) for a in some for b in k if b <= largest or a * b <= len(data.labels)]
    if not fits:
        allowed = f"at least one K of at most {largest}, the samples of the largest class"
        raise InputError("k", list(k), allowed)
    return fits


def _networks(model: Model, dims: Sequence[int] | None) -> list[nn.Module]:
    if dims is None:
        if not isinstance(model, nn.Module):
            raise InputError("dim", None, "a list of dimensions for a function that makes networks")
        return [model]
    if isinstance(model, nn.Module):
        raise InputError("model", type(model).__name__, "a function from a dimension to a network")
    return [model(check_int("dim", width)) for width in dims]


def _rows(data: LabelledData, p: int, k: int, seed: int) -> Iterator[Sequence[int]]:
    """The rows of one batch after another, without end."""
    return itertools.chain.from_iterable(itertools.repeat(PKSampler(data.labels, p, k, seed)))


def _batches(data: LabelledData, p: int, k: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    return (data[rows] for rows in _rows(data, p, k, seed))


def embedded_batches(
    network: nn.Module, data: LabelledData, p: int, k: int, count: int, seed: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches through the network as training would see them, without moving its statistics."""
    yield from _embedded(network, itertools.islice(_batches(data, p, k, seed), count))


def other_batches(
    network: nn.Module, data: LabelledData, p: int, k: int, count: int, seed: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """The samples that are in none of those batches, once each, in random order: for a memory."""
    size, batches = len(data.labels), itertools.islice(_rows(data, p, k, seed), count)
    seen = np.unique(np.concatenate([np.asarray(rows) for rows in batches]))
    unseen = np.random.default_rng(seed).permutation(np.setdiff1d(np.arange(size), seen))
    parts = (unseen[start : start + p * k] for start in range(0, len(unseen) - 1, p * k))
    yield from _embedded(network, (data[torch.from_numpy(part)] for part in parts))


def _embedded(
    network: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]
) -> Iterator[tuple[Tensor, Tensor]]:
    device = next(network.parameters(), torch.empty(0)).device
    kept = {name: value.clone() for name, value in network.named_buffers()}
    network.train()
    try:
        for samples, labels in batches:
            with torch.no_grad():
                z = network(samples.to(device)).float().cpu()
            yield z, labels
    finally:
        for name, value in network.named_buffers():
            value.copy_(kept[name])


def _cell(
    loss_fn: TripletLoss | Wrapper,
    embedded: list[tuple[Tensor, Tensor]],
    shape: tuple[int, int],
    strategy: Strategy,
    c: float,
    unit: bool,
) -> ForecastCell:
    radial = drifts.drift(loss_fn, embedded, normalize=unit)
    size = sum(diameter(z) for z, _ in embedded) / len(embedded)
    margin = cast(TripletLoss, innermost(loss_fn)).margin
    loss = sum(hard_mined_loss(z, y, margin) for z, y in embedded) / len(embedded)
    dim, bound = embedded[0][0].shape[1], diameter_lower_bound(size, loss, c)
    rates = radial.value, radial.spread, radial.relative_loss
    modes = drifts.mode_drift(loss_fn, embedded, normalize=unit)
    return ForecastCell(*shape, dim, strategy, *rates, size, loss, bound, modes=modes)
