"""A sweep: a base run, grids or a search over its keys, seeds, a budget; and the runs in it."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import tomlkit
from pydantic import Field, NonNegativeInt, ValidationError, model_validator

from uncollapse._base.check import InputError
from uncollapse._base.files import read_toml
from uncollapse.sweep.jobs import Job
from uncollapse.sweep.results import short_names
from uncollapse.training.config import Config, explain, load_config, parse_config
from uncollapse.training.measures import dotted
from uncollapse.training.sections import Section

_LONGEST = 120  # characters of a name; file systems take 255


class Space(Section):
    """Where a search may look for one key: some `choices`, or the numbers from `low` to `high`."""

    choices: list[Any] = Field([])
    low: int | float | None = None
    high: int | float | None = None
    log: bool = False

    @model_validator(mode="after")
    def _has_values(self) -> Self:
        low, high = self.low, self.high
        if self.choices:
            plain = all(isinstance(choice, bool | int | float | str) for choice in self.choices)
            usable = plain and low is None and high is None
        else:
            ascending = low is not None and high is not None and low <= high
            usable = ascending and (not self.log or (low or 0) > 0)
        if not usable:
            raise ValueError("choices that are numbers or words, or low up to high (log: above 0)")
        return self

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
    seeds: list[NonNegativeInt]
    budget: Budget = Budget()

    @property
    def axes(self) -> tuple[str, ...]:
        """The config keys that vary, in the order of the file; the seed is not among them."""
        if self.search is not None:
            return tuple(self.search.spaces)
        return tuple(dict.fromkeys(key for grid in self.grid for key in grid))

    def config(self, point: Mapping[str, Any]) -> Config:
        """The base with these keys changed."""
        return self.base.with_changes(point)

    def jobs(self) -> list[Job]:
        """Every run of the grids, once; its name says where it stands."""
        short = short_names([*self.axes, "seed"])
        jobs: dict[str, Job] = {}
        for seed, grid in itertools.product(self.seeds, self.grid):
            for values in itertools.product(*grid.values()):
                config = self.config({**dict(zip(grid, values, strict=True)), "seed": seed})
                point = {short[key]: value for key, value in self.point(config).items()}
                job = Job(point_name({**point, "seed": seed}), config)
                if jobs.setdefault(job.name, job).config != config:
                    raise InputError("grid", f"{job.name} twice", "values with different names")
        return list(jobs.values())

    def point(self, config: Config) -> dict[str, Any]:
        """Where a run of this sweep stands: its value on each axis."""
        values = config.flat()
        return {key: values.get(key) for key in self.axes}

    def to_toml(self) -> str:
        """The sweep with everything resolved, as it is kept beside its results."""
        values = self.model_dump(exclude_none=True, exclude={"base"}, exclude_defaults=True)
        if self.search is not None:
            spaces = values["search"]["spaces"].items()
            choices = {key: space.get("choices", space) for key, space in spaces}
            values["search"] = {"trials": self.search.trials, **choices}
        return tomlkit.dumps({**values, "base": self.base.to_values()})


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
    base = values.get("base", {})
    config = load_config(Path(folder) / base) if isinstance(base, str) else parse_config(base)
    seeds = values.get("seeds", [config.seed])
    resolved = {**values, "base": config.with_root(data_root)}
    resolved["seeds"] = list(range(seeds)) if isinstance(seeds, int) else seeds
    if "grid" in values:
        grids = values["grid"] if isinstance(values["grid"], list) else [values["grid"]]
        resolved["grid"] = [_keys("grid", grid) for grid in grids]
    if "search" in values:
        resolved["search"] = _search(values["search"])
    try:
        sweep = Sweep.model_validate(resolved)
    except ValidationError as error:
        raise explain(error, Sweep) from None
    _check_runs(sweep)
    return sweep


def _keys(name: str, table: Any) -> dict[str, Any]:
    """Dotted keys of a table, whether written `batch.p = ...` or `"batch.p" = ...`."""
    flat = dotted(table) if isinstance(table, Mapping) else {}
    if not flat:
        raise InputError(name, repr(table), "at least one config key with its values")
    return flat


def _search(table: Any) -> dict[str, Any]:
    """`trials`, and a space for each key: a list of choices, or `low`, `high` and `log`."""
    keys = _keys("search", table)
    trials = {"trials": keys.pop("trials")} if "trials" in keys else {}
    spaces: dict[str, dict[str, Any]] = {}
    for key, value in _keys("search", keys).items():
        parent, _, setting = key.rpartition(".")
        if isinstance(value, list):
            spaces[key] = {"choices": value}
        else:
            spaces.setdefault(parent, {})[setting] = value
    return {**trials, "spaces": spaces}


def _check_runs(sweep: Sweep) -> None:
    """Raise for axes and seeds that make no sense, and for a config that cannot be parsed."""
    axes = [("seeds", sweep.seeds), *(axis for grid in sweep.grid for axis in grid.items())]
    for key, values in axes:
        if not values or any(value in values[:i] for i, value in enumerate(values)):
            raise InputError(key, repr(values), "a list of values, each value once")
    if "seed" in sweep.axes:
        raise InputError("seed", "an axis", "seeds = [...] at the top of the file")
    if sweep.search is None:
        sweep.jobs()
        return
    if len(sweep.seeds) > 1:
        raise InputError("seeds", sweep.seeds, "one seed in a search")
    for point in sweep.search.corners():
        sweep.config(point)
