"""Files of embeddings, of any origin: npz, npy, safetensors, parquet, csv; written and read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from uncollapse._base.arrays import Array, points64
from uncollapse._base.check import InputError
from uncollapse._base.extras import import_extra
from uncollapse._base.files import written_aside
from uncollapse.data.readers import ARRAY_FILES, TABLE_FILES, read_arrays, read_table
from uncollapse.data.types import DataError

__all__ = ["Embeddings", "read_embeddings", "write_embeddings"]

_POINTS = ("embeddings", "features", "x", "X")
_LABELS = ("labels", "label", "y")
_FINE = ("fine_labels", "fine_label")
_NAMES = ("names", "name", "path", "paths", "id", "ids")


@dataclass(frozen=True)
class Embeddings:
    """Embeddings `[N, dim]`, one row a sample; labels, fine labels and names where known."""

    points: Array
    labels: Array | None = None
    fine_labels: Array | None = None
    names: Array | None = None

    def __len__(self) -> int:
        return len(self.points)


def write_embeddings(found: Embeddings, path: str | Path) -> Path:
    """Write by the file's ending: .npz, .parquet or .safetensors (numbers only: no names)."""
    target = Path(path)
    writer = _WRITERS.get(target.suffix)
    if writer is None:
        raise InputError("path", target.name, f"a file ending in {', '.join(_WRITERS)}")
    columns = {
        name: value for name, value in vars(found).items() if name != "points" and value is not None
    }
    with written_aside(target) as aside:
        writer(aside, found.points.astype(np.float32), columns)
    return target


def read_embeddings(path: str | Path, labels: str | Path | None = None) -> Embeddings:
    """Read embeddings from a file of any origin; `labels` names a second file that holds them.

    Tables (csv, parquet) have a column a dimension, or in parquet one list column, and columns
    named label, fine_label, name or path; every other numeric column is a dimension.
    """
    source = Path(path)
    arrays = _read(source, "file")
    if labels is not None:
        beside = _read(Path(labels), "labels")
        found = _pick(beside, _LABELS)
        arrays["labels"] = found if found is not None else next(iter(beside.values()))
    points = _pick(arrays, _POINTS)
    if points is None:
        raise DataError(f"{source}: none of {', '.join(_POINTS)}; it holds {', '.join(arrays)}")
    checked = points64(points, f"{source.name}: embeddings")
    result = Embeddings(
        checked, _pick(arrays, _LABELS), _pick(arrays, _FINE), _pick(arrays, _NAMES)
    )
    for name in ("labels", "fine_labels", "names"):
        value = getattr(result, name)
        if value is not None and (value.ndim != 1 or len(value) != len(checked)):
            raise DataError(f"{source}: {name} of shape {value.shape} for {len(checked)} rows")
    return result


def _read(path: Path, name: str) -> dict[str, Array]:
    if path.suffix not in (*ARRAY_FILES, *TABLE_FILES):
        endings = ", ".join([*ARRAY_FILES, *TABLE_FILES])
        raise InputError(name, path.name, f"a file ending in {endings}")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    return read_arrays(path) if path.suffix in ARRAY_FILES else _from_columns(read_table(path))


def _pick(arrays: dict[str, Array], names: tuple[str, ...]) -> Array | None:
    return next((arrays[name] for name in names if name in arrays), None)


def _from_columns(columns: dict[str, list[Any]]) -> dict[str, Array]:
    """Named columns keep their names; a list column, or the numeric rest, is the embeddings."""
    known = {*_LABELS, *_FINE, *_NAMES}
    arrays = {name: _labels(values) for name, values in columns.items() if name in known}
    rest = {name: values for name, values in columns.items() if name not in known}
    for values in rest.values():
        if values and isinstance(values[0], list):
            return arrays | {"embeddings": np.asarray(values, np.float64)}
    numeric = []
    for name, values in rest.items():
        try:
            numeric.append([float(value) for value in values])
        except (TypeError, ValueError):
            raise DataError(f"column {name!r} is neither numbers nor a known name") from None
    return arrays | ({"embeddings": np.array(numeric).T} if numeric else {})


def _labels(values: list[Any]) -> Array:
    try:
        return np.array([int(value) for value in values])
    except (TypeError, ValueError):
        return np.array([str(value) for value in values])


def _write_npz(path: Path, points: Array, columns: dict[str, Array]) -> None:
    np.savez(path, embeddings=points, **columns)  # type: ignore[arg-type]


def _write_safetensors(path: Path, points: Array, columns: dict[str, Array]) -> None:
    from safetensors.numpy import save_file

    numbers = {name: value for name, value in columns.items() if value.dtype.kind in "iub"}
    save_file({"embeddings": np.ascontiguousarray(points), **numbers}, path)


def _write_parquet(path: Path, points: Array, columns: dict[str, Array]) -> None:
    arrow, parquet = (import_extra(m, extra="parquet") for m in ("pyarrow", "pyarrow.parquet"))
    flat = arrow.array(points.ravel())
    lists = arrow.FixedSizeListArray.from_arrays(flat, points.shape[1])
    data = {"embeddings": lists} | {name: arrow.array(v.tolist()) for name, v in columns.items()}
    parquet.write_table(arrow.table(data), path)


_WRITERS: dict[str, Callable[[Path, Array, dict[str, Array]], None]] = {
    ".npz": _write_npz,
    ".safetensors": _write_safetensors,
    ".parquet": _write_parquet,
}
