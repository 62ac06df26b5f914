"""The rows that a run was measured on: their embeddings before and after, and some to be seen.

`embeddings-before.safetensors`, `embeddings-after.safetensors` and `samples.safetensors` in the
folder of a run hold, for each split, tensors named `split/rows`, `split/embeddings` and so on, with
the names of `SplitRows` and `Samples`; the metadata says the `step`. `measures` says which rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from uncollapse._base.files import DamagedFileError, written_aside
from uncollapse._base.text_rows import texts_of_rows

__all__ = [
    "ROW_FILES",
    "NotMeasuredError",
    "Samples",
    "SplitRows",
    "When",
    "read_rows",
    "read_samples",
    "write_rows",
    "write_samples",
]

When = Literal["before", "after"]
ROW_FILES = ("embeddings-before.safetensors", "embeddings-after.safetensors", "samples.safetensors")


class NotMeasuredError(RuntimeError):
    """A run folder without the measures asked for; the message says how to take them."""

    def __init__(self, folder: Path, what: str) -> None:
        advice = "uncollapse evaluate RUN --measure takes them from its dataset and checkpoint"
        super().__init__(f"{folder} has no {what}; {advice}")


@dataclass(frozen=True, eq=False)
class SplitRows:
    """The fixed rows of a split: their numbers in it, labels, and embeddings at one moment."""

    rows: Tensor
    labels: Tensor
    fine_labels: Tensor | None
    embeddings: Tensor


@dataclass(frozen=True, eq=False)
class Samples:
    """Queries with their nearest neighbours after training, as places among the fixed rows.

    `shown` are the places that have a picture, ascending, and `pixels` those pictures, uint8
    `[n, C, H, W]`, at most 96 pixels high and wide; None where samples are no pictures. Where they
    are texts, `texts` are those of the same places, as rows of bytes.
    """

    queries: Tensor
    neighbours: Tensor
    shown: Tensor
    pixels: Tensor | None = None
    texts: Tensor | None = None

    def texts_by_place(self) -> dict[int, str] | None:
        """The texts that are shown; None where samples are no texts."""
        if self.texts is None:
            return None
        return dict(zip(self.shown.tolist(), texts_of_rows(self.texts), strict=True))


def read_rows(folder: Path, when: When, split: str) -> SplitRows:
    """The fixed rows of a split with their embeddings before or after training.

    Raises `NotMeasuredError` where they were not taken.
    """
    names = ("rows", "labels", "embeddings")
    found = _read(folder, f"embeddings-{when}.safetensors", split, names)
    fine = found.get("fine_labels")
    return SplitRows(found["rows"], found["labels"], fine, found["embeddings"])


def write_rows(folder: Path, when: When, step: int, splits: Mapping[str, SplitRows]) -> None:
    """Write `embeddings-before.safetensors` or `embeddings-after.safetensors`."""
    tensors = {name: {**vars(one)} for name, one in splits.items()}
    _write(folder / f"embeddings-{when}.safetensors", tensors, {"step": str(step)})


def read_samples(folder: Path, split: str) -> Samples:
    """The queries of a split, their neighbours, and their pictures or texts.

    Raises `NotMeasuredError` where they were not taken.
    """
    found = _read(folder, "samples.safetensors", split, ("queries", "neighbours", "shown"))
    seen = found.get("pixels"), found.get("texts")
    return Samples(found["queries"], found["neighbours"], found["shown"], *seen)


def write_samples(folder: Path, step: int, splits: Mapping[str, Samples]) -> None:
    """Write `samples.safetensors`."""
    tensors = {name: {**vars(one)} for name, one in splits.items()}
    _write(folder / "samples.safetensors", tensors, {"step": str(step)})


def _read(folder: Path, name: str, split: str, wanted: Sequence[str]) -> dict[str, Tensor]:
    path = folder / name
    if not path.is_file():
        raise NotMeasuredError(folder, name)
    try:
        with safe_open(path, framework="pt") as file:
            keys = [key for key in file.keys() if key.rpartition("/")[0] == split]  # noqa: SIM118
            found = {key.rpartition("/")[2]: file.get_tensor(key) for key in keys}
    except SafetensorError as error:
        raise DamagedFileError(path, str(error)) from None
    if not found:
        raise NotMeasuredError(folder, f"{name} of the split {split!r}")
    lost = [key for key in wanted if key not in found]
    if lost:
        raise DamagedFileError(path, f"no {split}/{lost[0]} in it")
    return found


def _write(
    path: Path, splits: Mapping[str, Mapping[str, Tensor | None]], metadata: dict[str, str]
) -> None:
    tensors = {
        f"{split}/{name}": tensor.detach().cpu().contiguous()
        for split, named in splits.items()
        for name, tensor in named.items()
        if tensor is not None
    }
    with written_aside(path) as aside:
        save_file(tensors, aside, metadata)
