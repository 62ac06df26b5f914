"""A forecast for a config, before training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from torch import nn

from uncollapse._base.check import InputError
from uncollapse._base.files import write_csv
from uncollapse.health.forecasts import Forecast, forecast
from uncollapse.losses import TripletLoss
from uncollapse.losses.base import Wrapper, innermost
from uncollapse.training.assemble import build_loss, load_eval_data
from uncollapse.training.config import Config
from uncollapse.training.session import first_network


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
    widths = list(dim or [config.model.dim])
    if config.loss.identity is not None and len(widths) > 1:
        raise InputError.conflict(
            "the classifier of [loss.identity] is as wide as the embedding: forecast one dimension "
            "at a time"
        )
    data = load_eval_data(config, config.data.train_split)
    data = replace(data, labels=data.label_index)  # as training numbers them
    shape = tuple(replace(data, features=None)[:1][0].shape[1:])
    loss = build_loss(config.with_changes({"model": {"dim": widths[0]}}), data)
    if not isinstance(innermost(loss), TripletLoss):
        raise InputError("loss.name", repr(config.loss.name), "'triplet'")

    def network(width: int) -> nn.Module:
        return first_network(config.with_changes({"model": {"dim": width}}), data, shape)

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


def save_forecast(result: Forecast, folder: Path) -> list[Path]:
    """The table as CSV, in `folder`."""
    rows = result.to_rows()
    fields = list(dict.fromkeys(key for row in rows for key in row))
    path = folder / "forecast.csv"
    write_csv(path, fields, ([row.get(key, "") for key in fields] for row in rows))
    return [path]
