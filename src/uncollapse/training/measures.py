"""A run folder as pages read it, and the measures in it: every figure of its start and its end.

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
     "settings": what advice on the run depends on,
     "defaults": {"batch.p": what each key of the config is where nobody sets it}}

The first split is the one that a page is about. `after` is missing until the run has ended. Numbers
that are not finite are written as Python writes them (NaN, Infinity).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import numpy as np
from pydantic import PlainSerializer, PlainValidator, TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from uncollapse._base import files
from uncollapse._base.arrays import Array, texts_of_rows
from uncollapse._base.check import InputError
from uncollapse._base.files import DamagedFileError
from uncollapse.geometry import diameter_lower_bound
from uncollapse.health.advice import RunSettings
from uncollapse.health.verdict import Health
from uncollapse.training.manifest import Manifest, record_files

T = TypeVar("T")
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
        if not tensors:
            raise NotMeasuredError(folder, f"{name} of the split {split!r}")
        return kind(**tensors)
    except (SafetensorError, TypeError) as error:
        raise DamagedFileError(path, f"not the tensors of {split} ({error})") from None


def write_tensors(path: Path, step: int, splits: Mapping[str, SplitRows | Samples]) -> None:
    """Write one of `ROW_FILES`."""
    tensors = {
        f"{split}/{name}": tensor.detach().cpu().contiguous()
        for split, fields in splits.items()
        for name, tensor in vars(fields).items()
        if tensor is not None
    }
    with files.written_aside(path) as aside:
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

    `settings` are what advice on the run depends on. `defaults` are those of the keys of its
    config, with its loss; measures of earlier versions have none.
    """

    splits: Mapping[str, SplitFacts]
    before: Moment
    after: Moment | None = None
    settings: RunSettings = field(default_factory=RunSettings)
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def split(self) -> str:
        """The first split: what a page is about, and what `Moment.diameter` is of."""
        return next(iter(self.splits))

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


def write_measures(folder: Path, measures: Measures) -> None:
    """Write `measures.json`, atomically; the same measures give the same bytes.

    The files of rows that belong to it must be there already: all are recorded in the manifest.
    """
    plain: dict[str, Any] = {"format": _FORMAT, **_MEASURES.dump_python(measures)}
    if measures.after is None:
        del plain["after"]
    path = measures_file(folder)
    files.write_json(path, plain)
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


# The run folder that these files are in.

_SECTIONS = ("seed", "data", "model", "batch", "train")  # of a run's own config
_CONFIG_REMEDY = (
    "put the run's own back, or delete it: uncollapse train CONFIG --resume then writes it again, "
    "if the checkpoints were made with that config"
)


@dataclass(frozen=True)
class RunFolder:
    """What stands in the folder of a run, read without its dataset, its network or its loss.

    `config.toml`, `metrics.jsonl`, `summary.json`, and what was measured once, at its start and its
    end: `measures.json` and the files beside it. `manifest.json` has the checksums of all of them.
    `training.Run` can build from it as well.
    """

    path: Path

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """A run that exists; the error says what is missing."""
        run = cls(Path(path))
        if not run.config_file.is_file():
            lost = any(run.path.glob("checkpoints/*"))
            given = f"{path} (no config.toml in it{', but checkpoints' * lost})"
            raise InputError("run", given, f"a run directory{f'; {_CONFIG_REMEDY}' * lost}")
        return run

    @property
    def config_file(self) -> Path:
        """The resolved config."""
        return self.path / "config.toml"

    @property
    def metrics_file(self) -> Path:
        """One JSON object per line, in the order of the steps."""
        return self.path / "metrics.jsonl"

    @property
    def summary_file(self) -> Path:
        """Written when the run ends."""
        return self.path / "summary.json"

    @property
    def values(self) -> dict[str, Any]:
        """`config.toml` by dotted keys; `DamagedFileError` if it is not a whole one."""
        try:
            values = files.read_toml(self.config_file)
        except DamagedFileError as error:
            raise self.damaged_config(error.why) from None
        lost = [name for name in _SECTIONS if name not in values]
        if lost:
            raise self.damaged_config(f"it has no {lost[0]!r}")
        return dotted(values)

    def damaged_config(self, why: object) -> DamagedFileError:
        """What to raise for a `config.toml` that cannot be used; it says what to do."""
        return DamagedFileError(self.config_file, f"{why}; {_CONFIG_REMEDY}")

    @property
    def summary(self) -> dict[str, Any]:
        """How it ended; empty while it has not. `DamagedFileError` if it cannot be read."""
        path = self.summary_file
        if not path.is_file():
            return {}
        try:
            Manifest.read(self.path).check(path.name)
            return dict(files.read_json(path))
        except DamagedFileError as error:
            remedy = "uncollapse train with --resume writes it again"
            raise DamagedFileError(path, f"{error.why}; {remedy}") from None

    @property
    def finished(self) -> bool:
        """Whether all steps were made."""
        return self.summary.get("status") == "finished"

    def metrics(self, complaints: list[str] | None = None) -> Iterator[dict[str, Any]]:
        """The logged lines; a last line cut short by a crash is left out.

        A damaged one raises; with `complaints` it is left out, and a sentence added there.
        """
        if self.metrics_file.is_file():
            yield from files.read_jsonl(self.metrics_file, complaints)

    def measures(self) -> Measures:
        """Every figure of the start and the end; `NotMeasuredError` where they were not taken.

        `DamagedFileError` for a file that is not what `write_measures` wrote.
        """
        path = measures_file(self.path)
        if not path.is_file():
            raise NotMeasuredError(self.path, path.name)
        Manifest.read(self.path).check(path.name)
        plain = files.read_json(path)
        if plain.get("format") != _FORMAT:
            raise DamagedFileError(path, f"format {plain.get('format')!r}, expected {_FORMAT}")
        try:
            return _MEASURES.validate_python(plain)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            why = str(error).splitlines()[0]
            raise DamagedFileError(path, f"not the measures of a run ({why})") from None

    def known_measures(self) -> Measures | None:
        """The same; None where they were not taken or are damaged."""
        try:
            return self.measures()
        except (NotMeasuredError, DamagedFileError):
            return None

    def rows(self, when: Literal["before", "after"], split: str) -> SplitRows:
        """The fixed rows of a split with their embeddings `before` or `after` training."""
        return _read(SplitRows, self.path, f"embeddings-{when}.safetensors", split)

    def samples(self, split: str) -> Samples:
        """A few queries of a split, their nearest neighbours after training, and pictures."""
        return _read(Samples, self.path, "samples.safetensors", split)


def dotted(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested values by dotted keys.

    >>> dotted({"batch": {"p": 2, "k": 4}, "seed": 1})
    {'batch.p': 2, 'batch.k': 4, 'seed': 1}
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        inner = isinstance(value, Mapping) and value  # an empty section stays one
        flat |= dotted(value, f"{above}{key}.") if inner else {f"{above}{key}": value}
    return flat


def find_damage(run: RunFolder) -> list[str]:
    """A sentence for each file of a run that is not as the run left it.

    Checkpoints are verified where they are used, not here.
    """
    manifest = Manifest.read(run.path)
    names = [name for name in manifest.files if not name.startswith("checkpoints/")]
    log = manifest.log_damage(run.metrics_file, ended="summary.json" in names)
    complaints = [manifest.complaint, *map(manifest.damage, names), log]
    return [text for text in complaints if text is not None]


# Scores of the network before training beside those of a later one, and where these are lower.


def start_scores(run: RunFolder) -> dict[str, float]:
    """Scores of the network before training by `split/name`, as they were measured.

    They are of the same samples as those logged at the end. Empty for a run without measures.
    """
    measures = run.known_measures()
    splits = {} if measures is None else measures.before.splits
    return by_split({split: figures.scores for split, figures in splits.items()})


def by_split(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Scores of each split by `split/name`.

    >>> by_split({"test": {"recall@1": 0.5}})
    {'test/recall@1': 0.5}
    """
    return {
        f"{split}/{name}": value
        for split, figures in scores.items()
        for name, value in figures.items()
    }


def ends_below(start: Mapping[str, float], end: Mapping[str, float]) -> list[str]:
    """A sentence for each split and kind of label where R@1 (the smallest k) is below its start.

    >>> ends_below({"test/recall@1": 0.498, "test/recall@5": 0.7},
    ...            {"test/recall@1": 0.375, "test/recall@5": 0.6})
    ['R@1 on test ends below the network before training: 37.5 % against 49.8 %.']
    """
    sentences = []
    for group in dict.fromkeys(key.rpartition("recall@")[0] for key in end if "recall@" in key):
        both = [key for key in end if key.startswith(f"{group}recall@") and key in start]
        k = min((int(key.rpartition("@")[2]) for key in both), default=0)
        key = f"{group}recall@{k}"
        if not both or end[key] >= start[key]:
            continue
        last, first = 100 * end[key], 100 * start[key]
        digits = next((d for d in (1, 2, 3) if f"{last:.{d}f}" != f"{first:.{d}f}"), 4)
        fine = " by fine labels" * group.endswith("fine/")
        split = f" on {group.removesuffix('fine/')[:-1]}" if group.removesuffix("fine/") else ""
        sentences.append(
            f"R@{k}{fine}{split} ends below the network before training: {last:.{digits}f} % "
            f"against {first:.{digits}f} %."
        )
    return sentences
