"""A forecast from a run's config: its data, its network at initialisation, its loss."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

from torch import nn

from uncollapse._base.check import InputError
from uncollapse._base.files import write_csv
from uncollapse.data import LabelledImages
from uncollapse.health import NoiseProbe, noise_probe
from uncollapse.health.forecasts import Forecast, forecast
from uncollapse.losses import TripletLoss
from uncollapse.losses.base import Wrapper, innermost
from uncollapse.training.assemble import build_loss, load_eval_data
from uncollapse.training.config import Config
from uncollapse.training.evaluation import evenly_spaced
from uncollapse.training.measures import NotMeasuredError
from uncollapse.training.run import Run, check_trusted
from uncollapse.training.session import first_network

__all__ = [
    "FittedC",
    "before_and_after",
    "fit_c",
    "forecast_run",
    "noise_probe_run",
    "save_forecast",
]


# A forecast from a run's config: its data, its network at initialisation, its loss.

Progress = Callable[[int, int], None]


def forecast_run(
    config: Config,
    p: Sequence[int],
    k: Sequence[int],
    dim: Sequence[int] | None = None,
    *,
    c: float = 2.0,
    probe_steps: int = 0,
    progress: Progress | None = None,
) -> Forecast:
    """Ask `health.forecast` about a config's own data, network and triplet loss."""
    data = load_eval_data(config, config.data.train_split)
    data = replace(data, labels=data.label_index)  # as training numbers them
    ask = partial(_forecast, config, data, p, k, c=c, probe_steps=probe_steps)
    widths = list(dim or [config.model.dim])
    if not config.loss.id_weight:
        return ask(widths, progress=progress)
    # A classifier is as wide as the embedding: each width has a loss of its own.
    found = [
        ask([width], progress=_part(progress, number, len(widths)))
        for number, width in enumerate(widths)
    ]
    cells = tuple(cell for one in found for cell in one.cells)
    others = tuple(cell for one in found for cell in one.alternatives)
    return replace(found[0], cells=cells, alternatives=others)


def _forecast(
    config: Config,
    data: LabelledImages,
    p: Sequence[int],
    k: Sequence[int],
    widths: Sequence[int],
    *,
    c: float,
    probe_steps: int,
    progress: Progress | None,
) -> Forecast:
    """The forecast of widths that share a loss: that of the first."""
    shape = tuple(replace(data, features=None)[:1][0].shape[1:])

    def of_width(width: int) -> Config:
        model = config.model.model_copy(update={"dim": width})
        return config.model_copy(update={"model": model})

    def network(width: int) -> nn.Module:
        return first_network(of_width(width), data, shape)

    loss = build_loss(of_width(widths[0]), data)
    if not isinstance(innermost(loss), TripletLoss):
        raise InputError("loss.name", repr(config.loss.name), "'triplet'")
    return forecast(
        network,
        data,
        p,
        k,
        widths,
        loss_fn=cast("TripletLoss | Wrapper", loss),
        c=c,
        probe_steps=probe_steps,
        probe_lr=config.optimizer.lr,
        seed=config.seed,
        progress=progress,
    )


def _part(progress: Progress | None, number: int, parts: int) -> Progress | None:
    """Progress in one of several equal parts, as progress in the whole."""
    if progress is None:
        return None
    return lambda done, total: progress(number * total + done, parts * total)


def save_forecast(found: Forecast, folder: Path) -> list[Path]:
    """The table as CSV, in `folder`."""
    rows = found.to_rows()
    fields = list(dict.fromkeys(key for row in rows for key in row))
    path = folder / "forecast.csv"
    write_csv(path, fields, ([row.get(key, "") for key in fields] for row in rows))
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


def before_and_after(run: Run) -> tuple[float, float, float]:
    """Diameter and hard-mined loss of a run's network as it began, and its diameter at the end.

    Means over the same batches of its training data through both networks, as in a forecast; read
    from the run's measures. Raises `InputError` where the loss is no plain triplet loss, and
    `NotMeasuredError` for a run that has not ended or has no measures.
    """
    measures = run.measures()
    first = measures.before.batches
    if first.hard_mined_loss is None:
        name = run.config.loss.name
        raise InputError("loss.name", repr(name), f"a plain 'triplet' in {run.path}")
    if measures.after is None:
        raise NotMeasuredError(run.path, "measures after training: it has not ended")
    return first.diameter, first.hard_mined_loss, measures.after.batches.diameter


# The noise question asked of a run: EPS §4.2 on its own data and network.


def noise_probe_run(
    run: Run | Config,
    p: Sequence[float] = (1.0, 0.9, 0.8, 0.7),
    *,
    steps: int = 200,
    max_samples: int = 2000,
    fine_tune: bool = False,
) -> NoiseProbe:
    """Inject label noise into a run's training data, train briefly, and compare positives.

    At each p the config's network is trained from scratch (`fine_tune` starts from the run's last
    checkpoint) for `steps`, once with regular and once with easy positives, on at most
    `max_samples` evenly spaced samples. Fine labels, where the data has them, are used to judge.
    """
    config = run.config if isinstance(run, Run) else run
    data = load_eval_data(config, config.data.train_split)
    rows = evenly_spaced(len(data), max_samples)
    samples, labels = data[rows]
    if isinstance(run, Run):
        check_trusted(run.path, config, trust=run.trust)

    def network() -> nn.Module:
        if fine_tune and isinstance(run, Run):
            return run.load_model()
        return first_network(config, data, replace(data, features=None)[:1][0].shape[1:])

    return noise_probe(
        network,
        samples,
        labels,
        p,
        fine_labels=None if data.fine_labels is None else data.fine_labels[rows],
        steps=steps,
        lr=config.optimizer.lr,
        seed=config.seed,
    )
