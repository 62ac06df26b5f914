"""Predict collapse before training: drift, and the bound HNM (17), over batch shapes and dims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from uncollapse._base.arrays import class_ids
from uncollapse._base.check import InputError, check_int, check_number
from uncollapse.geometry import diameter, diameter_lower_bound, hard_mined_loss
from uncollapse.health.radial_drift import drift, has_unit_rows
from uncollapse.health.strategy import Strategy, apply_strategy, ladder, strategy_of
from uncollapse.health.thresholds import Thresholds
from uncollapse.health.trial_steps import NO_DRIFT, Probe, probe
from uncollapse.losses import TripletLoss
from uncollapse.mining import Miner
from uncollapse.samplers import PKSampler

__all__ = ["DANGEROUS", "Cell", "Forecast", "LabelledData", "embedded_batches", "forecast"]

Model = nn.Module | Callable[[int], nn.Module]
DANGEROUS = 0.25  # drift above which, without a probe, runs are expected to collapse


class LabelledData(Protocol):
    """Samples that can be drawn by row: `data[rows]` gives `(samples, labels)`."""

    @property
    def labels(self) -> Tensor:
        """One label a row."""

    def __getitem__(self, rows: Any) -> Any: ...


@dataclass(frozen=True)
class Cell:
    """The prediction for one batch shape, dimension and strategy.

    `bound` is HNM (17): diameter - c·loss, with the loss of the hardest triplet; a forecast, not a
    guarantee, and without content where it is negative.

    `risk` is `none` for a drift that does not shrink (at most 0.02), `high` above 0.25, `some`
    between. A probe knows better: `high` if the share of the scale it predicts is one that the
    monitor would call shrinking (0.25), `some` if the embedding is to shrink at all, else `none`.
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
    """Cells of the strategy asked about, the same cells under alternatives, and what to choose."""

    cells: tuple[Cell, ...]
    alternatives: tuple[Cell, ...]
    c: float

    @property
    def recommended(self) -> Cell:
        """The largest batch and dimension of the own strategy with the least risk.

        Where every cell of it is risky, the best cell of the nearest alternative that is not.
        """
        for found in (self.cells, self.alternatives):
            safe = [cell for cell in found if cell.risk == "none"]
            if safe:
                return max(safe, key=lambda cell: (cell.p * cell.k, cell.dim))
        return min(self.cells, key=lambda cell: cell.drift)

    @property
    def reason(self) -> str:
        """Why that one, in words."""
        cell = self.recommended
        shape = f"P={cell.p}, K={cell.k}, dim={cell.dim} with {cell.strategy}"
        if cell.risk == "none" and cell in self.cells:
            return f"{shape}: {_why(cell)}, and more samples teach more"
        if cell.risk == "none":
            worst = min(self.cells, key=lambda one: one.drift)
            return (
                f"{shape}: drift {cell.drift:+.3f}; under {worst.strategy} every shape shrinks "
                f"(at best {worst.drift:+.3f}, P={worst.p}, K={worst.k}, dim={worst.dim})"
            )
        return f"{shape}: drift {cell.drift:+.3f} is the smallest; every strategy tried shrinks"

    def to_rows(self) -> list[dict[str, Any]]:
        """One flat dict a cell, own strategy first: for tables and files."""
        return [_row(cell) for cell in (*self.cells, *self.alternatives)]

    def __str__(self) -> str:
        head = "   P    K   dim  strategy                        drift   spread  diameter  "
        lines = [head + f"loss    bound(c={self.c:g})  risk"]
        for cell in (*self.cells, *self.alternatives):
            lines.append(
                f"{cell.p:4d} {cell.k:4d} {cell.dim:5d}  {cell.strategy!s:28s} {cell.drift:+8.3f} "
                f"{cell.spread:8.3f} {cell.diameter:9.3g} {cell.loss:7.3g} {cell.bound:9.3g}"
                f"     {cell.risk}"
            )
        lines.append(f"recommended: {self.reason}")
        lines.append("(17) is a forecast, not a guarantee: training has been seen to violate it.")
        return "\n".join(lines)


def forecast(
    model: Model,
    data: LabelledData,
    p: Sequence[int] = (2, 4, 8, 18),
    k: Sequence[int] = (2, 4, 8, 16, 32),
    dim: Sequence[int] | None = None,
    *,
    loss_fn: TripletLoss | None = None,
    alternatives: bool = True,
    c: float = 2.0,
    batches: int = 8,
    probe_steps: int = 0,
    probe_lr: float = 1e-3,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Forecast:
    """Drift, diameter, hard-mined loss and the bound (17) at initialisation, without training.

    `model` is a network, or a function from a dimension to one (needed when `dim` is given; each
    must be newly initialised). `loss_fn` is the triplet loss to ask about: by default batch-hard
    with margin 0.2, HNM's. `probe_steps` adds a short training of a copy for each of its cells.
    Shapes that the data cannot fill (fewer classes than P, or K beyond the largest class in a batch
    beyond all samples) are left out; `InputError` where that leaves none.
    """
    loss_fn = loss_fn or TripletLoss(margin=0.2, miner=Miner("hard", "hard"))
    (
        check_number("c", c, 0.0),
        check_int("batches", batches),
        check_int("probe_steps", probe_steps, 0),
    )
    if not isinstance(loss_fn, TripletLoss):
        raise InputError("loss_fn", type(loss_fn).__name__, "a TripletLoss, or None for batch-hard")
    if not hasattr(data, "labels"):
        allowed = "a dataset with .labels: uc.LabelledImages(uc.data.TensorSource(x), labels)"
        raise InputError("data", type(data).__name__, allowed)
    shapes = _shapes(data, p, k)
    first = strategy_of(loss_fn)
    others = [rung for rung in ladder(first) if rung.lr_factor == 1.0] if alternatives else []
    cells: list[Cell] = []
    extra: list[Cell] = []
    networks = list(_networks(model, dim))
    for done, (network, width, shape) in enumerate((n, w, s) for n, w in networks for s in shapes):
        embedded = list(embedded_batches(network, data, *shape, batches, seed))
        if loss_fn.normalize:
            embedded = [(nn.functional.normalize(z, dim=1), labels) for z, labels in embedded]
        unit = has_unit_rows(embedded[0][0])
        try:
            for strategy in (first, *others):
                apply_strategy(loss_fn, strategy)
                cell = _cell(loss_fn, embedded, shape, width, strategy, c, unit)
                if strategy != first:
                    extra.append(cell)
                    continue
                if probe_steps:
                    batch_stream = _batches(data, *shape, seed)
                    seen = probe(
                        network,
                        loss_fn,
                        batch_stream,
                        probe_steps,
                        lr=probe_lr,
                        normalized=unit,
                    )
                    cell = replace(cell, probe=seen)
                cells.append(cell)
        finally:
            apply_strategy(loss_fn, first)
        if progress is not None:
            progress(done + 1, len(networks) * len(shapes))
    return Forecast(tuple(cells), tuple(extra), c)


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


@torch.no_grad()
def embedded_batches(
    network: nn.Module, data: LabelledData, p: int, k: int, count: int, seed: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches through the network as training would see them, without moving its statistics."""
    device = next(network.parameters(), torch.empty(0)).device
    kept = {name: value.clone() for name, value in network.named_buffers()}
    network.train()
    for _, (samples, labels) in zip(range(count), _batches(data, p, k, seed), strict=False):
        yield network(samples.to(device)).float().cpu(), labels
    for name, value in network.named_buffers():
        value.copy_(kept[name])


def _cell(
    loss_fn: TripletLoss,
    embedded: list[tuple[Tensor, Tensor]],
    shape: tuple[int, int],
    width: int | None,
    strategy: Strategy,
    c: float,
    unit: bool,
) -> Cell:
    measured = drift(loss_fn, embedded, normalized=unit)
    sizes = [diameter(z) for z, _ in embedded]
    hardest = [hard_mined_loss(z, y, loss_fn.margin) for z, y in embedded]
    mean_size, mean_loss = sum(sizes) / len(sizes), sum(hardest) / len(hardest)
    return Cell(
        *shape,
        width or embedded[0][0].shape[1],
        strategy,
        measured.value,
        measured.spread,
        measured.relative_loss,
        mean_size,
        mean_loss,
        diameter_lower_bound(mean_size, mean_loss, c),
    )


def _why(cell: Cell) -> str:
    if cell.probe is None:
        return f"drift {cell.drift:+.3f} does not shrink"
    steps, left = len(cell.probe.scales), cell.probe.predicted
    return f"{steps} steps of training predict that {left:.2g} times the scale is left"


def _row(cell: Cell) -> dict[str, Any]:
    row = {key: value for key, value in vars(cell).items() if key not in ("strategy", "probe")}
    row |= {"strategy": str(cell.strategy), "risk": cell.risk}
    if cell.probe is not None:
        seen = cell.probe
        row |= {
            "probe_scale_factor": seen.scale_factor,
            "probe_relative_loss_factor": seen.relative_loss_factor,
            "probe_predicted": seen.predicted,
        }
    return row
