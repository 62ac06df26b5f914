"""A sweep: a base run, grids or a search over its keys, seeds, a budget; and the runs in it."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit

from uncollapse._base.check import InputError, check_choice, check_int, check_number
from uncollapse._base.files import read_toml
from uncollapse.sweep.jobs import Job
from uncollapse.training import Config, load_config, parse_config

__all__ = [
    "Grid",
    "Search",
    "Space",
    "Sweep",
    "axis_values",
    "flat_axes",
    "load_sweep",
    "matches",
    "nested",
    "parse_search",
    "parse_sweep",
    "point_name",
    "short_names",
]


# The axes of a grid: dotted config keys with the values each takes, and names of their points.

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


# Where a search may look: choices, and ranges of numbers, for the config's keys.


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


Grid = dict[str, list[Any]]


@dataclass(frozen=True)
class Sweep:
    """A sweep, checked: every config in it can be parsed.

    `grids` are made one after the other and share their points; an axis that one of them does not
    have stands there at the base's value. `seeds` is the outermost loop, so that a sweep that is
    cut short has looked at every point.
    """

    base: Config
    grids: tuple[Grid, ...]
    seeds: tuple[int, ...]
    exclude: tuple[Mapping[str, Any], ...] = ()
    early_stop: str | None = None
    max_runs: int | None = None
    max_hours: float | None = None
    search: Search | None = None

    @property
    def axes(self) -> tuple[str, ...]:
        """The config keys that vary, in the order of the file; the seed is not among them."""
        if self.search is not None:
            return tuple(self.search.spaces)
        return tuple(dict.fromkeys(key for grid in self.grids for key in grid))

    def deadline(self) -> float | None:
        """When, by `time.monotonic()`, the hours of a sweep that begins now are spent."""
        return None if self.max_hours is None else time.monotonic() + 3600.0 * self.max_hours

    def config(self, point: Mapping[str, Any]) -> Config:
        """The base with these keys changed."""
        return self.base.with_changes(nested(point))

    def job(self, point: Mapping[str, Any], seed: int) -> Job:
        """The run at a point; its name says where that is."""
        short = short_names([*self.axes, "seed"])
        config = self.config({**point, "seed": seed})
        place = {short[key]: config.value(key) for key in self.axes}
        return Job(point_name({**place, "seed": seed}), config)

    def jobs(self) -> list[Job]:
        """Every run of the grid, once."""
        jobs: dict[str, Job] = {}
        for seed in self.seeds:
            for point in self.points():
                job = self.job(point, seed)
                if jobs.setdefault(job.name, job).config != job.config:
                    raise InputError("grid", f"{job.name} twice", "values with different names")
        return list(jobs.values())

    def points(self, *, excluded: bool = False) -> list[dict[str, Any]]:
        """The combinations of the grids; with `excluded`, those that are left out instead."""
        every = [point for grid in self.grids for point in _points(grid)]
        return [p for p in every if any(matches(rule, p) for rule in self.exclude) == excluded]

    def point(self, config: Config) -> dict[str, Any]:
        """Where a run of this sweep stands: its value on each axis."""
        return {key: config.value(key) for key in self.axes}

    def to_toml(self) -> str:
        """The sweep with everything resolved, as it is kept beside its results."""
        values: dict[str, Any] = {"seeds": list(self.seeds)}
        if self.early_stop is not None:
            values["early_stop"] = self.early_stop
        values["base"] = self.base.to_values()
        values["exclude"] = [dict(one) for one in self.exclude]
        limits = {"max_runs": self.max_runs, "max_hours": self.max_hours}
        values["budget"] = {k: v for k, v in limits.items() if v is not None}
        if self.search is None:
            values["grid"] = [dict(grid) for grid in self.grids]
        else:
            values["search"] = self.search.to_dict()
        return tomlkit.dumps({k: v for k, v in values.items() if v not in ({}, [])})


def matches(rule: Mapping[str, Any], point: Mapping[str, Any]) -> bool:
    """Whether a point of a grid falls under a rule of `exclude`; a list means any of its values.

    >>> matches({"batch.p": [2, 4]}, {"batch.p": 4, "batch.k": 2})
    True
    """
    return all(
        key in point and (point[key] in value if isinstance(value, list) else point[key] == value)
        for key, value in rule.items()
    )


def _points(grid: Grid) -> list[dict[str, Any]]:
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


# Read a sweep from TOML and check all of it, before anything runs.

_KEYS = ("base", "grid", "search", "exclude", "seeds", "early_stop", "budget")


def load_sweep(path: str | Path, *, data_root: str | Path | None = None) -> Sweep:
    """Read and check a sweep; `base = "run.toml"` is looked for beside the file."""
    return parse_sweep(read_toml(Path(path)), folder=Path(path).parent, data_root=data_root)


def parse_sweep(
    values: Mapping[str, Any],
    *,
    folder: str | Path = ".",
    data_root: str | Path | None = None,
) -> Sweep:
    """Check a sweep given as nested values, every config of it included.

    >>> sweep = parse_sweep({"grid": {"batch.p": [2, 4]}, "seeds": 2})
    >>> [job.name for job in sweep.jobs()]
    ['p=2,seed=0', 'p=4,seed=0', 'p=2,seed=1', 'p=4,seed=1']
    >>> parse_sweep({"grid": {"batch.q": [2]}})
    Traceback (most recent call last):
    uncollapse._base.check.InputError: batch.q: expected one of sampler, p, k, size, got a key that
    does not exist
    """
    for key in values:
        check_choice("a key of the sweep", key, _KEYS)
    base = _base(values.get("base", {}), Path(folder)).with_root(data_root)
    if ("grid" in values) == ("search" in values):
        given = "both" if "grid" in values else "neither"
        raise InputError("sweep", given, "either a [grid] or a [search]")
    early_stop = values.get("early_stop")
    if early_stop is not None:
        check_choice("early_stop", early_stop, ("collapse",))
        stopping = base.guard.model_copy(update={"action": "stop"})
        base = base.model_copy(update={"guard": stopping})
    budget = values.get("budget", {})
    for key in budget:
        check_choice("a key of [budget]", key, ("max_runs", "max_hours"))
    runs, hours = budget.get("max_runs"), budget.get("max_hours")
    search = values.get("search")
    sweep = Sweep(
        base,
        _grids(values.get("grid", [])),
        _seeds(values.get("seeds", [base.seed])),
        tuple(flat_axes(one, "exclude") for one in values.get("exclude", [])),
        early_stop,
        None if runs is None else check_int("budget.max_runs", runs),
        None if hours is None else check_number("budget.max_hours", hours, 0.0),
        None if search is None else parse_search(search),
    )
    _check_axes(sweep)
    return sweep


def _base(given: Any, folder: Path) -> Config:
    if isinstance(given, str):
        return load_config(folder / given)
    if not isinstance(given, Mapping):
        raise InputError("base", repr(given), "a table, or the name of a run's TOML file")
    return parse_config(given)


def _grids(given: Any) -> tuple[Grid, ...]:
    tables = given if isinstance(given, list) else [given]
    found = tuple(
        {key: axis_values(key, value) for key, value in flat_axes(table, "grid").items()}
        for table in tables
    )
    if given != [] and not all(found):
        raise InputError("grid", "no axis", "at least one config key with its values")
    return found


def _seeds(given: Any) -> tuple[int, ...]:
    if isinstance(given, list):
        seeds = tuple(check_int("seeds", seed, 0) for seed in given)
        if not seeds or len(set(seeds)) < len(seeds):
            raise InputError("seeds", repr(given), "a number of seeds, or different ones in a list")
        return seeds
    return tuple(range(check_int("seeds", given)))


def _check_axes(sweep: Sweep) -> None:
    if "seed" in sweep.axes:
        raise InputError("seed", "an axis", "seeds = [...] at the top of the file")
    if sweep.search is not None:
        if len(sweep.seeds) > 1:
            raise InputError("seeds", list(sweep.seeds), "one seed in a search")
        for point in sweep.search.corners():
            sweep.config(point)
        return
    left_out = sweep.points(excluded=True)
    for rule in sweep.exclude:
        for key in rule:
            check_choice("exclude", key, sweep.axes)
        if not any(matches(rule, point) for point in left_out):
            raise InputError("exclude", dict(rule), "a combination that is in the grid")
    if not sweep.jobs():
        raise InputError("exclude", "every combination", "at least one that is left")
