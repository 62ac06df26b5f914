"""Configs in a report: all keys of one, or where several differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uncollapse.report.tables import Table
from uncollapse.training import Config

__all__ = ["config_content", "config_differences", "flat"]


def flat(config: Config) -> dict[str, Any]:
    """Every key that is set, by its dotted name.

    >>> flat(Config())["batch.p"]
    8
    """
    found: dict[str, Any] = {}
    for section, values in config.model_dump(exclude_none=True).items():
        if isinstance(values, Mapping):
            found |= {f"{section}.{key}": value for key, value in values.items()}
        else:
            found[section] = values
    return found


def config_content(config: Config) -> dict[str, dict[str, str]]:
    """Keys and values: those `changed` from the defaults, and `every` one."""
    own = flat(Config(loss=type(config.loss)()))  # of this loss
    values, usual = flat(config), own | {"loss.name": Config().loss.name}
    every = {key: _text(value) for key, value in values.items()}
    changed = {key: text for key, text in every.items() if usual.get(key) != values[key]}
    return {"changed": changed, "every": every}


def config_differences(configs: Mapping[str, Config]) -> dict[str, Any]:
    """`differences`: a column per run, a row per key in which they differ; and the `same` keys."""
    values = {name: flat(config) for name, config in configs.items()}
    keys = dict.fromkeys(key for one in values.values() for key in one)
    rows = {key: [_text(one.get(key)) for one in values.values()] for key in keys}
    differ = [[key, *row] for key, row in rows.items() if len(set(row)) > 1]
    return {
        "differences": Table(["key", *values], differ) if differ else None,
        "same": {key: row[0] for key, row in rows.items() if len(set(row)) == 1},
    }


def _text(value: object) -> str:
    return "–" if value is None else str(value)
