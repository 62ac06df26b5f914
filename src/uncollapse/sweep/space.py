"""Where a search may look: choices, and ranges of numbers, for the config's keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from uncollapse._base.check import InputError, check_int, check_number
from uncollapse.sweep.grid_axes import flat_axes

__all__ = ["Search", "Space", "parse_search"]


@dataclass(frozen=True)
class Space:
    """Values of one key: some `choices`, or the numbers from `low` to `high`."""

    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False

    @property
    def ends(self) -> tuple[Any, ...]:
        """Its choices, or its lowest and highest number."""
        if self.choices:
            return self.choices
        return (int(self.low), int(self.high)) if self.whole else (self.low, self.high)

    def to_dict(self) -> dict[str, Any]:
        """As it stands in a file."""
        if self.choices:
            return {"choices": list(self.choices)}
        return {"low": self.ends[0], "high": self.ends[1], "log": self.log}


@dataclass(frozen=True)
class Search:
    """A number of trials over spaces, one for each key."""

    spaces: Mapping[str, Space]
    trials: int

    def corners(self) -> list[dict[str, Any]]:
        """Points at which every end of every space is met once, the others at their first."""
        first = {key: space.ends[0] for key, space in self.spaces.items()}
        return [{**first, key: end} for key, space in self.spaces.items() for end in space.ends]

    def to_dict(self) -> dict[str, Any]:
        """As it stands in a file."""
        spaces = {key: space.to_dict() for key, space in self.spaces.items()}
        return {"trials": self.trials, **spaces}


def parse_search(given: Any) -> Search:
    """Check `[search]`: `trials`, and a space for each key.

    >>> search = parse_search({"trials": 5, "loss.margin": {"low": 0.0, "high": 0.5},
    ...                        "mining.positives": ["easy", "hard"]})
    >>> search.spaces["mining.positives"].choices, search.spaces["loss.margin"].whole
    (('easy', 'hard'), False)
    """
    if not isinstance(given, Mapping):
        raise InputError("search", repr(given), "a table of config keys")
    trials = check_int("search.trials", given.get("trials"))
    keys = flat_axes({k: v for k, v in given.items() if k != "trials"}, "search")
    if not keys:
        raise InputError("search", "no key to search over", "at least one config key")
    return Search({key: _space(key, value) for key, value in keys.items()}, trials)


def _space(key: str, given: Any) -> Space:
    if isinstance(given, list):
        given = {"choices": given}
    if isinstance(given, Mapping) and given.keys() == {"choices"} and given["choices"]:
        if any(isinstance(choice, list | Mapping) for choice in given["choices"]):
            raise InputError(key, repr(given["choices"]), "choices that are numbers or words")
        return Space(choices=tuple(given["choices"]))
    asked = {"low", "high"}
    if not isinstance(given, Mapping) or not asked <= given.keys() <= asked | {"log"}:
        allowed = "a list of choices, {low, high} or {low, high, log = true}"
        raise InputError(key, repr(given), allowed)
    log = given.get("log", False) is True
    low = check_number(f"{key}.low", given["low"])
    high = check_number(f"{key}.high", given["high"], low)
    if log and low <= 0:
        raise InputError(f"{key}.low", given["low"], "a number above 0 on a logarithmic scale")
    whole = all(isinstance(given[end], int) for end in asked)
    return Space((), low, high, log, whole)
