"""Which columns of a table are dimensions, labels and names; what is doubtful is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np

from uncollapse._base.check import did_you_mean
from uncollapse.data.load_report import DataError

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array

__all__ = ["Choice", "label_values", "table_arrays"]

Columns = Mapping[str, Sequence[Any]]

_ID_NAME = re.compile(
    r"^$|^Unnamed: \d+$|[a-z]I[dD]$"
    r"|(?i:(^|[_\-. ])(id|ids|idx|index|key|pk|uid|uuid|sku|ean|gtin|row)$)"
)
_SERIES = 4  # numbered columns from which a table's dimensions are known by their name
_FEW = 8  # rows from which whole numbers among fractions are no accident


@dataclass(frozen=True)
class Choice:
    """Columns as the user names them: patterns for dimensions and for what is left out."""

    features: Sequence[str] = ()
    label: str | None = None
    id: str | None = None
    ignore: Sequence[str] = ()
    others: Mapping[str, str] = field(default_factory=dict)  # by option: columns beside all these

    def check(self, names: Sequence[str]) -> None:
        """Raise `DataError` for a name or a pattern that no column has."""
        given = {
            "--features": self.features,
            "--ignore": self.ignore,
            "--label": [self.label],
            "--id": [self.id],
            **{option: [name] for option, name in self.others.items()},
        }
        for option, one in ((option, one) for option, some in given.items() for one in some):
            if one is not None and not _matching(names, [one]):
                near = did_you_mean(one, names)
                raise DataError(f"{option} {one}: no such column{near}; there is: {_listed(names)}")


def table_arrays(
    columns: Columns, choice: Choice, roles: Mapping[str, Sequence[str]]
) -> dict[str, Array]:
    """The arrays of a table: `embeddings`, and one for each of the `roles` that a column has.

    A role is the column chosen for it, else the first of its usual names that is there; `others`
    of the choice keep their names. Dimensions are the columns chosen, else a list column, else all
    others; then each must be numbers, and none may look like an id or stand outside a numbered
    series. Raises `DataError`.
    """
    choice.check(list(columns))
    kept = {n: v for n, v in columns.items() if n not in _matching(list(columns), choice.ignore)}
    chosen = {"labels": choice.label, "names": choice.id}
    lists = {name for name in kept if any(isinstance(v, list | np.ndarray) for v in kept[name])}
    named = [
        name for name in roles.get("names", ()) if name not in lists
    ]  # `text` may hold vectors
    found = {
        role: next((name for name in (chosen.get(role), *usual) if name in kept), None)
        for role, usual in {**roles, "names": named}.items()
    }
    arrays = {
        role: (_words if role == "names" else label_values)(kept[name], name)
        for role, name in found.items()
        if name is not None
    }
    arrays |= {name: label_values(columns[name], name) for name in choice.others.values()}
    # A second column of names is no dimension; a second one of labels (x, y, label) may be.
    spare = {*found.values(), *named, *choice.others.values()}
    rest = [name for name in kept if name not in spare]
    dimensions = _matching(list(kept), choice.features) if choice.features else rest
    if vectors := [name for name in dimensions if name in lists]:
        return arrays | {"embeddings": _of_lists(kept, vectors)}
    series = _series(dimensions)
    doubts = {name: why for name in dimensions if (why := _text(kept[name]))}
    numbers = {name: _numbers(kept[name], name) for name in dimensions if name not in doubts}
    if not choice.features:
        doubts |= _doubtful(numbers, kept, series)
    if doubts:
        said = "; ".join(f"column {name!r} {why}" for name, why in doubts.items())
        raise DataError(f"{said}. {_ways_out(next(iter(doubts)), series)}")
    return arrays | ({"embeddings": np.array(list(numbers.values())).T} if numbers else {})


def label_values(values: Sequence[Any], name: str) -> Array:
    """Labels as whole numbers, where all are written as such, else as words.

    >>> label_values(["1", "2"], "label").tolist(), label_values(["1", "02"], "label").tolist()
    ([1, 2], ['1', '02'])
    """
    for place, value in enumerate(values):
        if value is None or value == "" or value != value:
            raise DataError(f"column {name!r} is empty in row {place + 1}; each row needs a label")
        if isinstance(value, float) and not value.is_integer():
            allowed = "labels are whole numbers or words"
            raise DataError(f"column {name!r} holds {value} in row {place + 1}; {allowed}")
    texts = [str(int(v)) if isinstance(v, float) else str(v) for v in values]
    whole = all(text == str(int(text)) for text in texts if _is_whole(text))
    if whole and all(map(_is_whole, texts)):
        return np.array([int(text) for text in texts])
    return np.array(texts)


def _words(values: Sequence[Any], name: str) -> Array:
    return np.array([str(value) for value in values])


def _text(values: Sequence[Any]) -> str:
    """Why a column is no numbers; empty if it may be."""
    for place, value in enumerate(values):
        try:
            float("nan" if value is None or value == "" else value)
        except (TypeError, ValueError):
            where = f"{str(value)[:40]!r} in row {place + 1}"
            return f"is neither numbers nor a known name ({where})"
    return ""


def _numbers(values: Sequence[Any], name: str) -> list[float]:
    for place, value in enumerate(values):
        if value is None or value == "":
            raise DataError(f"column {name!r} is empty in row {place + 1}")
    return [float(value) for value in values]


def _of_lists(columns: Columns, names: list[str]) -> Array:
    usual = [name for name in names if name in ("embeddings", "embedding", "features")]
    if len(names) > 1 and len(usual) != 1:
        raise DataError(f"columns {_listed(names)} all hold lists; choose one with --features")
    name = names[0] if len(names) == 1 else usual[0]
    lengths = {len(v) if isinstance(v, list | np.ndarray) else 0 for v in columns[name]}
    if len(lengths) > 1:
        few, many = min(lengths), max(lengths)
        raise DataError(
            f"column {name!r} holds lists of {few} to {many} numbers; all must be alike"
        )
    return np.asarray([list(v) for v in columns[name]], np.float64)


def _series(names: Sequence[str]) -> str | None:
    """What most names have before their number (`f` of f0, f1, ...); None if there is no such."""
    stems = [re.sub(r"\d+$", "", name) for name in names if re.search(r"\d$", name)]
    stem = max(set(stems), key=stems.count, default=None)
    return stem if stems.count(stem or "") >= max(_SERIES, len(names) / 2) else None


def _doubtful(
    numbers: Mapping[str, list[float]], columns: Columns, series: str | None
) -> dict[str, str]:
    """Columns that would be dimensions and look as if they were none, and why."""
    whole = {name for name in numbers if all(_is_whole(str(v)) for v in columns[name])}
    found = {}
    for name, values in numbers.items():
        if series is not None and re.fullmatch(re.escape(series) + r"\d+", name):
            continue
        odd = len(values) >= _FEW and len(set(values)) > 1 and name in whole
        if _ID_NAME.search(name) or (odd and len(whole) < len(numbers) / 2):
            found[name] = f"looks like an id (such as {columns[name][0]})"
        elif series is not None:
            found[name] = f"is not one of the columns {series}0, {series}1, ..."
    return found


def _ways_out(name: str, series: str | None) -> str:
    return (
        f"Leave it out (--ignore {name!r}), use it as labels or names (--label {name!r}, "
        f"--id {name!r}), or name the dimensions (--features '{series or 'f'}*')"
    )


def _matching(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """The names that are one of the patterns, or match one, in their own order."""
    return [n for n in names if any(n == one or fnmatchcase(n, one) for one in patterns)]


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:12]))
    return f"{shown} and {len(names) - 12} more" if len(names) > 12 else shown or "none"
