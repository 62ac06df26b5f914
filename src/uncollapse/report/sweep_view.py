"""The table of a sweep as it is drawn: rows read back, and split into what one chart compares."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uncollapse._base.check import InputError
from uncollapse.health import Thresholds
from uncollapse.report.sweep_points import RunPoint
from uncollapse.sweep import Sweep, load_sweep
from uncollapse.sweep.grid_axes import short_names

__all__ = ["Facet", "Row", "SweepView", "read_view"]

Row = Mapping[str, Any]
_BATCH = ("batch.p", "batch.k", "batch.size")
_LIMIT = Thresholds().collapse_ratio


@dataclass(frozen=True)
class Facet:
    """Runs that differ only along x (and in their seeds); `fixed` says what they share."""

    x_label: str
    fixed: str
    rows: tuple[Row, ...]
    points: tuple[RunPoint, ...]


@dataclass(frozen=True)
class SweepView:
    """A sweep with the rows of its table; numbers are numbers again, what is missing is None."""

    folder: Path
    sweep: Sweep
    rows: tuple[Row, ...]

    @property
    def done(self) -> list[Row]:
        """Runs with an outcome to draw."""
        return [row for row in self.rows if row.get("diameter") is not None]

    def facets(self) -> list[Facet]:
        """One for each axis of numbers and each setting of the others; P and K are one axis."""
        axes = [a for a in self.sweep.axes if a not in _BATCH and self._numeric(a)]
        found: list[Facet] = []
        if any(axis in _BATCH for axis in self.sweep.axes):
            found += self._split(_BATCH, "batch size", self.batch_size, self._p_group)
        for axis in axes:
            name = axis.rpartition(".")[2]
            label = "dimension" if axis == "model.dim" else name

            def value(row: Row, axis: str = axis) -> float:
                return float(row[axis])

            found += self._split((axis,), label, value, lambda _: "")
        return found

    def shapes(self) -> list[Facet]:
        """The facets that hold a grid of P by K."""
        if not {"batch.p", "batch.k"} <= set(self.sweep.axes):
            return []
        facets = self._split(_BATCH, "batch size", self.batch_size, self._p_group)
        return [one for one in facets if len({row["batch.k"] for row in one.rows}) > 1]

    def batch_size(self, row: Row) -> float:
        """P x K, or the size of a uniform batch."""
        c = self.sweep.base.batch
        if row.get("batch.sampler", c.sampler) == "uniform":
            return float(row.get("batch.size", c.size))
        return float(row.get("batch.p", c.p)) * float(row.get("batch.k", c.k))

    def _split(
        self,
        along: Sequence[str],
        label: str,
        x: Callable[[Row], float],
        group: Callable[[Row], str],
    ) -> list[Facet]:
        # The trials of a search share no settings: all are drawn together.
        searched = self.sweep.search is not None
        others = [axis for axis in self.sweep.axes if axis not in along and not searched]
        short = short_names(self.sweep.axes)
        parts: dict[tuple[Any, ...], list[Row]] = {}
        for row in self.done:
            parts.setdefault(tuple(row[axis] for axis in others), []).append(row)
        found = []
        for values, rows in parts.items():
            if len({x(row) for row in rows}) < 2:
                continue
            fixed = ", ".join(f"{short[a]} {v}" for a, v in zip(others, values, strict=True))
            points = tuple(_point(row, x(row), group(row)) for row in rows)
            found.append(Facet(label, fixed, tuple(rows), points))
        return found

    def _p_group(self, row: Row) -> str:
        return f"P = {row['batch.p']}" if "batch.p" in row else ""

    def _numeric(self, axis: str) -> bool:
        values = {row[axis] for row in self.done}
        return len(values) > 1 and all(
            isinstance(v, int | float) and not isinstance(v, bool) for v in values
        )


def read_view(folder: str | Path) -> SweepView:
    """Read `sweep.toml` and `results.csv` of a sweep's folder."""
    place = Path(folder)
    table = place / "results.csv"
    if not table.is_file():
        raise InputError("sweep", f"{place} (no results.csv in it)", "a sweep's folder")
    with table.open(encoding="utf-8", newline="") as file:
        rows = tuple({k: _read(k, v) for k, v in row.items()} for row in csv.DictReader(file))
    return SweepView(place, load_sweep(place / "sweep.toml"), rows)


def _point(row: Row, x: float, group: str) -> RunPoint:
    start = float(row["diameter_init"])
    bound = row.get("bound")
    return RunPoint(
        x,
        float(row["diameter"]),
        start,
        _LIMIT * start,
        bool(row["collapsed"]),
        None if bound is None else float(bound),
        group,
    )


def _read(key: str, text: str) -> Any:
    if text == "":
        return None
    if text in ("True", "False"):
        return text == "True"
    if key in ("run", "error"):
        return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
