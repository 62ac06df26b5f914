"""Lists of verification pairs, from a table or LFW's pairs.txt, matched to rows of a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from uncollapse.data.listing import DataError
from uncollapse.data.readers import TABLE_FILES, named_errors, read_lines, read_table
from uncollapse.data.sources import Source, check_ending

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array

_FIRST = ("first", "a", "left", "name1", "id1", "path1", "file1", "image1", "row1", "i")
_SECOND = ("second", "b", "right", "name2", "id2", "path2", "file2", "image2", "row2", "j")
_SAME = ("same", "issame", "is_same", "match", "target")
_FOLD = ("fold", "folds")
_SCORE = ("score", "scores", "similarity")
_TRUE, _FALSE = ("1", "true", "yes", "same"), ("0", "-1", "false", "no", "different")


@dataclass(frozen=True)
class PairList:
    """Pairs of named samples; `same`, `folds` and `scores` if the list has them.

    A sample is named by a word, or in LFW's list by a person and the number of their picture. Pairs
    scored by another tool (larger is more similar) need no names.
    """

    first: Sequence[str | tuple[str, int]]
    second: Sequence[str | tuple[str, int]]
    same: Array | None = None
    folds: Array | None = None
    scores: Array | None = None

    def __len__(self) -> int:
        return len(self.first)


def read_pairs(path: str | Path) -> PairList:
    """Read a .csv or .parquet table of pairs, or a .txt file in the format of LFW's pairs.txt.

    A table has one column per side (`first` and `second`; or a and b, name1 and name2, ...),
    and may have `same` (1 or 0) and `fold`. Raises `DataError`.
    """
    source = Path(path)
    check_ending("pairs", source, (*TABLE_FILES, ".txt"))
    if source.suffix == ".txt":
        lines = read_lines(source, "pairs")
        with named_errors(source):
            return _lfw(lines)
    columns = read_table(source)
    with named_errors(source):
        sides = []
        for kind, known in {"first": _FIRST, "second": _SECOND}.items():
            name = _column(columns, known)
            if name is None:
                there = ", ".join(map(repr, columns)) or "nothing"
                raise DataError(f"no column {kind!r} for that side of a pair; there is: {there}")
            sides.append(list(map(str, columns[name])))
        if not sides[0]:
            raise DataError("has no pairs below its header")
        return PairList(sides[0], sides[1], *_truth_and_folds(columns))


def read_scored_pairs(path: Path) -> PairList | None:
    """The scores of a table with the columns `score` and `same`; None for any other file."""
    if path.suffix not in TABLE_FILES or not path.is_file():
        return None
    columns = read_table(path)
    score = _column(columns, _SCORE)
    if score is None or _column(columns, _SAME) is None:
        return None
    with named_errors(path):
        same, folds = _truth_and_folds(columns)
        if same is None or not len(same):
            raise DataError("has no pairs below its header")
        try:
            return PairList((), (), same, folds, np.array([float(v) for v in columns[score]]))
        except (TypeError, ValueError) as error:
            raise DataError(f"column {score!r} holds what is no number ({error})") from None


def match_pairs(
    pairs: PairList, source: Source, path: Path, *, folders: bool = False
) -> tuple[Array, Array]:
    """Rows `[P, 2]` of the file for each pair, and which pairs have both samples in the file.

    Words match names in the file, whole or without folders and ending, or else row numbers. A
    person's n-th picture is the name `person_000n`, or in a file without names the n-th row of that
    label. With `folders`, names that both have folders must agree in them, from the last one up. If
    the file lacks a sample, both rows are -1. Raises `DataError` for a name of several rows.
    """
    by_number = isinstance(pairs.first[0], tuple)
    if source.names is not None:
        known = _by_path(source.names) if folders else _by_name(source.names)
    elif by_number:
        known = _by_label(source, path)
    else:
        known = {str(row): row for row in range(len(source))}
    rows = np.full((len(pairs), 2), -1)
    for side, names in enumerate((pairs.first, pairs.second)):
        for pair, name in enumerate(names):
            word = _written(name)
            row = known.get(word, -1)
            if row == -1 and not (folders and "/" in word):
                row = known.get(_stem(word), -1)
            if row == -2:
                raise DataError(f"{path}: several rows are named {_written(name)!r}")
            rows[pair, side] = row
    there: Array = np.asarray((rows >= 0).all(axis=1))
    rows[~there] = -1
    return rows, there


def _lfw(lines: Sequence[str]) -> PairList:
    """`folds<TAB>pairs`, then for each fold that many lines of same pairs and as many others."""
    cells = [line.split("\t") if "\t" in line else line.split() for line in lines if line.strip()]
    if not cells or len(cells[0]) not in (1, 2) or not all(c.isdecimal() for c in cells[0]):
        raise DataError("is no list of pairs as LFW has it: its first line is '10<TAB>300', say")
    folds, each = (1, int(cells[0][0])) if len(cells[0]) == 1 else map(int, cells[0])
    body = cells[1:]
    if len(body) != 2 * folds * each:
        raise DataError(f"has {len(body)} pairs; its first line says {2 * folds * each}")
    first, second, same = [], [], []
    for number, words in enumerate(body, 2):
        if len(words) not in (3, 4) or not words[1].isdecimal() or not words[-1].isdecimal():
            given = f"line {number} is {' '.join(words)[:60]!r}"
            raise DataError(f"{given}, expected: name number number, or name number name number")
        first.append((words[0], int(words[1])))
        second.append((words[0] if len(words) == 3 else words[2], int(words[-1])))
        same.append(len(words) == 3)
    numbers = np.arange(len(body)) // (2 * each)
    return PairList(first, second, np.array(same), numbers if folds > 1 else None)


def _truth_and_folds(columns: Mapping[str, Sequence[object]]) -> tuple[Array | None, Array | None]:
    name, fold = _column(columns, _SAME), _column(columns, _FOLD)
    same = None
    if name is not None:
        words = [str(value).strip().lower().removesuffix(".0") for value in columns[name]]
        for row, word in enumerate(words):
            if word not in (*_TRUE, *_FALSE):
                given = f"column {name!r} holds {columns[name][row]!r} in row {row + 1}"
                raise DataError(f"{given}; expected 1 or 0, true or false")
        same = np.array([word in _TRUE for word in words])
    folds = None if fold is None else np.array([str(value) for value in columns[fold]])
    return same, folds


def _column(columns: Mapping[str, object], known: Sequence[str]) -> str | None:
    return next((name for name in columns if name.strip().lower() in known), None)


def _written(name: str | tuple[str, int]) -> str:
    return name if isinstance(name, str) else f"{name[0]}_{name[1]:04d}"


def _stem(name: str) -> str:
    """A path without folders, and without an ending that is one of a picture."""
    last = PurePosixPath(name.replace("\\", "/")).name
    stem, dot, ending = last.rpartition(".")
    return stem if dot and ending.isalnum() and len(ending) <= 4 and not ending.isdigit() else last


def _by_name(names: Array) -> dict[str, int]:
    """Rows by name and by its stem; whole names come first."""
    words = list(map(str, names))
    return _unique([_stem(word) for word in words]) | _unique(words)


def _by_path(names: Array) -> dict[str, int]:
    """`_by_name`, and by the last folders of a path: `b/c.jpg` and `b/c` for `a/b/c.jpg`."""
    keys, rows = [], []
    for row, name in enumerate(names):
        parts = PurePosixPath(str(name).replace("\\", "/")).parts
        for cut in range(1, len(parts) - 1):
            above = "/".join(parts[cut:-1])
            for last in {parts[-1], _stem(parts[-1])}:
                keys.append(f"{above}/{last}")
                rows.append(row)
    return _unique(keys, rows) | _by_name(names)


def _by_label(source: Source, path: Path) -> dict[str, int]:
    if source.labels is None:
        raise DataError(f"{path}: neither names nor labels, which a list as LFW's refers to")
    counts: Counter[str] = Counter()
    rows: dict[str, int] = {}
    for row, label in enumerate(map(str, source.labels)):
        counts[label] += 1
        rows[f"{label}_{counts[label]:04d}"] = row
    return rows


def _unique(keys: Sequence[str], rows: Sequence[int] | None = None) -> dict[str, int]:
    """The row of each key; -2 where several rows have it."""
    known: dict[str, int] = {}
    for row, key in zip(rows or range(len(keys)), keys, strict=True):
        known[key] = -2 if key in known else row
    return known
