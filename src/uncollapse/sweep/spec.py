"""A sweep: a base run, grids or a search over its keys, seeds, a budget; and the runs in it."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import tomlkit
from pydantic import Field, ValidationError

from uncollapse._base.check import InputError, check_choice, check_int
from uncollapse._base.files import read_toml
from uncollapse.sweep.jobs import Job
from uncollapse.training import Config, load_config, parse_config
from uncollapse.training.config import explain, nested
from uncollapse.training.sections import Section

__all__ = ["Sweep", "axis_values", "load_sweep", "parse_sweep", "point_name", "short_names"]

_MOST = 1000  # values of one axis
_LONGEST = 120  # characters of a name; file systems take 255
Number = int | float


class Range(Section):
    """`{from, to, step}` or `{from, to, times}`: numbers of a grid, ends included."""

    start: Number = Field(alias="from")
    to: Number
    step: Number | None = Field(None, gt=0)
    times: Number | None = Field(None, gt=1)

    def values(self) -> list[Any]:
        """The numbers; `ValueError` for a range that has none, or too many."""
        if (self.step is None) == (self.times is None) or self.to < self.start:
            raise ValueError
        if self.step is not None:
            count = math.floor((self.to - self.start) / self.step + 1e-9) + 1
            values = [round(self.start + i * self.step, 12) for i in range(min(count, _MOST + 1))]
        else:
            ratio = math.log(self.to / self.start) / math.log(self.times or 1)
            count = math.floor(ratio + 1e-9) + 1
            powers = ((self.times or 1) ** i for i in range(min(count, _MOST + 1)))
            values = [float(f"{self.start * power:.12g}") for power in powers]
        if len(values) > _MOST:
            raise ValueError
        given = (self.start, self.to, self.step or self.times)
        whole = all(isinstance(number, int) for number in given)
        return [int(value) for value in values] if whole else [float(value) for value in values]


class Space(Section):
    """Where a search may look for one key: some `choices`, or the numbers from `low` to `high`."""

    choices: list[bool | Number | str] = Field([])
    low: Number | None = None
    high: Number | None = None
    log: bool = False

    @property
    def ends(self) -> list[Any]:
        """Its choices, or its lowest and highest number."""
        return self.choices or [self.low, self.high]

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are meant."""
        return isinstance(self.low, int) and isinstance(self.high, int)


class Search(Section):
    """`[search]`: a number of trials over spaces, one for each key."""

    trials: int = Field(ge=1)
    spaces: dict[str, Space]

    def corners(self) -> list[dict[str, Any]]:
        """Points at which every end of every space is met once, the others at their first."""
        first = {key: space.ends[0] for key, space in self.spaces.items()}
        return [{**first, key: end} for key, space in self.spaces.items() for end in space.ends]


class Budget(Section):
    """`[budget]`: how many runs, and how many hours, a sweep may take at a time."""

    max_runs: int | None = Field(None, ge=1)
    max_hours: float | None = Field(None, ge=0)


class Sweep(Section):
    """A sweep, checked: every config in it can be parsed.

    The grids are made one after the other and share their points; an axis that one of them does not
    have stands there at the base's value. `seeds` is the outermost loop, so that a sweep that is
    cut short has looked at every point.
    """

    base: Config
    grid: list[dict[str, list[Any]]] = Field([])
    search: Search | None = None
    exclude: list[dict[str, Any]] = Field([])
    seeds: list[int]
    early_stop: Literal["collapse"] | None = None
    budget: Budget = Budget()

    @property
    def axes(self) -> tuple[str, ...]:
        """The config keys that vary, in the order of the file; the seed is not among them."""
        if self.search is not None:
            return tuple(self.search.spaces)
        return tuple(dict.fromkeys(key for grid in self.grid for key in grid))

    def deadline(self) -> float | None:
        """When, by `time.monotonic()`, the hours of a sweep that begins now are spent."""
        hours = self.budget.max_hours
        return None if hours is None else time.monotonic() + 3600.0 * hours

    def config(self, point: Mapping[str, Any]) -> Config:
        """The base with these keys changed."""
        return self.base.with_changes(nested(point))

    def jobs(self) -> list[Job]:
        """Every run of the grid, once; its name says where it stands."""
        short = short_names([*self.axes, "seed"])
        jobs: dict[str, Job] = {}
        for seed, point in itertools.product(self.seeds, self.points()):
            config = self.config({**point, "seed": seed})
            values = {short[key]: value for key, value in self.point(config).items()}
            job = Job(point_name({**values, "seed": seed}), config)
            if jobs.setdefault(job.name, job).config != config:
                raise InputError("grid", f"{job.name} twice", "values with different names")
        return list(jobs.values())

    def points(self, *, excluded: bool = False) -> list[dict[str, Any]]:
        """The combinations of the grids; with `excluded`, those that are left out instead."""
        points = [
            dict(zip(grid, values, strict=True))
            for grid in self.grid
            for values in itertools.product(*grid.values())
        ]
        return [p for p in points if any(_matches(rule, p) for rule in self.exclude) == excluded]

    def point(self, config: Config) -> dict[str, Any]:
        """Where a run of this sweep stands: its value on each axis."""
        return {key: config.value(key) for key in self.axes}

    def to_toml(self) -> str:
        """The sweep with everything resolved, as it is kept beside its results."""
        values = self.model_dump(exclude_none=True, exclude={"base"}, exclude_defaults=True)
        if self.search is not None:
            values["search"] = {"trials": self.search.trials, **values["search"]["spaces"]}
        return tomlkit.dumps({**values, "base": self.base.to_values()})


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


def _matches(rule: Mapping[str, Any], point: Mapping[str, Any]) -> bool:
    """Whether a point of a grid falls under a rule of `exclude`; a list means any of its values."""
    return all(
        key in point and (point[key] in value if isinstance(value, list) else point[key] == value)
        for key, value in rule.items()
    )


# Read a sweep from TOML and check all of it, before anything runs.


def load_sweep(path: str | Path, *, data_root: str | Path | None = None) -> Sweep:
    """Read and check a sweep; `base = "run.toml"` is looked for beside the file."""
    return parse_sweep(read_toml(Path(path)), folder=Path(path).parent, data_root=data_root)


def parse_sweep(
    values: Mapping[str, Any], *, folder: str | Path = ".", data_root: str | Path | None = None
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
    if ("grid" in values) == ("search" in values) and values.keys() <= Sweep.model_fields.keys():
        given = "both" if "grid" in values else "neither"
        raise InputError("sweep", given, "either a [grid] or a [search]")
    base = _base(values.get("base", {}), Path(folder)).with_root(data_root)
    if values.get("early_stop") == "collapse":
        stopping = base.guard.model_copy(update={"action": "stop"})
        base = base.model_copy(update={"guard": stopping})
    resolved = {**values, "base": base, "seeds": _seeds(values.get("seeds", [base.seed]))}
    resolved["exclude"] = [_flat("exclude", rule) for rule in values.get("exclude", [])]
    if "grid" in values:
        grids = values["grid"] if isinstance(values["grid"], list) else [values["grid"]]
        resolved["grid"] = [
            {key: axis_values(key, value) for key, value in _flat("grid", grid).items()}
            for grid in grids
        ]
    if "search" in values:
        resolved["search"] = _search(values["search"])
    try:
        sweep = Sweep.model_validate(resolved)
    except ValidationError as error:
        raise explain(error, Sweep) from None
    _check_axes(sweep)
    return sweep


def axis_values(key: str, given: Any) -> list[Any]:
    """The values of an axis: a list, `{from, to, step}` or `{from, to, times}`, ends included.

    >>> axis_values("model.dim", {"from": 4, "to": 64, "times": 4})
    [4, 16, 64]
    >>> axis_values("loss.margin", {"from": 0.0, "to": 0.3, "step": 0.1})
    [0.0, 0.1, 0.2, 0.3]
    """
    values = given
    if isinstance(given, Mapping):
        try:
            values = Range.model_validate(given).values()
        except (ValidationError, ValueError, ArithmeticError):
            allowed = (
                "{from, to, step} or {from, to, times}, with a step above 0 (times: above 1, from "
                f"above 0) and at most {_MOST} values"
            )
            raise InputError(key, repr(dict(given)), allowed) from None
    if not isinstance(values, list) or not values:
        raise InputError(key, repr(given), "a list of values, or {from, to, step} or {..., times}")
    if any(value in values[:i] for i, value in enumerate(values)):
        raise InputError(key, repr(given), "each value once")
    return values


def _flat(name: str, table: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted keys of a table, whether written `batch.p = ...` or `"batch.p" = ...`."""
    if not isinstance(table, Mapping) or not table:
        raise InputError(name, repr(table), "at least one config key with its values")
    flat: dict[str, Any] = {}
    for key, value in table.items():
        is_range = isinstance(value, Mapping) and {"from", "choices", "low"} & value.keys()
        inner = isinstance(value, Mapping) and not is_range
        flat |= _flat(name, value, f"{prefix}{key}.") if inner else {prefix + key: value}
    return flat


def _search(given: Any) -> dict[str, Any]:
    """`trials`, and a space for each key."""
    if not isinstance(given, Mapping):
        raise InputError("search", repr(given), "a table of config keys")
    keys = _flat("search", {key: value for key, value in given.items() if key != "trials"})
    trials = check_int("search.trials", given.get("trials"))
    return {"trials": trials, "spaces": {key: _space(key, space) for key, space in keys.items()}}


def _space(key: str, given: Any) -> Space:
    allowed = "a list of choices, {low, high} or {low, high, log = true}"
    values = {"choices": given} if isinstance(given, list) else given
    try:
        space = Space.model_validate(values)
    except ValidationError:
        if isinstance(given, list):
            allowed = "choices that are numbers or words"
        raise InputError(key, repr(given), allowed) from None
    low, high = space.low, space.high
    if (low is None) != (high is None) or (low is None) == (not space.choices):
        raise InputError(key, repr(given), allowed)
    if low is not None and high is not None and (high < low or (space.log and low <= 0)):
        allowed = "low up to high, and a number above 0 on a logarithmic scale"
        raise InputError(key, repr(given), allowed)
    return space


def _base(given: Any, folder: Path) -> Config:
    if isinstance(given, str):
        return load_config(folder / given)
    if not isinstance(given, Mapping):
        raise InputError("base", repr(given), "a table, or the name of a run's TOML file")
    return parse_config(given)


def _seeds(given: Any) -> list[int]:
    if not isinstance(given, list):
        return list(range(check_int("seeds", given)))
    seeds = [check_int("seeds", seed, 0) for seed in given]
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError("seeds", repr(given), "a number of seeds, or different ones in a list")
    return seeds


def _check_axes(sweep: Sweep) -> None:
    if "seed" in sweep.axes:
        raise InputError("seed", "an axis", "seeds = [...] at the top of the file")
    if sweep.search is not None:
        if len(sweep.seeds) > 1:
            raise InputError("seeds", sweep.seeds, "one seed in a search")
        for point in sweep.search.corners():
            sweep.config(point)
        return
    left_out = sweep.points(excluded=True)
    for rule in sweep.exclude:
        for key in rule:
            check_choice("exclude", key, sweep.axes)
        if not any(_matches(rule, point) for point in left_out):
            raise InputError("exclude", dict(rule), "a combination that is in the grid")
    if not sweep.jobs():
        raise InputError("exclude", "every combination", "at least one that is left")
