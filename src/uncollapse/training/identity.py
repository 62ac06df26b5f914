"""Which config a run and its checkpoints were made with: what may differ, and what may not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uncollapse._base.check import InputError
from uncollapse.training.config import Config

__all__ = ["changed_keys", "check_same", "config_values", "is_of_the_network"]

# What may differ between a run and the config it is resumed with.
_MAY_CHANGE = {
    "distributed.timeout",
    "train.steps",
    "train.keep_memory",
    "train.log_every",
    "train.loggers",
    "train.threads",
    "train.tensorboard",
}
# What says how a network is looked at, not which one it is.
_OF_LOOKING = ("data.root", "data.workers", "data.eval_splits", "evaluate.", "train.", "guard.")


def config_values(config: Config) -> dict[str, Any]:
    """Every key of a config by its dotted name, as JSON has it: what a checkpoint carries.

    >>> config_values(Config())["batch.p"]
    8
    """
    return _flat(config.model_dump(mode="json"))


def changed_keys(before: Mapping[str, Any], now: Config) -> dict[str, tuple[Any, Any]]:
    """Keys whose values differ, as `(before, now)`; those that may change are left out.

    Keys that only one of the two has are of another version, and are not compared.
    """
    values = config_values(now)
    return {
        key: (old, values[key])
        for key, old in before.items()
        if key in values and key not in _MAY_CHANGE and old != values[key]
    }


def is_of_the_network(key: str) -> bool:
    """Whether a key is about how a network was made, not about how it is looked at."""
    return not key.startswith(_OF_LOOKING)


def check_same(before: Config, now: Config) -> None:
    """Raise `InputError` for a key that may not change and is not as the run was started with."""
    old, new = config_values(before), config_values(now)
    for key in [*old, *(key for key in new if key not in old)]:
        if key not in _MAY_CHANGE and old.get(key) != new.get(key):
            given = f"{new.get(key)!r} (the run was started with {old.get(key)!r})"
            raise InputError(key, given, "the run's own value when resuming")


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
