"""Questions asked of a config before training: a forecast, and the noise of its labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
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
from uncollapse.training.run import Run, check_trusted
from uncollapse.training.session import first_network

__all__ = ["forecast_run", "noise_probe_run", "save_forecast"]

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
    forecasts = [
        ask([width], progress=_part(progress, number, len(widths)))
        for number, width in enumerate(widths)
    ]
    cells = tuple(cell for one in forecasts for cell in one.cells)
    others = tuple(cell for one in forecasts for cell in one.alternatives)
    return replace(forecasts[0], cells=cells, alternatives=others)


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


def save_forecast(result: Forecast, folder: Path) -> list[Path]:
    """The table as CSV, in `folder`."""
    rows = result.to_rows()
    fields = list(dict.fromkeys(key for row in rows for key in row))
    path = folder / "forecast.csv"
    write_csv(path, fields, ([row.get(key, "") for key in fields] for row in rows))
    return [path]


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
