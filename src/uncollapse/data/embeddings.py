"""Files of embeddings, of any origin: npz, npy, safetensors, parquet, csv; written and read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from uncollapse._base.check import InputError, did_you_mean
from uncollapse._base.extras import import_extra
from uncollapse._base.files import written_aside
from uncollapse.data.listing import DataError
from uncollapse.data.readers import (
    ARRAY_FILES,
    NOTE,
    TABLE_FILES,
    Note,
    Origin,
    named_errors,
    parse_note,
    read_arrays,
    read_note,
    read_table,
    write_note,
)

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array

__all__ = [
    "WRITERS",
    "Choice",
    "Embeddings",
    "label_values",
    "read_embeddings",
    "read_labels",
    "table_arrays",
    "write_embeddings",
]


# Embeddings into files, by their ending: npz, safetensors, parquet.

_HEADER = 64 << 20  # bytes of words in the header of a .safetensors file, which may have 100 MB


def _write_npz(path: Path, points: Array, columns: dict[str, Array], origin: Origin | None) -> None:
    note = {} if origin is None else {NOTE: np.array(write_note(Note(origin)))}
    np.savez(path, embeddings=points, **columns, **note)  # type: ignore[arg-type]


def _write_safetensors(
    path: Path, points: Array, columns: dict[str, Array], origin: Origin | None
) -> None:
    from safetensors.numpy import save_file

    numbers = {name: value for name, value in columns.items() if value.dtype.kind in "iub"}
    texts = {name: value.tolist() for name, value in columns.items() if name not in numbers}
    text = write_note(Note(origin, {name: list(map(str, one)) for name, one in texts.items()}))
    if len(text) > _HEADER:
        given = f"{len(text):,} bytes of {', '.join(texts)}"
        raise InputError("path", given, "at most 64 MB in .safetensors; write .npz or .parquet")
    note = {NOTE: text} if texts or origin else None
    save_file({"embeddings": np.ascontiguousarray(points), **numbers}, path, note)


def _write_parquet(
    path: Path, points: Array, columns: dict[str, Array], origin: Origin | None
) -> None:
    arrow, parquet = (import_extra(m, extra="parquet") for m in ("pyarrow", "pyarrow.parquet"))
    flat = arrow.array(points.ravel())
    lists = arrow.FixedSizeListArray.from_arrays(flat, points.shape[1])
    data = {"embeddings": lists} | {name: arrow.array(v.tolist()) for name, v in columns.items()}
    note = None if origin is None else {NOTE: write_note(Note(origin))}
    parquet.write_table(arrow.table(data, metadata=note), path)


# Each takes the path, the points, the columns (labels, names) and where they come from.
WRITERS: dict[str, Callable[[Path, Array, dict[str, Array], Origin | None], None]] = {
    ".npz": _write_npz,
    ".safetensors": _write_safetensors,
    ".parquet": _write_parquet,
}


# Which columns of a table are dimensions, labels and names; what is doubtful is refused.

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


# What is in a file, and the names it usually has there.
_ROLES = {
    "embeddings": ("embeddings", "features", "x", "X"),
    "labels": ("labels", "label", "y"),
    "fine_labels": ("fine_labels", "fine_label"),
    "names": ("texts", "text", "names", "name", "path", "paths", "id", "ids"),
}


@dataclass(frozen=True)
class Embeddings:
    """Embeddings `[N, dim]`, one row per sample; labels, fine labels and names where known.

    `columns` are others by name, such as cameras. `origin` is the run that made them, where the
    file says so; `complaint` a sentence where what it says of itself cannot be used. `held` are the
    names of what the file had.
    """

    points: Array
    labels: Array | None = None
    fine_labels: Array | None = None
    names: Array | None = None
    origin: Origin | None = None
    complaint: str = ""
    columns: Mapping[str, Array] = field(default_factory=dict)
    held: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.points)


def write_embeddings(found: Embeddings, path: str | Path) -> Path:
    """Write by the file's ending: .npz, .parquet or .safetensors; each keeps all that is known.

    Words have no place among the tensors of a .safetensors file and go to its header, up to 64 MB;
    `InputError` beyond that.
    """
    target = Path(path)
    writer = WRITERS.get(target.suffix)
    if writer is None:
        raise InputError("path", target.name, f"a file ending in {', '.join(WRITERS)}")
    kinds = ("labels", "fine_labels", "names")
    columns = {name: value for name in kinds if (value := getattr(found, name)) is not None}
    columns |= found.columns
    with written_aside(target) as aside:
        writer(aside, found.points.astype(np.float32), columns, found.origin)
    return target


def read_embeddings(
    path: str | Path,
    labels: str | Path | None = None,
    *,
    features: str | Sequence[str] = (),
    label: str | None = None,
    id: str | None = None,
    ignore: str | Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
) -> Embeddings:
    """Read embeddings from a file of any origin; `labels` names a second file that holds them.

    Tables (csv, parquet) have one column per dimension, or in parquet one list column, and columns
    named label, fine_label, name or path; every other numeric column is a dimension. What is
    doubtful (text, an id, a column outside a numbered series) is refused; `features` and `ignore`
    (names, or patterns such as `f*`), `label` and `id` (names) say which is which, of arrays too.
    `columns` are others to read as labels are, by what an error calls them: `{"cameras": "cam"}`.
    Raises `DataError`.
    """
    source = Path(path)
    others = dict(columns or {})
    choice = Choice(_several(features), label, id, _several(ignore), others)
    note, complaint = _note(source) if source.is_file() else (Note(), "")
    words = {role: np.array(texts, np.str_) for role, texts in (note.texts or {}).items()}
    if labels is None:
        arrays, held = _read(source, "file", choice, words)
    else:
        arrays, held = _read(source, "file", replace(choice, label=None), words)
        arrays["labels"] = read_labels(Path(labels), label)
    if "embeddings" not in arrays:
        known = ", ".join(_ROLES["embeddings"])
        raise DataError(f"{source}: none of {known}; it holds {', '.join(arrays) or 'nothing'}")
    from uncollapse._base.arrays import points64  # torch: not needed for an error above

    checked = points64(arrays["embeddings"], f"{source.name}: embeddings")
    coarse, fine, names = (
        arrays.get(role, words.get(role)) for role in ("labels", "fine_labels", "names")
    )
    beside = {name: arrays[name] for name in others.values()}
    result = Embeddings(checked, coarse, fine, names, note.origin, complaint, beside, held)
    known_rows = {"labels": coarse, "fine_labels": fine, "names": names} | beside
    for name, value in known_rows.items():
        if value is not None and (value.ndim != 1 or len(value) != len(checked)):
            raise DataError(f"{source}: {name} of shape {value.shape} for {len(checked)} rows")
    return result


def _note(path: Path) -> tuple[Note, str]:
    """What a file says of itself, and a sentence where that cannot be used."""
    text = read_note(path)
    if text is None:
        return Note(), ""
    try:
        return parse_note(text), ""
    except DataError as error:
        return Note(), f"{path}: what it says of its origin is not used: {error}"


def _several(words: str | Sequence[str]) -> tuple[str, ...]:
    return (words,) if isinstance(words, str) else tuple(words)


def _read(
    path: Path, argument: str, choice: Choice, words: Mapping[str, Array]
) -> tuple[dict[str, Array], tuple[str, ...]]:
    """The arrays of a file by their role, what has none by its name; and all names there were."""
    found = _load(path, argument)
    held = tuple(dict.fromkeys([*found, *words]))
    if path.suffix in ARRAY_FILES:
        found = {**words, **found}
        beside = {name: found[name] for name in choice.others.values() if name in found}
        return _by_role(path, found, choice) | beside, held
    roles = {role: names for role, names in _ROLES.items() if role != "embeddings"}
    with named_errors(path):
        return table_arrays(found, choice, roles), held


def read_labels(path: str | Path, label: str | None = None) -> Array:
    """The labels of a file of labels: the column `label`, one of a usual name, or the only one."""
    path = Path(path)
    found = _load(path, "labels")
    with named_errors(path):
        Choice(label=label).check(list(found))
        names = [label] if label else [n for n in _ROLES["labels"] if n in found] or list(found)
        if not label and len(names) > 1 and names[0] not in _ROLES["labels"]:
            raise DataError(f"columns {', '.join(names)}: say with --label which holds the labels")
        values = found[names[0]]
        return values if path.suffix in ARRAY_FILES else label_values(values, names[0])


def _load(path: Path, argument: str) -> dict[str, Any]:
    if path.suffix not in (*ARRAY_FILES, *TABLE_FILES):
        endings = ", ".join([*ARRAY_FILES, *TABLE_FILES])
        raise InputError(argument, path.name, f"a file ending in {endings}")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    found: dict[str, Any] = read_arrays(path) if path.suffix in ARRAY_FILES else read_table(path)
    if path.suffix == ".npz":
        found.pop(NOTE, None)
    if not found:
        raise DataError(f"{path}: is empty")
    if path.suffix in TABLE_FILES and not len(next(iter(found.values()))):
        columns = ", ".join(list(found)[:8]) + ", ..." * (len(found) > 8)
        raise DataError(f"{path}: has no rows below its header ({columns})")
    return found


def _by_role(path: Path, arrays: dict[str, Array], choice: Choice) -> dict[str, Array]:
    with named_errors(path):
        choice.check(list(arrays))
        asked = [n for n in arrays if any(fnmatchcase(n, one) for one in choice.features)]
        if len(asked) > 1:
            raise DataError(f"--features: arrays {', '.join(asked)}; choose one")
    chosen = {"embeddings": asked[0] if asked else None, "labels": choice.label, "names": choice.id}
    for role, usual in _ROLES.items():
        flat = [n for n in usual if n in arrays and (role != "names" or arrays[n].ndim == 1)]
        name = chosen.get(role) or next(iter(flat), None)
        if name is not None:
            arrays = {role: arrays[name]} | {
                n: v for n, v in arrays.items() if n not in (role, name)
            }
    return arrays
