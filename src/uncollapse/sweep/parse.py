"""Read a sweep from TOML and check all of it, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uncollapse._base.check import InputError, check_choice, check_int, check_number
from uncollapse._base.files import read_toml
from uncollapse.sweep.grid_axes import axis_values, flat_axes
from uncollapse.sweep.space import parse_search
from uncollapse.sweep.spec import Grid, Sweep, matches
from uncollapse.training import Config, load_config, parse_config

__all__ = ["load_sweep", "parse_sweep"]

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
