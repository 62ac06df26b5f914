"""The axes of a grid: dotted config keys with the values each takes, and names of their points."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from uncollapse._base.check import InputError, check_number

__all__ = ["axis_values", "flat_axes", "nested", "point_name", "short_names"]

_MOST = 1000  # values of one axis
_LONGEST = 120  # characters of a name; file systems take 255


def flat_axes(table: Mapping[str, Any], name: str, prefix: str = "") -> dict[str, Any]:
    """Dotted keys of a table, whether written `batch.p = ...` or `"batch.p" = ...`.

    >>> flat_axes({"batch": {"p": [2, 4]}, "model.dim": {"from": 4, "to": 8, "step": 2}}, "grid")
    {'batch.p': [2, 4], 'model.dim': {'from': 4, 'to': 8, 'step': 2}}
    """
    if not isinstance(table, Mapping):
        raise InputError(name, repr(table), "a table of config keys")
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and not {"from", "choices", "low"} & value.keys():
            found |= flat_axes(value, name, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def axis_values(key: str, given: Any) -> list[Any]:
    """The values of an axis: a list, `{from, to, step}` or `{from, to, times}`, ends included.

    >>> axis_values("model.dim", {"from": 4, "to": 64, "times": 4})
    [4, 16, 64]
    >>> axis_values("loss.margin", {"from": 0.0, "to": 0.3, "step": 0.1})
    [0.0, 0.1, 0.2, 0.3]
    """
    if isinstance(given, Mapping):
        values = _range(key, given)
    elif isinstance(given, list) and given:
        values = given
    else:
        raise InputError(key, repr(given), "a list of values, or {from, to, step} or {..., times}")
    if any(value in values[:i] for i, value in enumerate(values)):
        raise InputError(key, repr(given), "each value once")
    return list(values)


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as the sections of a config.

    >>> nested({"batch.p": 2, "batch.k": 4, "seed": 1})
    {'batch': {'p': 2, 'k': 4}, 'seed': 1}
    """
    found: dict[str, Any] = {}
    for key, value in flat.items():
        *sections, last = key.split(".")
        place = found
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise InputError(key, "a key inside a value", "a key of the config")
        place[last] = value
    return found


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """The last word of each key, or the whole key where that would not tell them apart.

    >>> short_names(["batch.p", "loss.margin", "mining.margin"])
    {'batch.p': 'p', 'loss.margin': 'loss.margin', 'mining.margin': 'mining.margin'}
    """
    last = [key.rpartition(".")[2] for key in keys]
    return {k: w if last.count(w) == 1 else k for k, w in zip(keys, last, strict=True)}


def point_name(point: Mapping[str, Any]) -> str:
    """A stable directory name for a point of the grid.

    >>> point_name({"p": 8, "margin": 0.2, "name": "n-pair", "seed": 0})
    'p=8,margin=0.2,name=n-pair,seed=0'
    """
    name = ",".join(f"{key}={_word(value)}" for key, value in point.items())
    if len(name) <= _LONGEST:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:10]
    return f"{name[: _LONGEST - 11]}-{digest}"


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "+".join(map(_word, value)) or "none"
    return re.sub(r"[^\w.+-]", "-", str(value))


def _range(key: str, given: Mapping[str, Any]) -> list[Any]:
    how = given.keys() - {"from", "to"}
    if given.keys() != {"from", "to", *how} or how not in ({"step"}, {"times"}):
        raise InputError(key, repr(dict(given)), "{from, to, step} or {from, to, times}")
    low = check_number(f"{key}.from", given["from"])
    high = check_number(f"{key}.to", given["to"], low)
    if "step" in how:
        step = check_number(f"{key}.step", given["step"])
        count = math.floor((high - low) / step + 1e-9) + 1 if step > 0 else 0
        values = [round(low + i * step, 12) for i in range(min(count, _MOST + 1))]
    else:
        times = check_number(f"{key}.times", given["times"])
        count = 0
        if low > 0 and times > 1:
            count = math.floor(math.log(high / low) / math.log(times) + 1e-9) + 1
        values = [float(f"{low * times**i:.12g}") for i in range(min(count, _MOST + 1))]
    if not 1 <= len(values) <= _MOST:
        allowed = f"a step above 0 (times: above 1, from above 0) and at most {_MOST} values"
        raise InputError(key, repr(dict(given)), allowed)
    whole = all(isinstance(part, int) for part in given.values())
    return [int(v) for v in values] if whole else values
