"""Embeddings with labels, names and origin: read from and written to files of many formats."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from uncollapse._base.check import InputError, did_you_mean
from uncollapse._base.extras import import_extra
from uncollapse._base.files import written_aside
from uncollapse.data.listing import DataError
from uncollapse.data.readers import (
    ARRAY_FILES,
    NOTE,
    TABLE_FILES,
    named_errors,
    read_arrays,
    read_note,
    read_table,
)

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array

__all__ = [
    "Origin",
    "Source",
    "StartScale",
    "label_values",
    "open_source",
    "read_labels",
    "write_embeddings",
]

_Name = Annotated[str, Field(max_length=500)]
_Size = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Share = Annotated[float, Field(ge=0, le=1)]

# What is in a file, and the names it usually has there.
_ROLES = {
    "embeddings": ("embeddings", "features", "x", "X"),
    "labels": ("labels", "label", "y"),
    "fine_labels": ("fine_labels", "fine_label"),
    "names": ("texts", "text", "names", "name", "path", "paths", "id", "ids"),
}


@dataclass(frozen=True)
class StartScale:
    """The scale of a run's embedding before training, of `rows` rows of `split`.

    `spread`, `cdnv`, `fine_agreement` and `fine_chance` (see `health.Health`) are None where they
    are not known.
    """

    diameter: _Size
    spread: _Size | None
    cdnv: _Size | None
    split: _Name
    rows: Annotated[int, Field(ge=1, lt=2**63)]
    fine_agreement: _Share | None = None
    fine_chance: _Share | None = None

    def __str__(self) -> str:
        where = f"of {self.rows:,} rows of {self.split}"
        return f"diameter {self.diameter:.3g} before training, {where}"


@dataclass(frozen=True)
class Origin:
    """The run that embedded the rows, by its folder's name: at which step, which split.

    `split` is None for the user's own images; `start` is None where the scale before training is
    not known. `cosine`: whether the run's loss compares directions; None if not known.
    """

    run: _Name
    step: Annotated[int, Field(ge=0, lt=2**63)]
    split: _Name | None = None
    start: StartScale | None = None
    cosine: bool | None = None


@dataclass(frozen=True)
class _Note:
    """Metadata of a file; `texts` are text columns that its format cannot hold."""

    origin: Origin | None = None
    texts: dict[str, list[str]] = field(default_factory=dict)
    format: Literal[1] = 1


@dataclass(frozen=True)
class Source:
    """Embeddings `[N, dim]`, one row per sample; labels, fine labels and names where known.

    `points` have the file's float type (integers become float64), may be mapped from the file, and
    may hold rows with NaN or infinity.
    `names` are paths, ids or texts; `columns` are further columns by name, such as cameras: those
    asked for, and of an array file all with a value for each row.
    `origin` is the run that made them, if the file says so; `complaint` is a sentence if the
    metadata cannot be used. `held` lists the names of all columns in the file, `title` is the
    file's name.
    """

    points: Array
    labels: Array | None = None
    fine_labels: Array | None = None
    names: Array | None = None
    origin: Origin | None = None
    complaint: str = ""
    columns: Mapping[str, Array] = field(default_factory=dict)
    held: tuple[str, ...] = ()
    title: str = ""

    def __len__(self) -> int:
        return len(self.points)

    @property
    def row_names(self) -> list[str]:
        """The names, or the row numbers where there are none."""
        return list(map(str, range(len(self)) if self.names is None else self.names))

    def select(self, rows: Array) -> Source:
        """These rows only."""
        known = {name: getattr(self, name) for name in ("labels", "fine_labels", "names")}
        kept: dict[str, Any] = {n: None if v is None else v[rows] for n, v in known.items()}
        columns = {name: values[rows] for name, values in self.columns.items()}
        return replace(self, points=self.points[rows], columns=columns, **kept)

    def need_labels(self, *, fine: bool = False) -> Array:
        """The labels, or the fine labels; without them an `InputError` says how to name them."""
        labels = self.fine_labels if fine else self.labels
        if labels is None:
            kind = "fine labels" if fine else "labels"
            allowed = f"{kind}; name them with {'a second ' * fine}--labels COLUMN or FILE"
            raise InputError(self.title, f"no {kind} among {_listed(self.held)}", allowed)
        return labels

    def find_rows(self, queries: Sequence[str]) -> Array:
        """Row numbers of the queries: a name where a row has it, otherwise a row number."""
        by_name: dict[str, int] = {}
        for row, name in enumerate([] if self.names is None else self.names):
            by_name.setdefault(str(name), row)
        rows = []
        for query in queries:
            if query in by_name:
                rows.append(by_name[query])
            elif query.isdecimal() and int(query) < len(self):
                rows.append(int(query))
            else:
                named = f" or a name, such as {next(iter(by_name))!r}" if by_name else ""
                near = did_you_mean(query, list(by_name)[:10_000])
                allowed = f"a row number of {self.title} below {len(self)}{named}"
                raise InputError("queries", f"{query!r}{near}", allowed)
        return np.array(rows)

    def find_pictures(self, place: Path) -> Array | list[Path]:
        """The array of an .npy file, or for each name an image file below the folder `place`.

        Names are paths from the machine that made the file, relative or absolute. The shortest
        leading part that makes all of them exist below `place` is dropped, the same for all names.
        Files outside `place` are never used, so a page shows no picture from elsewhere.
        """
        allowed = "an .npy array, or a folder that has the file's names"
        if place.suffix == ".npy" and place.is_file():
            try:
                pixels: Array = np.load(place, mmap_mode="r", allow_pickle=False)
            except (ValueError, EOFError, OSError) as error:
                raise InputError("--images", f"{place} ({error})", allowed) from None
            return pixels
        if self.names is None or not place.is_dir():
            given = f"{place}" + (", but the file has no names" if place.is_dir() else "")
            raise InputError("--images", given, allowed)
        paths = [PurePath(os.path.normpath(str(name))) for name in self.names]
        parts = [[part for part in path.parts if part not in ("..", path.anchor)] for path in paths]
        for cut in range(max(map(len, parts), default=0)):
            short = [tuple(names[cut:]) for names in parts]
            files = [place.joinpath(*names) for names in short]
            distinct = len(set(short)) == len(set(map(tuple, parts)))
            if distinct and all(short) and all(file.is_file() for file in files):
                return files

        def is_below(names: Sequence[str]) -> bool:
            return any(place.joinpath(*names[cut:]).is_file() for cut in range(len(names)))

        lost = (path for path, names in zip(paths, parts, strict=True) if not is_below(names))
        name = str(next(lost, paths[0]))[-200:]
        raise InputError("--images", place, f"{allowed} (no image file for '{name}' below it)")


def open_source(
    path: str | Path,
    labels: str | Path | None = None,
    fine_labels: str | Path | None = None,
    *,
    features: str | Sequence[str] = (),
    label: str | None = None,
    fine_label: str | None = None,
    id: str | None = None,
    ignore: str | Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
) -> Source:
    """Read embeddings from a file; `labels` and `fine_labels` may be separate files.

    Tables (csv, parquet) have one column per dimension, or in parquet one list column, and columns
    named label, fine_label, name or path; every other numeric column is a dimension. Doubtful
    columns (text, an id, a number outside a numbered series) are refused: `features` and `ignore`
    (names, or patterns such as `f*`), `label`, `fine_label` and `id` (names) choose columns, or
    arrays; beside a file of labels, `label` is its column. `columns` are further columns, read like
    labels; the key is what errors call them: `{"cameras": "cam"}`.
    Raises `DataError`.
    """
    path, others = Path(path), dict(columns or {})
    own = None if labels else label, None if fine_labels else fine_label
    choice = _Choice(_several(features), *own, id, _several(ignore), others)
    note, complaint = _read_note(path) if path.is_file() else (_Note(), "")
    texts = {role: np.array(words, np.str_) for role, words in note.texts.items()}
    arrays, held = _read(path, choice, texts)
    if labels is not None:
        arrays["labels"] = read_labels(labels, label)
    if fine_labels is not None:
        arrays["fine_labels"] = read_labels(fine_labels, fine_label)
    if "embeddings" not in arrays:
        known = ", ".join(_ROLES["embeddings"])
        raise DataError(f"{path}: none of {known}; it holds {', '.join(arrays) or 'nothing'}")
    points = _as_points(arrays["embeddings"], f"{path.name}: embeddings")
    known_rows = {role: arrays.get(role, texts.get(role)) for role in list(_ROLES)[1:]}
    beside = {name: arrays[name] for name in others.values()}
    for name, values in (known_rows | beside).items():
        if values is not None and (values.ndim != 1 or len(values) != len(points)):
            raise DataError(f"{path}: {name} of shape {values.shape} for {len(points)} rows")
    one_each = {n: v for n, v in arrays.items() if n not in _ROLES and v.shape == (len(points),)}
    return Source(
        points,
        **known_rows,
        origin=note.origin,
        complaint=complaint,
        columns=one_each | beside,
        held=held,
        title=path.name,
    )


def read_labels(path: str | Path, label: str | None = None) -> Array:
    """The labels of a file of labels: the column `label`, one of a usual name, or the only one."""
    path = Path(path)
    columns = _load(path, "labels")
    with named_errors(path):
        _Choice(label=label).check(list(columns))
        names = [label] if label else [n for n in _ROLES["labels"] if n in columns] or list(columns)
        if not label and len(names) > 1 and names[0] not in _ROLES["labels"]:
            raise DataError(f"columns {', '.join(names)}: choose one with --labels FILE:COLUMN")
        values = columns[names[0]]
        return values if path.suffix in ARRAY_FILES else label_values(values, names[0])


def write_embeddings(source: Source, path: str | Path) -> Path:
    """Write a .npz, .parquet or .safetensors file, by its ending; all keep every column.

    Text columns of a .safetensors file are kept in its header, up to 64 MB; more is an
    `InputError`.
    """
    target = Path(path)
    writers = {".npz": _write_npz, ".safetensors": _write_safetensors, ".parquet": _write_parquet}
    if target.suffix not in writers:
        raise InputError("path", target.name, f"a file ending in {', '.join(writers)}")
    roles = ("labels", "fine_labels", "names")
    columns = {name: values for name in roles if (values := getattr(source, name)) is not None}
    columns |= source.columns
    with written_aside(target) as aside:
        points = source.points.astype(np.float32, copy=False)
        writers[target.suffix](aside, points, columns, _Note(source.origin))
    return target


def label_values(values: Sequence[Any], name: str) -> Array:
    """Labels as whole numbers if all of them are written as such, otherwise as text.

    >>> label_values(["1", "2"], "label").tolist(), label_values(["1", "02"], "label").tolist()
    ([1, 2], ['1', '02'])
    """
    for row, value in enumerate(values, 1):
        if value is None or value == "" or value != value:
            raise DataError(f"column {name!r} is empty in row {row}; each row needs a label")
        if isinstance(value, list | dict) or (isinstance(value, float) and value % 1):
            allowed = "labels are whole numbers or words"
            raise DataError(f"column {name!r} holds {value} in row {row}; {allowed}")
    texts = [str(int(v)) if isinstance(v, float) else str(v) for v in values]
    if all(_is_whole(text) and text == str(int(text)) for text in texts):
        return np.array([int(text) for text in texts])
    return np.array(texts)


# The formats.

_HEADER = 64 << 20  # bytes of words in the header of a .safetensors file, which may have 100 MB


def _write_npz(path: Path, points: Array, columns: dict[str, Array], note: _Note) -> None:
    notes = {NOTE: np.array(json.dumps(asdict(note)))} if note.origin else {}
    np.savez(path, embeddings=points, **columns, **notes)  # type: ignore[arg-type]


def _write_safetensors(path: Path, points: Array, columns: dict[str, Array], note: _Note) -> None:
    from safetensors.numpy import save_file

    numbers = {name: values for name, values in columns.items() if values.dtype.kind in "iub"}
    texts = {n: list(map(str, v.tolist())) for n, v in columns.items() if n not in numbers}
    text = json.dumps(asdict(replace(note, texts=texts)))
    if len(text) > _HEADER:
        given = f"{len(text):,} bytes of {', '.join(texts)}"
        raise InputError("path", given, "at most 64 MB in .safetensors; write .npz or .parquet")
    metadata = {NOTE: text} if texts or note.origin else None
    save_file({"embeddings": np.ascontiguousarray(points), **numbers}, path, metadata)


def _write_parquet(path: Path, points: Array, columns: dict[str, Array], note: _Note) -> None:
    arrow, parquet = (import_extra(m, extra="parquet") for m in ("pyarrow", "pyarrow.parquet"))
    vectors = arrow.FixedSizeListArray.from_arrays(arrow.array(points.ravel()), points.shape[1])
    data = {"embeddings": vectors} | {name: arrow.array(v.tolist()) for name, v in columns.items()}
    metadata = {NOTE: json.dumps(asdict(note))} if note.origin else None
    parquet.write_table(arrow.table(data, metadata=metadata), path)


def _read_note(path: Path) -> tuple[_Note, str]:
    """A file's metadata, and a sentence if it cannot be used."""
    text = read_note(path)
    if text is None:
        return _Note(), ""
    try:
        plain = text if isinstance(text, str) else ""
        return TypeAdapter(_Note).validate_json(plain, strict=True), ""
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the note"
        why = f"{where[:60]}: {first['msg'][:160]}"
        return _Note(), f"{path}: its metadata cannot be used, so its origin is unknown ({why})"


def _as_points(values: Array, name: str) -> Array:
    """Rows of floats in the type they have; of anything else, as float64."""
    if values.dtype.kind not in "fiub":
        raise InputError(name, f"{values.dtype} values", "numbers")
    if values.ndim != 2 or not all(values.shape):
        raise InputError(name, f"shape {values.shape}", "a 2-D array, one row per sample")
    kept = values.dtype.name in ("float16", "float32", "float64")  # of any byte order
    dtype = values.dtype.newbyteorder("=") if kept else np.dtype(np.float64)
    return np.asarray(values, dtype)


def _several(words: str | Sequence[str]) -> tuple[str, ...]:
    return (words,) if isinstance(words, str) else tuple(words)


def _read(
    path: Path, choice: _Choice, texts: Mapping[str, Array]
) -> tuple[dict[str, Array], tuple[str, ...]]:
    """The arrays of a file by role (by name where they have none), and the names of all columns."""
    columns = _load(path, "file")
    held = tuple(dict.fromkeys([*columns, *texts]))
    with named_errors(path):
        if path.suffix in TABLE_FILES:
            return _table_arrays(columns, choice), held
        columns = {**texts, **columns}
        beside = {name: columns[name] for name in choice.others.values() if name in columns}
        return _by_role(columns, choice) | beside, held


def _load(path: Path, argument: str) -> dict[str, Any]:
    if path.suffix not in (*ARRAY_FILES, *TABLE_FILES):
        allowed = f"a file ending in {', '.join([*ARRAY_FILES, *TABLE_FILES])}"
        raise InputError(argument, path.name, allowed)
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    columns: dict[str, Any] = read_arrays(path) if path.suffix in ARRAY_FILES else read_table(path)
    if not columns:
        raise DataError(f"{path}: is empty")
    if path.suffix in TABLE_FILES and not len(next(iter(columns.values()))):
        names = ", ".join(list(columns)[:8]) + ", ..." * (len(columns) > 8)
        raise DataError(f"{path}: has no rows below its header ({names})")
    return columns


# Which columns are dimensions, labels and names; doubtful columns are refused.

_ID_NAME = re.compile(
    r"^$|^Unnamed: \d+$|[a-z]I[dD]$"
    r"|(?i:(^|[_\-. ])(id|ids|idx|index|key|pk|uid|uuid|sku|ean|gtin|row)$)"
)
_SERIES = 4  # numbered columns from which a table's dimensions are known by their name
_FEW = 8  # rows from which whole numbers among fractions are no accident


@dataclass(frozen=True)
class _Choice:
    """The columns the user chose: patterns of dimensions, and of columns to leave out."""

    features: Sequence[str] = ()
    label: str | None = None
    fine_label: str | None = None
    id: str | None = None
    ignore: Sequence[str] = ()
    others: Mapping[str, str] = field(default_factory=dict)  # by option: columns beside all these

    def check(self, names: Sequence[str]) -> None:
        """Raise `DataError` for a name or a pattern that no column has."""
        named = {"--labels": [self.label, self.fine_label], "--id": [self.id]}
        named["--features"] = [*self.features, *(f"!{pattern}" for pattern in self.ignore)]
        given = [(option, name) for option in named for name in named[option] if name]
        for option, name in [*given, *self.others.items()]:
            if not _matching(names, [name.removeprefix("!")]):
                near, there = did_you_mean(name, names), _listed([repr(n) for n in names])
                raise DataError(f"{option} {name}: no such column{near}; there is: {there}")


def _by_role(arrays: dict[str, Array], choice: _Choice) -> dict[str, Array]:
    """Arrays by role, chosen ones first; an array without a role keeps its name."""
    choice.check(list(arrays))
    features = _matching(list(arrays), choice.features)
    if len(features) > 1:
        raise DataError(f"--features: arrays {', '.join(features)}; choose one")
    chosen = {"embeddings": next(iter(features), None), "labels": choice.label, "names": choice.id}
    chosen["fine_labels"] = choice.fine_label
    for role, usual in _ROLES.items():
        flat = [n for n in usual if n in arrays and (role != "names" or arrays[n].ndim == 1)]
        name = chosen.get(role) or next(iter(flat), None)
        if name is not None:
            others = {n: v for n, v in arrays.items() if n not in (role, name)}
            arrays = {role: arrays[name]} | others
    return arrays


def _table_arrays(columns: Mapping[str, Sequence[Any]], choice: _Choice) -> dict[str, Array]:
    """The arrays of a table: `embeddings`, and one for each other role that a column has.

    A role is filled by the chosen column, or else by the first of its usual names in the table;
    `choice.others` keep their names. Dimensions are the chosen columns, or a list column, or all
    remaining ones, which must then be numeric, not look like an id, and not fall outside a numbered
    series. Raises `DataError`.
    """
    choice.check(list(columns))
    ignored = _matching(list(columns), choice.ignore)
    kept = {name: values for name, values in columns.items() if name not in ignored}
    lists = {name for name in kept if any(isinstance(v, list | np.ndarray) for v in kept[name])}
    name_columns = [n for n in _ROLES["names"] if n not in lists]  # `text` may hold vectors
    usual = {
        "labels": (choice.label, *_ROLES["labels"]),
        "fine_labels": (choice.fine_label, *_ROLES["fine_labels"]),
        "names": (choice.id, *name_columns),
    }
    roles = {role: next((n for n in names if n in kept), None) for role, names in usual.items()}
    arrays = {}
    for role, name in roles.items():
        if name is not None and role == "names":
            arrays[role] = np.array(list(map(str, kept[name])))
        elif name is not None:
            arrays[role] = label_values(kept[name], name)
    arrays |= {name: label_values(columns[name], name) for name in choice.others.values()}
    # A second column of names is no dimension; a second one of labels (x, y, label) may be.
    taken = {*roles.values(), *name_columns, *choice.others.values()}
    dimensions = [name for name in kept if name not in taken]
    if choice.features:
        dimensions = _matching(list(kept), choice.features)
    if vectors := [name for name in dimensions if name in lists]:
        return arrays | {"embeddings": _of_lists(kept, vectors)}
    series = _series(dimensions)
    doubts = {name: why for name in dimensions if (why := _not_numbers(kept[name]))}
    numbers = {name: _numbers(kept[name], name) for name in dimensions if name not in doubts}
    if not choice.features:
        doubts |= _doubtful(numbers, kept, series)
    if doubts:
        name = next(iter(doubts))
        reasons = "; ".join(f"column {name!r} {why}" for name, why in doubts.items())
        raise DataError(
            f"{reasons}. Leave it out (--features '!{name}'), use it as labels or names (--labels "
            f"{name!r}, --id {name!r}), or name the dimensions (--features '{series or 'f'}*')"
        )
    return arrays | ({"embeddings": np.array(list(numbers.values())).T} if numbers else {})


def _not_numbers(values: Sequence[Any]) -> str:
    """Why a column is not numeric; empty if it may be."""
    for row, value in enumerate(values, 1):
        try:
            float("nan" if value is None or value == "" else value)
        except (TypeError, ValueError):
            return f"is neither numbers nor a known name ({str(value)[:40]!r} in row {row})"
    return ""


def _numbers(values: Sequence[Any], name: str) -> list[float]:
    for row, value in enumerate(values, 1):
        if value is None or value == "":
            raise DataError(f"column {name!r} is empty in row {row}")
    return [float(value) for value in values]


def _of_lists(columns: Mapping[str, Sequence[Any]], names: list[str]) -> Array:
    usual = [name for name in names if name in ("embeddings", "embedding", "features")]
    if len(names) > 1 and len(usual) != 1:
        listed = _listed([repr(name) for name in names])
        raise DataError(f"columns {listed} all hold lists; choose one with --features")
    name = names[0] if len(names) == 1 else usual[0]
    lengths = {len(v) if isinstance(v, list | np.ndarray) else 0 for v in columns[name]}
    if len(lengths) > 1:
        spread = f"{min(lengths)} to {max(lengths)} numbers"
        raise DataError(f"column {name!r} holds lists of {spread}; all must be alike")
    return np.asarray([list(v) for v in columns[name]], np.float64)


def _series(names: Sequence[str]) -> str | None:
    """The common stem of numbered names (`f` of f0, f1, ...); None if there is none."""
    stems = [re.sub(r"\d+$", "", name) for name in names if re.search(r"\d$", name)]
    stem = max(set(stems), key=stems.count, default=None)
    return stem if stems.count(stem or "") >= max(_SERIES, len(names) / 2) else None


def _doubtful(
    numbers: Mapping[str, list[float]], columns: Mapping[str, Sequence[Any]], series: str | None
) -> dict[str, str]:
    """Numeric columns that do not look like dimensions, and why."""
    whole = {name for name in numbers if all(_is_whole(str(v)) for v in columns[name])}
    doubts = {}
    for name, values in numbers.items():
        if series is not None and re.fullmatch(re.escape(series) + r"\d+", name):
            continue
        odd = len(values) >= _FEW and len(set(values)) > 1 and name in whole
        if _ID_NAME.search(name) or (odd and len(whole) < len(numbers) / 2):
            doubts[name] = f"looks like an id (such as {columns[name][0]})"
        elif series is not None:
            doubts[name] = f"is not one of the columns {series}0, {series}1, ..."
    return doubts


def _matching(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """The names that equal or match one of the patterns, in their own order."""
    return [
        n for n in names if any(n == pattern or fnmatchcase(n, pattern) for pattern in patterns)
    ]


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:12])
    return f"{shown} and {len(names) - 12} more" if len(names) > 12 else shown or "nothing"
