"""What a forecast found: a cell for each shape, dimension and strategy, and what to choose."""

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
from uncollapse.geometry import diameter, diameter_lower_bound, hard_mined_loss
from uncollapse.health.advice import advise_on
from uncollapse.health.drifts import (
    NO_DRIFT,
    ModeDrift,
    Probe,
    drift,
    filled_memories,
    has_unit_rows,
    mode_drift,
    probe,
)
from uncollapse.health.strategy import (
    RunSettings,
    Strategy,
    apply_strategy,
    changed_keys,
    finer_classes,
    keeps_modes,
    merges_modes,
    merging_words,
    rank_strategies,
    strategy_of,
)
from uncollapse.health.verdict import Thresholds
from uncollapse.losses import TripletLoss
from uncollapse.losses.base import Wrapper, innermost
from uncollapse.mining import Miner
from uncollapse.samplers import PKSampler

__all__ = [
    "DANGEROUS",
    "Forecast",
    "ForecastCell",
    "LabelledData",
    "embedded_batches",
    "forecast",
    "other_batches",
]


# What a forecast found: a cell for each shape, dimension and strategy, and what to choose.

DANGEROUS = 0.25  # drift above which, without a probe, runs are expected to collapse


@dataclass(frozen=True)
class ForecastCell:
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

    cells: tuple[ForecastCell, ...]
    alternatives: tuple[ForecastCell, ...]
    c: float
    several_modes: bool | None = None
    settings: RunSettings = field(default_factory=RunSettings)

    @property
    def recommended(self) -> ForecastCell:
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

    def _other_modes(self, cell: ForecastCell) -> str:
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


def _why(cell: ForecastCell) -> str:
    if cell.probe is None:
        return f"drift {cell.drift:+.3f} does not shrink"
    steps, left = len(cell.probe.scales), cell.probe.predicted
    return f"{steps} steps of training predict that {left:.2g} times the scale is left"


def _shrinks(cell: ForecastCell) -> str:
    if cell.probe is None:
        return f"shrinks the embedding (drift {cell.drift:+.3f})"
    steps, left = len(cell.probe.scales), cell.probe.predicted
    return f"is predicted to keep {left:.2g} of its scale ({steps} steps of training)"


def _row(cell: ForecastCell) -> dict[str, Any]:
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


# Predict collapse before training: drift, and the bound HNM (17), over batch shapes and dims.

Model = nn.Module | Callable[[int], nn.Module]


class LabelledData(Protocol):
    """Samples that can be drawn by row: `data[rows]` gives `(samples, labels)`."""

    @property
    def labels(self) -> Tensor:
        """One label a row."""

    def __getitem__(self, rows: Any) -> Any: ...


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
    seed: int = 0,
    several_modes: bool | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Forecast:
    """Drift, mode drift, diameter, hard-mined loss and the bound (17) at initialisation.

    `model` is a network, or a function from a dimension to one (needed when `dim` is given; each
    must be newly initialised). `loss_fn` is the triplet loss to ask about: by default batch-hard
    with margin 0.2, HNM's. `probe_steps` adds a short training of a copy for each of its cells.
    Where it has a memory, drifts are those with a full one, of other samples through the same
    network. `several_modes` says whether the classes have several modes, which a recommended
    strategy must then keep; by default that is so where the data has `fine_labels` that divide a
    class.
    Shapes that the data cannot fill (fewer classes than P, or K beyond the largest class in a batch
    beyond all samples) are left out; `InputError` where that leaves none.
    """
    loss_fn = loss_fn or TripletLoss(margin=0.2, miner=Miner("hard", "hard"))
    (
        check_number("c", c, 0.0),
        check_int("batches", batches),
        check_int("probe_steps", probe_steps, 0),
    )
    if not isinstance(innermost(loss_fn), TripletLoss):
        allowed = "a TripletLoss, also in an IdentityLoss or other wrapper, or None for batch-hard"
        raise InputError("loss_fn", type(loss_fn).__name__, allowed)
    if not hasattr(data, "labels"):
        allowed = "a dataset with .labels: uc.LabelledImages(uc.data.TensorSource(x), labels)"
        raise InputError("data", type(data).__name__, allowed)
    shapes = _shapes(data, p, k)
    first = strategy_of(loss_fn)
    several = finer_classes(data) if several_modes is None else several_modes
    settings = replace(RunSettings.of(loss_fn), several_modes=several)
    ranked = rank_strategies(first, settings) if alternatives else []
    others = [one for one in ranked if one.lr_factor == 1.0]
    cells: list[ForecastCell] = []
    extra: list[ForecastCell] = []
    networks = list(_networks(model, dim))
    for done, (network, width, shape) in enumerate((n, w, s) for n, w in networks for s in shapes):
        embedded = list(embedded_batches(network, data, *shape, batches, seed))
        if loss_fn.normalize:
            embedded = [(nn.functional.normalize(z, dim=1), labels) for z, labels in embedded]
        unit = has_unit_rows(embedded[0][0])
        try:
            with filled_memories(loss_fn, other_batches(network, data, *shape, batches, seed)):
                for strategy in (first, *others):
                    apply_strategy(loss_fn, strategy)
                    cell = _cell(loss_fn, embedded, shape, width, strategy, c, unit)
                    (cells if strategy == first else extra).append(cell)
            if probe_steps:  # a memory begins empty there, as in the run
                apply_strategy(loss_fn, first)
                stream = _batches(data, *shape, seed)
                seen = probe(network, loss_fn, stream, probe_steps, lr=probe_lr, normalize=unit)
                cells[-1] = replace(cells[-1], probe=seen)
        finally:
            apply_strategy(loss_fn, first)
        if progress is not None:
            progress(done + 1, len(networks) * len(shapes))
    return Forecast(tuple(cells), tuple(extra), c, several, settings)


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


def _networks(model: Model, dims: Sequence[int] | None) -> Iterator[tuple[nn.Module, int | None]]:
    if dims is None:
        if not isinstance(model, nn.Module):
            raise InputError("dim", None, "a list of dimensions for a function that makes networks")
        yield model, None
        return
    if isinstance(model, nn.Module):
        raise InputError("model", type(model).__name__, "a function from a dimension to a network")
    for width in dims:
        yield model(check_int("dim", width)), width


def _batches(data: LabelledData, p: int, k: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    sampler = PKSampler(data.labels, p, k, seed)
    while True:
        for rows in sampler:
            samples, labels = data[rows]
            yield samples, labels


def embedded_batches(
    network: nn.Module, data: LabelledData, p: int, k: int, count: int, seed: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches through the network as training would see them, without moving its statistics."""
    some = itertools.islice(_batches(data, p, k, seed), count)
    yield from _embedded(network, some)


def other_batches(
    network: nn.Module, data: LabelledData, p: int, k: int, count: int, seed: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """The samples that are in none of those batches, once each, in random order: for a memory."""
    size, sampler = len(data.labels), PKSampler(data.labels, p, k, seed)
    batches = itertools.islice(itertools.chain.from_iterable(itertools.repeat(sampler)), count)
    seen = np.unique(np.concatenate([np.asarray(rows) for rows in batches]))
    rest = np.random.default_rng(seed).permutation(np.setdiff1d(np.arange(size), seen))
    parts = (rest[start : start + p * k] for start in range(0, len(rest) - 1, p * k))
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
    width: int | None,
    strategy: Strategy,
    c: float,
    unit: bool,
) -> ForecastCell:
    measured = drift(loss_fn, embedded, normalize=unit)
    sizes = [diameter(z) for z, _ in embedded]
    margin = cast(TripletLoss, innermost(loss_fn)).margin
    hardest = [hard_mined_loss(z, y, margin) for z, y in embedded]
    mean_size, mean_loss = sum(sizes) / len(sizes), sum(hardest) / len(hardest)
    return ForecastCell(
        *shape,
        width or embedded[0][0].shape[1],
        strategy,
        measured.value,
        measured.spread,
        measured.relative_loss,
        mean_size,
        mean_loss,
        diameter_lower_bound(mean_size, mean_loss, c),
        modes=mode_drift(loss_fn, embedded, normalize=unit),
    )
