"""`--set a.b=c`: keys of a config changed from the command line."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from uncollapse._base.check import InputError

__all__ = ["apply_overrides"]


def apply_overrides(values: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Nested values with dotted keys set: `batch.p=18`, `evaluate.ks=[1,5]`; a new dictionary.

    The value is read as TOML, and as plain text where it is none. Raises `InputError` for what is
    no `key=value`, and for a key below one that is no section.

    >>> apply_overrides({"batch": {"p": 4}}, ["batch.p=18", "model.backbone=conv2"])
    {'batch': {'p': 18}, 'model': {'backbone': 'conv2'}}
    """
    result = {key: dict(v) if isinstance(v, Mapping) else v for key, v in values.items()}
    for override in overrides:
        key, equals, text = (part.strip() for part in override.partition("="))
        if not equals or not key:
            raise InputError("--set", repr(override), "key=value, such as mining.positives=easy")
        *sections, last = key.split(".")
        place: dict[str, Any] = result
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise InputError("--set", repr(key), f"{section} to be a section, not a value")
        place[last] = _value(text)
    return result


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
