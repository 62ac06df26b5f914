"""Files of embeddings, of any origin: npz, npy, safetensors, parquet, csv; written and read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from uncollapse._base.check import InputError
from uncollapse._base.files import written_aside
from uncollapse.data.embedding_writers import WRITERS
from uncollapse.data.load_report import DataError
from uncollapse.data.origin import NOTE, Note, Origin, parse_note
from uncollapse.data.readers import (
    ARRAY_FILES,
    TABLE_FILES,
    named_errors,
    read_arrays,
    read_note,
    read_table,
)
from uncollapse.data.table_columns import Choice, label_values, table_arrays

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array

__all__ = ["Embeddings", "read_embeddings", "read_labels", "write_embeddings"]

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
