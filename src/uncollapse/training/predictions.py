"""A forecast asked of a config before training."""

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
from uncollapse.health.forecasts import Forecast, forecast
from uncollapse.losses import TripletLoss
from uncollapse.losses.base import Wrapper, innermost
from uncollapse.training.assemble import build_loss, load_eval_data
from uncollapse.training.config import Config
from uncollapse.training.session import first_network

__all__ = ["forecast_run", "save_forecast"]

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
