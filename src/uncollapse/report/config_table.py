"""Configs in a report: all keys of one, or where several differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uncollapse.report.blocks import note, table, unfold
from uncollapse.report.markup import Html
from uncollapse.training import Config

__all__ = ["config_differences", "config_table", "flat"]


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


def config_table(config: Config) -> Html:
    """What was changed from the defaults, and all keys when asked for."""
    own = flat(Config(loss=type(config.loss)()))  # of this loss
    values, usual = flat(config), own | {"loss.name": Config().loss.name}
    changed = [[key, _said(v)] for key, v in values.items() if usual.get(key) != v]
    every = table(["key", "value"], [[key, _said(v)] for key, v in values.items()])
    shown = table(["key", "value"], changed, caption="What differs from the defaults")
    return Html((shown if changed else note("All defaults.")) + unfold("All keys", every))


def config_differences(configs: Mapping[str, Config]) -> Html:
    """A column a run, a row for each key that is not the same in all."""
    values = {name: flat(config) for name, config in configs.items()}
    keys = list(dict.fromkeys(key for one in values.values() for key in one))
    rows = {key: [_said(one.get(key)) for one in values.values()] for key in keys}
    differ = [[key, *row] for key, row in rows.items() if len(set(row)) > 1]
    same = [[key, row[0]] for key, row in rows.items() if len(set(row)) == 1]
    shown = table(["key", *values], differ) if differ else note("The configs are the same.")
    common = unfold(f"{len(same)} keys that are the same", table(["key", "value"], same))
    return Html(shown + common)


def _said(value: object) -> str:
    return "–" if value is None else str(value)
