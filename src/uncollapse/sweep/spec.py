"""A sweep: a base run, grids or a search over its keys, seeds, a budget; and the runs in it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tomli_w

from uncollapse._base.check import InputError
from uncollapse.sweep.grid_axes import nested, point_name, short_names
from uncollapse.sweep.job import Job
from uncollapse.sweep.space import Search
from uncollapse.training import Config

__all__ = ["Grid", "Sweep", "matches"]

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
        return tomli_w.dumps({k: v for k, v in values.items() if v not in ({}, [])})


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
