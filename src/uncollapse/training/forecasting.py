"""A forecast from a run's config: its data, its network at initialisation, its loss."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table
from torch import nn

from uncollapse._base.check import InputError
from uncollapse.geometry import diameter, hard_mined_loss
from uncollapse.health.forecast import Forecast, embedded_batches, forecast
from uncollapse.losses import TripletLoss
from uncollapse.training.assemble import build_loss, build_model, load_data
from uncollapse.training.checkpoint import write_text
from uncollapse.training.config import Config
from uncollapse.training.run import Run

__all__ = [
    "FittedC",
    "before_and_after",
    "fit_c",
    "forecast_run",
    "forecast_tables",
    "save_forecast",
]

_COLOURS = {"none": "green", "some": "yellow", "high": "red"}


def forecast_run(
    config: Config,
    p: Sequence[int],
    k: Sequence[int],
    dim: Sequence[int] | None = None,
    *,
    c: float = 2.0,
    probe_steps: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Forecast:
    """Ask `health.forecast` about a config's own data, network and triplet loss."""
    data = load_data(config, config.data.train_split)
    loss = build_loss(config, data)
    if not isinstance(loss, TripletLoss):
        raise InputError("loss.name", repr(config.loss.name), "'triplet', untrimmed")
    shape = tuple(data[:1][0].shape[1:])

    def network(width: int) -> nn.Module:
        model = config.model.model_copy(update={"dim": width})
        return build_model(config.model_copy(update={"model": model}), shape)

    return forecast(
        network,
        data,
        p,
        k,
        dim or [config.model.dim],
        loss_fn=loss,
        c=c,
        probe_steps=probe_steps,
        probe_lr=config.optimiser.lr,
        seed=config.seed,
        progress=progress,
    )


def forecast_tables(found: Forecast) -> list[Table]:
    """The own strategy for each batch shape and dimension; then its alternatives, in short."""
    own = Table(title=f"{found.cells[0].strategy}, at initialisation")
    probed = found.cells[0].probe is not None
    columns = ["P", "K", "dim", "drift", "±", "diameter", "loss", "bound (17)"]
    for name in [*columns, *["left"] * probed, "risk"]:
        own.add_column(name, justify="right", no_wrap=True)
    for cell in found.cells:
        colour = _COLOURS[cell.risk]
        own.add_row(
            str(cell.p),
            str(cell.k),
            str(cell.dim),
            f"{cell.drift:+.3f}",
            f"{cell.spread:.3f}",
            f"{cell.diameter:.3g}",
            f"{cell.loss:.3g}",
            f"{cell.bound:.3g}" if cell.bound > 0 else "vacuous",
            *([] if cell.probe is None else [f"{cell.probe.predicted:.2g}"]),
            f"[{colour}]{cell.risk}[/{colour}]",
        )
    if not found.alternatives:
        return [own]
    others = Table("strategy", "largest drift", "shrinks in", title="alternatives, same shapes")
    for strategy in dict.fromkeys(cell.strategy for cell in found.alternatives):
        cells = [cell for cell in found.alternatives if cell.strategy == strategy]
        worst = max(cells, key=lambda cell: cell.drift)
        shrinking = sum(cell.risk != "none" for cell in cells)
        colour = _COLOURS[worst.risk]
        others.add_row(
            str(strategy),
            f"[{colour}]{worst.drift:+.3f}[/{colour}]",
            f"{shrinking} of {len(cells)} shapes",
        )
    return [own, others]


def save_forecast(found: Forecast, folder: Path) -> list[Path]:
    """The table as CSV, in `folder`."""
    rows = found.to_rows()
    text = io.StringIO()
    fields = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.DictWriter(text, fields)
    writer.writeheader()
    writer.writerows(rows)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "forecast.csv"
    write_text(path, text.getvalue())
    return [path]


@dataclass(frozen=True)
class FittedC:
    """`c` of (17) as finished runs have it: what each alone asks for, and what all do.

    A run that grew asks for a negative one: any c would have held.

    >>> FittedC((0.5, 1.5, -2.0)).c
    1.5
    """

    each: tuple[float, ...]

    @property
    def c(self) -> float:
        """The smallest c that is not negative and with which (17) held in every run."""
        return max(0.0, *self.each)

    def __str__(self) -> str:
        low, middle, high = min(self.each), statistics.median(self.each), max(self.each)
        some = f"{len(self.each)} run{'s' * (len(self.each) > 1)}"
        return f"c = {self.c:.3g} from {some}: {low:.3g} to {high:.3g}, median {middle:.3g}"


def fit_c(runs: Sequence[tuple[float, float, float]]) -> FittedC:
    """From `(diameter before, loss before, diameter after)` of finished runs: c of HNM (17).

    >>> str(fit_c([(4.0, 1.0, 3.0), (4.0, 2.0, 1.0)]))
    'c = 1.5 from 2 runs: 1 to 1.5, median 1.25'
    """
    usable = tuple((before - after) / loss for before, loss, after in runs if loss > 0)
    if not usable:
        raise InputError("runs", "none with a loss above 0", "finished runs that started mixed")
    return FittedC(usable)


def before_and_after(run: Run, batches: int = 8) -> tuple[float, float, float]:
    """Diameter and hard-mined loss of a run's network as it began, and its diameter at the end.

    Means over the same PK batches of its training data through both networks, as in a forecast.
    """
    config = run.config
    if config.loss.name != "triplet":
        raise InputError("loss.name", repr(config.loss.name), f"'triplet' in {run.path}")
    data = load_data(config, config.data.train_split)
    margin = config.loss.margin
    shape = (config.batch.p, config.batch.k, batches, config.seed)
    begun = build_model(config, data[:1][0].shape[1:])
    first = [
        (diameter(z), hard_mined_loss(z, labels, margin))
        for z, labels in embedded_batches(begun, data, *shape)
    ]
    last = [diameter(z) for z, _ in embedded_batches(run.load_model(), data, *shape)]
    sizes, losses = zip(*first, strict=True)
    return sum(sizes) / batches, sum(losses) / batches, sum(last) / batches
