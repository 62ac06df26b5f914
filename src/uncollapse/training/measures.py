"""The measures of a run: every figure of its start and its end, taken once, in files.

In the folder of a run: `measures.json` (figures), `embeddings-before.safetensors` and
`embeddings-after.safetensors` (the same fixed rows of each split, before and after training), and
`samples.safetensors` (the pictures of a few queries and of their nearest neighbours).

**Rows.** Of each evaluation split (of the training split where there is none) at most 2,000 rows,
as even over the finest labels as these allow, always the same. Every figure of `health` is of them.

**Before** is the network with its first weights. Its batch-norm layers, unless frozen, hold the
plain mean of the statistics of the first 8 training batches: what they are built with (mean 0,
variance 1) is another network, whose diameter may be 0. Images are those of evaluation, not
augmented. **After** is the network as training left it, with its own running statistics.

**Batches.** The same 8 batches of the training split, of the run's own shape, through the network
in training mode, so each is normalised by itself: what HNM (17) and a forecast look at.

    {"format": 1,
     "splits": {"test": {"data", "shape", "total", "rows", "class_names", "fine_names"}},
     "before": {"step": 0,
                "batches": {"count", "diameter", "hard_mined_loss", "loss", "drift", "anchors",
                            "modes"},
                "splits": {"test": {"health": {...}, "scores": {"recall@1", "map@r", ...}}}},
     "after": ...,
     "settings": what advice on the run depends on}

The first split is the one that a page is about. `after` is missing until the run has ended. Numbers
that are not finite are written as Python writes them (NaN, Infinity).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import PlainSerializer, PlainValidator, TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from uncollapse._base.arrays import Array, texts_of_rows
from uncollapse._base.files import DamagedFileError, read_json, write_json, written_aside
from uncollapse.data.sources import StartScale
from uncollapse.geometry import diameter_lower_bound
from uncollapse.health import Health, RunSettings
from uncollapse.training.manifest import Manifest, record_files

__all__ = ["Measures", "NotMeasuredError", "name_labels", "read_measures", "write_measures"]

T = TypeVar("T")
When = Literal["before", "after"]
ROW_FILES = ("embeddings-before.safetensors", "embeddings-after.safetensors", "samples.safetensors")
_FORMAT = 1


class NotMeasuredError(RuntimeError):
    """A run folder without the measures asked for; the message says how to take them."""

    def __init__(self, folder: Path, what: str) -> None:
        advice = "uncollapse report RUN --measure takes them from its dataset and checkpoint"
        super().__init__(f"{folder} has no {what}; {advice}")


@dataclass(frozen=True, eq=False)
class SplitRows:
    """The fixed rows of a split: their numbers in it, labels, and embeddings at one moment."""

    rows: Tensor
    labels: Tensor
    embeddings: Tensor
    fine_labels: Tensor | None = None


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
    return _read(SplitRows, folder, f"embeddings-{when}.safetensors", split)


def read_samples(folder: Path, split: str) -> Samples:
    """The queries of a split, their neighbours, and their pictures or texts.

    Raises `NotMeasuredError` where they were not taken.
    """
    return _read(Samples, folder, "samples.safetensors", split)


def _read(kind: type[T], folder: Path, name: str, split: str) -> T:
    path = folder / name
    if not path.is_file():
        raise NotMeasuredError(folder, name)
    Manifest.read(folder).check(name)
    try:
        tensors = {
            key.removeprefix(f"{split}/"): tensor
            for key, tensor in load_file(path).items()
            if key.rpartition("/")[0] == split
        }
    except SafetensorError as error:
        raise DamagedFileError(path, str(error)) from None
    if not tensors:
        raise NotMeasuredError(folder, f"{name} of the split {split!r}")
    try:
        return kind(**tensors)
    except TypeError as error:
        raise DamagedFileError(path, f"not the tensors of {split} ({error})") from None


def write_tensors(path: Path, step: int, splits: Mapping[str, SplitRows | Samples]) -> None:
    """Write one of `ROW_FILES`."""
    tensors = {
        f"{split}/{name}": tensor.detach().cpu().contiguous()
        for split, fields in splits.items()
        for name, tensor in vars(fields).items()
        if tensor is not None
    }
    with written_aside(path) as aside:
        save_file(tensors, aside, {"step": str(step)})


@dataclass(frozen=True)
class BatchFigures:
    """Means over `count` training batches of the run's own shape, through the network in training.

    `diameter` is that of a batch; `loss` the value of the run's own loss. `hard_mined_loss` is the
    loss of a batch's hardest triplet, what HNM (17) means; it and the radial `drift` are None where
    the loss is no plain triplet loss. A batch without a triplet costs 0. `anchors` is the share of
    samples with a positive in their batch. `modes` is the mode drift of the run's own loss, None
    where batches show no modes and in measures of earlier versions.
    """

    count: int
    diameter: float
    hard_mined_loss: float | None
    loss: float
    drift: float | None
    anchors: float
    modes: float | None = None


@dataclass(frozen=True)
class SplitFacts:
    """What a split is: the dataset's name, the shape of a sample, how many there are (`total`).

    `rows` of them were looked at. Names are by label, as far as the dataset has names.
    """

    data: str
    shape: tuple[int, ...]
    total: int
    rows: int
    class_names: Mapping[int, str]
    fine_names: Mapping[int, str]


@dataclass(frozen=True)
class SplitFigures:
    """A split through the network: its `health`, and the `scores` that were logged for it.

    `health` is of the fixed rows; after training it is judged beside the health before. `scores`
    (`recall@1`, `map@r`, `nmi`, `nmi+`, `fine/recall@1`, ...) are of the samples that
    `[evaluate]` asks for, `verification/eer`, ... of pairs. There are none for a training split
    that stands in for others.
    """

    health: Annotated[Health, PlainValidator(Health.from_dict), PlainSerializer(Health.to_dict)]
    scores: Mapping[str, float]


@dataclass(frozen=True)
class Moment:
    """The network at a step, before or after training."""

    step: int
    batches: BatchFigures
    splits: Mapping[str, SplitFigures]

    @property
    def diameter(self) -> float:
        """Diameter of the embedded rows of the first split."""
        return next(iter(self.splits.values())).health.diameter


@dataclass(frozen=True)
class Measures:
    """What `measures.json` holds; `after` is None while the run has not ended.

    `settings` are what advice on the run depends on.
    """

    splits: Mapping[str, SplitFacts]
    before: Moment
    after: Moment | None = None
    settings: RunSettings = field(default_factory=RunSettings)

    @property
    def split(self) -> str:
        """The first split: what a page is about, and what `Moment.diameter` is of."""
        return next(iter(self.splits))

    def start(self, split: str) -> StartScale | None:
        """The scale before training: of this split, or of the first where it was not measured.

        None where there is none to compare with: the rows were equal, or not finite.
        """
        measured = split if split in self.before.splits else self.split
        health, rows = self.before.splits[measured].health, self.splits[measured].rows
        diameter, spread, cdnv = (
            None if size is None or not 0 < size < math.inf else float(size)
            for size in (health.diameter, health.spread, health.cdnv)
        )
        if diameter is None:
            return None
        fine = (health.fine_agreement, health.fine_chance) if measured == split else (None, None)
        return StartScale(diameter, spread, cdnv, measured, rows, *fine)

    def bound(self, c: float = 2.0) -> float | None:
        """HNM (17): the diameter before training minus c times the loss of the hardest triplet.

        None where the loss is no plain triplet loss. A forecast, not a guarantee.
        """
        loss = self.before.batches.hard_mined_loss
        return None if loss is None else diameter_lower_bound(self.before.diameter, loss, c)


_MEASURES = TypeAdapter(Measures)


def measures_file(folder: Path) -> Path:
    """Where the figures of a run are kept."""
    return folder / "measures.json"


def read_measures(folder: Path) -> Measures:
    """The figures of the run in this folder.

    Raises `NotMeasuredError` where there are none, `DamagedFileError` for a file that is not what
    `write_measures` wrote.
    """
    path = measures_file(folder)
    if not path.is_file():
        raise NotMeasuredError(folder, path.name)
    Manifest.read(folder).check(path.name)
    plain = read_json(path)
    if plain.get("format") != _FORMAT:
        raise DamagedFileError(path, f"format {plain.get('format')!r}, expected {_FORMAT}")
    try:
        return _MEASURES.validate_python(plain)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = str(error).splitlines()[0]
        raise DamagedFileError(path, f"not the measures of a run ({why})") from None


def write_measures(folder: Path, measures: Measures) -> None:
    """Write `measures.json`, atomically; the same measures give the same bytes.

    The files of rows that belong to it must be there already: all are recorded in the manifest.
    """
    plain: dict[str, Any] = {"format": _FORMAT, **_MEASURES.dump_python(measures)}
    if measures.after is None:
        del plain["after"]
    path = measures_file(folder)
    write_json(path, plain)
    record_files(folder, path.name, *ROW_FILES)


def check_rows(folder: Path) -> None:
    """Raise unless the files of rows are those that were measured.

    `NotMeasuredError` for one that is gone, `DamagedFileError` for one that is another.
    """
    manifest = Manifest.read(folder)
    for name in ROW_FILES if measures_file(folder).is_file() else ():
        if name in manifest.files and not (folder / name).is_file():
            raise NotMeasuredError(folder, name)
        manifest.check(name)


def name_labels(labels: Tensor, names: Mapping[int, str]) -> Array:
    """Labels as their names, where there are names; a label without one as its number.

    >>> import torch
    >>> name_labels(torch.tensor([1, 0]), {0: "even", 1: "odd"}).tolist()
    ['odd', 'even']
    """
    if not names:
        return labels.numpy()
    return np.array([names.get(value, str(value)) for value in labels.tolist()])
