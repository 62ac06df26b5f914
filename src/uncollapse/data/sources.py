"""Embeddings with labels, names and origin: read from and written to files of many formats."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from uncollapse._base.check import InputError, did_you_mean
from uncollapse._base.extras import import_extra
from uncollapse._base.files import written_aside
from uncollapse.data import readers
from uncollapse.data.listing import DataError
from uncollapse.data.readers import ARRAY_FILES, NOTE, TABLE_FILES, named_errors

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array

_Name = Annotated[str, Field(max_length=500)]
_Size = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Share = Annotated[float, Field(ge=0, le=1)]

# What is in a file, and the names it usually has there.
_KEYS = ("names", "name", "id", "ids", "path", "paths")
_ROLES = {
    "embeddings": ("embeddings", "features", "x", "X"),
    "labels": ("labels", "label", "y"),
    "fine_labels": ("fine_labels", "fine_label"),
    "names": (*_KEYS, "texts", "text"),
    "texts": ("texts", "text"),
    "images": ("images", "image", "paths", "path"),
}
_COLUMNS = list(_ROLES)[1:]
_TEXTS = ("names", "texts", "images")  # kept as they are written


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
    may hold rows with NaN or infinity. `names` are ids or paths (or the texts, without either),
    `images` the paths of pictures; `columns` are further columns by name, such as cameras: those
    asked for, and of an array file all with a value for each row.
    `origin` is the run that made them, if the file says so; `complaint` is a sentence if the
    metadata cannot be used, `notes` are sentences on how files were read and joined. `held` lists
    the names of all columns in the file, `title` is the file's name.
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
    texts: Array | None = None
    images: Array | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.points)

    @property
    def row_names(self) -> list[str]:
        """The names, or the row numbers where there are none."""
        return list(map(str, range(len(self)) if self.names is None else self.names))

    @property
    def titles(self) -> Array | None:
        """What a page calls the rows: their names, with their texts where these are others."""
        if self.texts is None or self.names is None or self.names is self.texts:
            return self.names if self.texts is None else self.texts
        both = zip(self.names, self.texts, strict=True)
        return np.array([f"{name}: {text}" if name != text else name for name, text in both])

    def select(self, rows: Array) -> Source:
        """These rows only."""
        roles = {role: getattr(self, role) for role in ("points", *_COLUMNS)}
        kept = {role: values[rows] for role, values in roles.items() if values is not None}
        columns = {name: values[rows] for name, values in self.columns.items()}
        return replace(self, columns=columns, **kept)

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
        names = [] if self.names is None else self.row_names
        by_name = {name: row for row, name in reversed(list(enumerate(names)))}
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
        names = self.names if self.images is None else self.images
        if names is None or not place.is_dir():
            given = f"{place}" + (", but the file has no names" if place.is_dir() else "")
            raise InputError("--images", given, allowed)
        paths = [PurePath(os.path.normpath(str(name))) for name in names]
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
    info: str | Path | None = None,
    features: str | Sequence[str] = (),
    label: str | None = None,
    fine_label: str | None = None,
    id: str | None = None,
    text: str | None = None,
    ignore: str | Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
) -> Source:
    """Read embeddings from a file; `labels`, `fine_labels` and other `info` may be separate files.

    Tables (csv, parquet) have one column per dimension, or in parquet one list column, and columns
    named label, fine_label, name, id, path, text or image; every other numeric column is a
    dimension. Doubtful columns (text, an id, a number outside a numbered series) are refused:
    `features` and `ignore` (names, or patterns such as `f*`), `label`, `fine_label`, `id` and
    `text` (names) choose columns, or arrays; beside a file of labels, `label` is its column.
    `columns` are further ones, read like labels, by what errors call them: `{"cameras": "cam"}`.

    What the file has not is taken from the others, joined by name or id where both have them,
    otherwise by position; `Source.notes` says which. Raises `DataError`.
    """
    path = Path(path)
    given = {"labels": labels, "fine_labels": fine_labels, "info": info}
    files = {role: Path(file) for role, file in given.items() if file is not None}
    further = {file: _read_further(file, role) for role, file in files.items()}
    chosen = {"labels": label, "fine_labels": fine_label, "names": id, "texts": text}
    choice = _Choice(_several(features), chosen, _several(ignore), dict(columns or {}))
    own = replace(choice, chosen={role: chosen[role] for role in chosen if role not in files})
    note, complaint = _read_note(path)
    main = _read(
        path, own, note.texts, [name for file in further.values() for name in file.columns]
    )
    arrays = dict(main.columns)
    points = _as_points(arrays.pop("embeddings"), f"{path.name}: embeddings")
    notes = [file.remark for file in (main, *further.values()) if file.remark]
    for file, table in further.items():
        with named_errors(file):
            join = _Join.by_key(table.columns, main.keys, len(points))
            wanted = {role for role in files if files[role] == file}
            names = choice.further(table.columns, wanted, {*arrays, *files})
            arrays |= {role: join.take(role, name) for role, name in names.items()}
        notes.append(f"{file.name} joined by {join.how}")
    for name, values in arrays.items():
        if values.ndim != 1 or len(values) != len(points):
            raise DataError(f"{path}: {name} of shape {values.shape} for {len(points)} rows")
    return Source(
        points,
        **{role: arrays.get(role) for role in _COLUMNS},
        origin=note.origin,
        complaint=complaint,
        columns={name: arrays[name] for name in arrays if name not in _COLUMNS},
        held=main.held,
        title=path.name,
        notes=tuple(notes),
    )


def join_by_name(old: Source, new: Source) -> tuple[Source, Source]:
    """The rows whose names both have, in the old order; names must differ from row to row."""
    for source in (old, new):
        if again := len(source) - len(set(source.row_names)):
            given = f"{again:,} names that others have too"
            raise InputError(source.title, given, "a different name for each row; see --id")
    _, i, j = np.intersect1d(old.row_names, new.row_names, True, return_indices=True)
    if len(i) < 3:
        given = f"{len(i)} names in common with {old.title}, such as {new.row_names[0]!r}"
        raise InputError(new.title, given, f"names such as {old.row_names[0]!r}")
    order = np.argsort(i)
    return old.select(i[order]), new.select(j[order])


def write_embeddings(source: Source, path: str | Path) -> Path:
    """Write a .npz, .parquet or .safetensors file, by its ending; all keep every column.

    Text columns of a .safetensors file are kept in its header, up to 64 MB; more is an
    `InputError`.
    """
    target = Path(path)
    writers = {".npz": _write_npz, ".safetensors": _write_safetensors, ".parquet": _write_parquet}
    check_ending("path", target, writers)
    roles = {role: getattr(source, role) for role in _COLUMNS} | dict(source.columns)
    columns = {name: values for name, values in roles.items() if values is not None}
    columns = {n: v.astype(str) if v.dtype.kind == "O" else v for n, v in columns.items()}
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
    if all(t.removeprefix("-").isdecimal() and t == str(int(t)) for t in texts):
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
    text = readers.read_note(path)
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


@dataclass(frozen=True)
class _Held:
    """What was read of a file: columns, those of names and ids, the names of all, a remark."""

    columns: Mapping[str, Any]
    keys: Mapping[str, Any] = field(default_factory=dict)
    held: tuple[str, ...] = ()
    remark: str = ""


def _read(
    path: Path, choice: _Choice, texts: Mapping[str, Sequence[str]], elsewhere: Sequence[str]
) -> _Held:
    """The arrays of a file by role, among them `embeddings`, and the further ones by name."""
    check_ending("file", path)
    if path.suffix in TABLE_FILES:
        return _table_arrays(path, choice, elsewhere)
    columns = {
        role: np.array(words, np.str_) for role, words in texts.items()
    } | readers.read_arrays(path)
    with named_errors(path):
        choice.check([*columns, *elsewhere])
        features = _matching(list(columns), choice.features)
        if len(features) > 1:
            raise DataError(f"--features: arrays {', '.join(features)}; choose one")
        roles = choice.roles(columns, {name for name in columns if columns[name].ndim != 1})
        roles |= {"embeddings": features[0]} if features else {}
        if "embeddings" not in roles:
            known = ", ".join(_ROLES["embeddings"])
            raise DataError(f"none of {known}; it holds {', '.join(columns) or 'nothing'}")
    roles |= {name: name for name in choice.others.values() if name in columns}
    shape, used = columns[roles["embeddings"]].shape[:1], {*roles.values(), *_ROLES}
    roles |= {name: name for name, v in columns.items() if name not in used and v.shape == shape}
    keys = {name: columns[name] for name in columns if choice.is_key(name)}
    return _Held({role: columns[name] for role, name in roles.items()}, keys, tuple(columns))


def _read_further(path: Path, argument: str) -> _Held:
    """The columns of a file of labels or other information, of a table as they are written."""
    check_ending(argument, path)
    if path.suffix in ARRAY_FILES:
        arrays = readers.read_arrays(path)
        return _Held({"labels": arrays["embeddings"]} if path.suffix == ".npy" else arrays)
    names, _, remark = readers.read_head(path)
    return _Held(readers.read_columns(path, (), names), remark=remark)


def check_ending(
    argument: str, path: Path, endings: Collection[str] = (*ARRAY_FILES, *TABLE_FILES)
) -> None:
    """Raise `InputError` for a file with another ending."""
    if path.suffix not in endings:
        raise InputError(argument, path.name, f"a file ending in {', '.join(endings)}")


# Files of labels and other columns, joined to the rows of the embeddings.


@dataclass(frozen=True)
class _Join:
    """Rows of a further file for those of the embeddings: by a column of keys, or by position."""

    columns: Mapping[str, Any]
    rows: Sequence[int]
    how: str = "row"
    keys: Sequence[str] = ()  # of the rows of the file, unless they are in the same order

    @classmethod
    def by_key(cls, columns: Mapping[str, Any], keys: Mapping[str, Any], count: int) -> _Join:
        """By the two columns of names or ids that have most in common, if any has anything."""
        join, most, lost = cls(columns, range(count)), 0, None
        for (own, values), name in product(keys.items(), columns):
            if len(values) != count or (own != name and not {own, name} <= set(_KEYS)):
                continue
            here, there = list(map(str, values)), list(map(str, columns[name]))
            row_of = {key: row for row, key in enumerate(there) if key}
            rows = [row_of.get(key, -1) for key in here]
            if (matches := count - rows.count(-1)) > most:
                how = f"{name if own == name else f'{own} = {name}'}: {matches:,} of {count:,} rows"
                join = cls(columns, rows, how, there)
                if here == there:
                    join = cls(columns, range(count), how)
                most, lost = matches, here[rows.index(-1)] if matches < count else None
        if lost is not None:
            cure = "complete the file, or remove that column to join by row"
            raise DataError(f"joined by {join.how}, but there is no {lost!r}; {cure}")
        return join

    def take(self, role: str, name: str) -> Array:
        """A column in the order of the embeddings, as its role wants it."""
        values = self.columns[name]
        if self.how == "row" and len(values) != len(self.rows):
            rows = f"{len(values):,} rows for {len(self.rows):,} embeddings"
            raise DataError(f"{rows}, and no names or ids in both files to join them by")
        pairs = [] if role in _TEXTS else [p for p in zip(self.keys, values, strict=False) if p[0]]
        last = dict(pairs)
        for key, value in pairs:
            if last[key] != value:
                raise DataError(f"{key!r} occurs with the {name} {value!r} and {last[key]!r}")
        if isinstance(values, np.ndarray):
            return np.asarray(values[np.asarray(self.rows)])
        return _as_role(role, name, [values[row] for row in self.rows])


def _as_role(role: str, name: str, values: Sequence[Any]) -> Array:
    """Cells of a table as labels or, for a role that is text, as they are written."""
    if role not in _TEXTS:
        return label_values(values, name)
    # Not NumPy's own texts: each would take as much as the longest.
    return np.array(["" if value is None else str(value) for value in values], object)


# Which columns are dimensions, labels and names; doubtful columns are refused.

_ID_NAME = re.compile(
    r"^$|^Unnamed: \d+$|[a-z]I[dD]$"
    r"|(?i:(^|[_\-. ])(id|ids|idx|index|key|pk|uid|uuid|sku|ean|gtin|row)$)"
)
_SERIES = 4  # numbered columns from which a table's dimensions are known by their name
_FEW = 8  # rows from which whole numbers among fractions are no accident
_OPTIONS = {"labels": "--labels", "fine_labels": "--labels", "names": "--id", "texts": "--text"}


@dataclass(frozen=True)
class _Choice:
    """The columns the user chose: patterns of dimensions, and of columns to leave out."""

    features: Sequence[str]
    chosen: Mapping[str, str | None]  # by role
    ignore: Sequence[str]
    others: Mapping[str, str]  # by option: columns beside all these

    def check(self, names: Sequence[str]) -> None:
        """Raise `DataError` for a name or a pattern that no column has."""
        given = [(_OPTIONS[role], name) for role, name in self.chosen.items() if name is not None]
        given += [("--features", name) for name in self.features]
        given += [("--features", f"!{name}") for name in self.ignore]
        known = set(names)
        for option, name in [*given, *self.others.items()]:
            plain = name.removeprefix("!")
            if plain not in known and not _matching(names, [plain]):
                near, there = did_you_mean(name, names), _listed([repr(n) for n in names])
                raise DataError(f"{option} {name}: no such column{near}; there is: {there}")

    def roles(self, names: Collection[str], lists: Collection[str] = ()) -> dict[str, str]:
        """The column of each role: the chosen one, or else the first of a usual name."""
        found: dict[str, str] = {}
        for role, usual in _ROLES.items():
            name = self.chosen.get(role)
            for known in usual if name is None else (name,):
                if known in names and not (role in _TEXTS and known in lists):
                    found.setdefault(role, known)
        return found

    def further(
        self, table: Mapping[str, Any], wanted: Collection[str], known: Collection[str]
    ) -> dict[str, str]:
        """Columns of a further file: those it is given for, and others that are not known yet.

        Labels are the chosen column, one of a usual name, or the only one that names no rows.
        """
        names = self.roles(table) | {name: name for name in self.others.values() if name in table}
        names = {role: name for role, name in names.items() if role in wanted or role not in known}
        names.pop("embeddings", None)
        for role in {"labels", "fine_labels"}.intersection(wanted).difference(names):
            plain = [n for n in table if n not in names.values() and not self.is_key(n)]
            if self.chosen[role] is not None or len(plain or table) > 1:
                listed = ", ".join(table) + did_you_mean(self.chosen[role] or "", table)
                raise DataError(f"columns {listed}: choose one with --labels FILE:COLUMN")
            names[role] = next(iter(plain or table))
        return names

    def is_key(self, name: str) -> bool:
        """Whether a column may name the rows."""
        own = self.chosen.get("names")
        return name == own or name in _ROLES["names"] or bool(_ID_NAME.search(name))


def _table_arrays(path: Path, choice: _Choice, elsewhere: Sequence[str]) -> _Held:
    """The arrays of a table: `embeddings`, and one for each other role that a column has.

    A role is filled by the chosen column, or else by the first of its usual names in the table;
    `choice.others` keep their names. Dimensions are the chosen columns, or a list column, or all
    remaining ones, which must then be numeric, not look like an id, and not fall outside a numbered
    series. Raises `DataError`.
    """
    held, lists, remark = readers.read_head(path)
    with named_errors(path):
        choice.check([*held, *elsewhere])
        ignored = set(_matching(held, choice.ignore))
        kept = [name for name in held if name not in ignored]
        roles = {role: n for role, n in choice.roles(kept, lists).items() if role in _COLUMNS}
        roles |= {name: name for name in choice.others.values() if name in held}
        # A second column of names is no dimension; a second one of labels (x, y, label) may be.
        usual = [n for role in _TEXTS for n in _ROLES[role] if n in kept and n not in lists]
        words = dict.fromkeys([*roles.values(), *usual])
        dimensions = [name for name in kept if name not in words]
        if choice.features:
            dimensions = _matching(kept, choice.features)
        if vectors := [name for name in dimensions if name in lists]:
            dimensions = [_vector_column(vectors)]
    columns = readers.read_columns(path, [name for name in dimensions if name not in words], words)
    with named_errors(path):
        if not any(map(len, columns.values())):
            raise DataError(f"has no rows below its header ({_listed(held)})")
        arrays = {role: _as_role(role, name, columns[name]) for role, name in roles.items()}
        keys = {name: columns[name] for name in words if choice.is_key(name)}
        numbers = {n: columns[n] if n in words else columns.pop(n) for n in dimensions}
        if not numbers:
            raise DataError(f"no columns of numbers; it holds {_listed(held)}")
        points = numbers[dimensions[0]] if vectors else _stacked(numbers, choice.features)
    return _Held(arrays | {"embeddings": points}, keys, tuple(held), remark)


def _stacked(columns: dict[str, Any], chosen: Sequence[str]) -> Array:
    """Columns as dimensions, which are taken out of the dictionary one by one.

    Raises `DataError` for those that hold something else, or look like it and were not `chosen`.
    """
    series, doubts, numbers = _series(list(columns)), {}, {}
    for name in list(columns):
        values = columns.pop(name)
        values = readers.as_numbers(values) if isinstance(values, list) else values
        if isinstance(values, str):
            doubts[name] = values
        elif values.dtype.kind == "f" and np.isnan(values).all():
            doubts[name] = "is empty"
        else:
            numbers[name] = values
    if not chosen:
        doubts |= _doubtful(numbers, series)
    if doubts:
        name = next(iter(doubts))
        reasons = "; ".join(f"column {name!r} {why}" for name, why in doubts.items())
        raise DataError(
            f"{reasons}. Leave it out (--features '!{name}'), use it as labels or names (--labels "
            f"{name!r}, --id {name!r}), or name the dimensions (--features '{series or 'f'}*')"
        )
    dtypes = [v.dtype if v.dtype.kind == "f" else np.dtype(np.float64) for v in numbers.values()]
    points = np.empty((len(next(iter(numbers.values()))), len(numbers)), np.result_type(*dtypes))
    for i, name in enumerate(list(numbers)):
        points[:, i] = numbers.pop(name)
    return points


def _vector_column(names: list[str]) -> str:
    usual = [name for name in names if name in ("embeddings", "embedding", "features")]
    if len(names if len(names) == 1 else usual) != 1:
        listed = _listed([repr(name) for name in names])
        raise DataError(f"columns {listed} all hold lists; choose one with --features")
    return [*usual, *names][0]


def _series(names: Sequence[str]) -> str | None:
    """The common stem of numbered names (`f` of f0, f1, ...); None if there is none."""
    stems = Counter(re.sub(r"\d+$", "", name) for name in names if re.search(r"\d$", name))
    stem, count = stems.most_common(1)[0] if stems else ("", 0)
    return stem if count >= max(_SERIES, len(names) / 2) else None


def _doubtful(numbers: Mapping[str, Array], series: str | None) -> dict[str, str]:
    """Numeric columns that do not look like dimensions, and why."""
    whole = {name for name, values in numbers.items() if values.dtype.kind in "iu"}
    doubts = {}
    for name, values in numbers.items():
        if series is not None and re.fullmatch(re.escape(series) + r"\d+", name):
            continue
        odd = name in whole and len(values) >= _FEW and bool((values != values[0]).any())
        if _ID_NAME.search(name) or (odd and len(whole) < len(numbers) / 2):
            doubts[name] = f"looks like an id (such as {values[0]})"
        elif series is not None:
            doubts[name] = f"is not one of the columns {series}0, {series}1, ..."
    return doubts


def _matching(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """The names that equal or match one of the patterns, in their own order."""
    exact, wild = set(patterns), [pattern for pattern in patterns if set("*?[") & set(pattern)]
    return [n for n in names if n in exact or any(fnmatchcase(n, pattern) for pattern in wild)]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:12])
    return f"{shown} and {len(names) - 12} more" if len(names) > 12 else shown or "nothing"
