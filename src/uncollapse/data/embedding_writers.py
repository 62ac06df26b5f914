"""Embeddings into files, by their ending: npz, safetensors, parquet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from uncollapse._base.check import InputError
from uncollapse._base.extras import import_extra
from uncollapse.data.origin import NOTE, Note, Origin, write_note

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array

__all__ = ["WRITERS"]

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
