"""EPS's methods and studies; scores of their runs' first and last networks, in percent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uncollapse._base.arrays import Array
from uncollapse._base.files import read_json, read_toml, write_json
from uncollapse.data import LabelledImages
from uncollapse.metrics import Interval, cluster_rows, compare_seeds, evaluate_rows
from uncollapse.papers.comparison import Finding, Score, spread
from uncollapse.papers.study import Cells, Trained, read_kept, read_studies
from uncollapse.training import NotMeasuredError, Run, embed
from uncollapse.training.assemble import in_precision, load_eval_data
from uncollapse.training.evaluation import evenly_spaced, scores_of
from uncollapse.training.measurer import start_network

STUDIES = read_studies(Path(__file__).with_name("studies.toml"))
# Methods, columns and the paper's numbers; a method is the `[loss]` and `[mining]` of a config.
TABLES = read_toml(Path(__file__).with_name("tables.toml"))
METHODS: Cells = TABLES["methods"]
_LEVEL = 0.05
_RESAMPLES = 2000


@dataclass(frozen=True)
class Column:
    """A column of a table: Recall@`k`, or NMI with `clusters` times as many clusters as classes.

    `fine` judges by the hidden labels (digits, letters) instead of those trained on.
    """

    title: str
    split: str
    fine: bool = False
    k: int | None = None
    clusters: int = 1

    @property
    def name(self) -> str:
        """Name among the scores of its split."""
        what = f"nmi x{self.clusters}" if self.k is None else f"recall@{self.k}"
        return f"{'fine/' * self.fine}{what}"

    @property
    def key(self) -> str:
        """Name in the file of scores."""
        return f"{self.split}/{self.name}"


def columns(
    split: str,
    ks: Sequence[int],
    nmi: Mapping[str, int] = MappingProxyType({}),
    name: str = "",
    fine: bool = False,
) -> list[Column]:
    """Recall@k for the `ks`, then NMI by title with so many clusters per class.

    >>> [column.title for column in columns("test", [1, 2], {"NMI+": 10})]
    ['R@1', 'R@2', 'NMI+']
    """
    recalls = [Column(f"{name} R@{k}".strip(), split, fine, k) for k in ks]
    return recalls + [
        Column(f"{name} {title}".strip(), split, fine, clusters=count)
        for title, count in nmi.items()
    ]


def measure(
    run: Run, columns: Sequence[Column], *, trained: bool = True, like: Sequence[Run] = ()
) -> list[float]:
    """The scores of a run's last network, or of the one before training, column by column.

    Scores that the run measured when it began and ended are reused, and so are those of a run in
    `like` with the same start. Scores measured here are kept in the run's folder, by step.
    """
    file, step = run.path / "scores.json", str(run.summary["step"] if trained else 0)
    kept = read_kept(file)
    known: dict[str, float] = _measured(run, trained) | kept.get(step, {})
    for other in like:
        if _start_of(other) == _start_of(run):
            known = read_json(other.path / "scores.json").get(step, {}) | known
    missing = [column for column in columns if column.key not in known]
    if missing:
        network = run.load_model() if trained else start_network(run)
        for split in dict.fromkeys(column.split for column in missing):
            data = load_eval_data(run.config, split)
            of_split = [column for column in missing if column.split == split]
            z = _embed(network, data, run)
            scores = _scores(z, data, of_split)
            if trained:
                _keep_hits(run, z, data, [column for column in of_split if column.k == 1])
            known |= {f"{split}/{name}": 100.0 * value for name, value in scores.items()}
    if kept.get(step) != known:
        write_json(file, kept | {step: known})
    return [known[column.key] for column in columns]


def _embed(network: nn.Module, data: LabelledImages, run: Run) -> Tensor:
    with in_precision(run.config, torch.device("cpu")):
        return embed(network, data)


def _keep_hits(
    run: Run, z: Tensor, data: LabelledImages, columns: Sequence[Column]
) -> dict[str, Any]:
    """Keep by class, beside the run, how many rows have their nearest row in it, and how many."""
    kept = read_kept(run.path / "hits.json")
    for column in columns:
        labels = (data.by_fine_labels() if column.fine else data).label_index.numpy()
        hits = evaluate_rows(z, labels, ks=[1], progress=False).ranked.per_query["recall@1"]
        known = ~np.isnan(hits)  # those whose class has another row
        counts = np.bincount(labels[known], hits[known]), np.bincount(labels[known])
        kept[column.key] = [numbers.tolist() for numbers in counts]
    write_json(run.path / "hits.json", kept)
    return kept


def paired_gain(pairs: Sequence[tuple[Sequence[Run], Sequence[Run]]], column: Column) -> Interval:
    """What the first runs of each pair have more of R@1 than the second, in points.

    The runs of a pair have the same seeds. The 95 % interval draws seeds and classes anew.
    """

    def counts(run: Run) -> Array:
        kept = read_kept(run.path / "hits.json")
        if column.key not in kept:
            data = load_eval_data(run.config, column.split)
            kept = _keep_hits(run, _embed(run.load_model(), data, run), data, [column])
        return np.array(kept[column.key], float)

    by_pair = [[[counts(run) for run in runs] for runs in pair] for pair in pairs]
    every: Array = np.array(by_pair)  # pair, side, seed, hits or sizes, class
    gains, sizes = (every[:, 0, :, 0] - every[:, 1, :, 0]).mean(axis=0), every[0, 0, 0, 1]
    drawn, generator = [], np.random.default_rng(0)
    for _ in range(_RESAMPLES):
        seeds, classes = (generator.integers(count, size=count) for count in gains.shape)
        drawn.append(gains[seeds][:, classes].mean(axis=0).sum() / sizes[classes].sum())
    low, high = (100.0 * np.quantile(drawn, [_LEVEL / 2, 1.0 - _LEVEL / 2])).tolist()
    value = 100.0 * float(gains.mean(axis=0).sum() / sizes.sum())
    units = len(sizes)
    return Interval(value, low, high, 1.0 - _LEVEL, _RESAMPLES, units, "seeds and classes drawn")


def paired_claim(what: str, paper: str, gain: Interval) -> Finding:
    """A gain in R@1 with its interval; not judged where that holds 0.

    >>> gain = Interval(0.4, -0.1, 0.9, 0.95, 1000, 98, "")
    >>> paired_claim("EPS", "+2.2", gain).ours
    '+0.4 (-0.1 to +0.9), which holds 0'
    """
    decided = gain.low > 0.0 or gain.high < 0.0
    ours = f"{gain.value:+.1f} ({gain.low:+.1f} to {gain.high:+.1f})"
    ours += "" if decided else ", which holds 0"
    return Finding(f"{what}: gain in R@1", paper, ours, gain.low > 0.0 if decided else None)


def _start_of(run: Run) -> tuple[object, ...]:
    """What a network before training depends on; the batch, because of its batch norm."""
    config = run.config
    return config.seed, config.data, config.model, config.batch


def _measured(run: Run, trained: bool) -> dict[str, float]:
    """Recall before or after training, by the columns' keys, of splits measured whole."""
    try:
        measures = run.measures()
    except NotMeasuredError:
        return {}
    moment = measures.after if trained else measures.before
    most = run.config.evaluate.max_samples
    return {
        f"{split}/{name}": 100.0 * value
        for split, figures in ({} if moment is None else moment.splits).items()
        if most is None or measures.splits[split].total <= most
        for name, value in figures.scores.items()
        if "recall@" in name and "map@r" in figures.scores  # searched in itself
    }


def _scores(z: Tensor, data: LabelledImages, columns: Sequence[Column]) -> dict[str, float]:
    """Scores of a split's embeddings, by name: those of the columns are among them."""
    ks = sorted({column.k for column in columns if column.k is not None})
    scores = scores_of(z, data.labels, data.fine_labels, ks=ks) if ks else {}
    for column in columns:
        if column.k is None:
            labels = (data.by_fine_labels() if column.fine else data).labels
            (clustered,) = cluster_rows(z, labels, [column.clusters], restarts=1).values()
            scores[column.name] = clustered.nmi
    return scores


def method_scores(
    trained: Trained,
    columns: Sequence[Column],
    paper: Mapping[str, Sequence[float | None]] | None = None,
) -> list[Score]:
    """The scores of all methods, before training and at the end.

    With the numbers of the `paper` those of its methods, and "EPS + X" is compared with X. A
    network before training is built again once for all runs that begin alike.
    """
    scores: list[Score] = []
    done: list[Run] = []
    for method, theirs in (paper or dict.fromkeys(trained.runs, [None] * len(columns))).items():
        runs = trained.runs[method]
        ends = [measure(run, columns) for run in runs]
        starts = [measure(run, columns, trained=False, like=done) for run in runs]
        done += runs
        loss = method.removeprefix("EPS + ")
        than = loss if paper is not None and loss != method else None
        for i, (column, value) in enumerate(zip(columns, theirs, strict=True)):
            ours, before = ([run[i] for run in values] for values in (ends, starts))
            scores.append(Score(method, column.title, value, ours, than, before))
    return scores


def gain_claim(what: str, paper: str, easy: Sequence[float], plain: Sequence[float]) -> Finding:
    """`easy` above `plain`, pair by pair; not judged where so few pairs cannot be significant.

    >>> gain_claim("EPS", "significant", [3.0, 4.0], [1.0, 1.0]).ours
    '1.0 → 3.5 (+2.5), p = 0.5 (exact sign-flip; 2 pairs cannot give less than 0.5)'
    """
    what = f"{what}: gain in R@1"
    if len(easy) < 2:
        return Finding(what, paper, "one seed only", None)
    result = compare_seeds(easy, plain)
    least = 2.0 ** (1 - len(easy))  # what so many pairs can give at all
    few = f"; {len(easy)} pairs cannot give less than {least:.2g}" if least > _LEVEL else ""
    means = f"{spread(plain)[0]:.1f} → {spread(easy)[0]:.1f} ({result.difference:+.1f})"
    ours = f"{means}, p = {result.p_value:.2g} ({result.test}{few})"
    holds = None if few else result.p_value < _LEVEL and result.difference > 0
    return Finding(what, paper, ours, holds)


@dataclass(frozen=True)
class Embedded:
    """Embeddings of some rows of a split, by the run's last network, and the split they are of."""

    embeddings: Tensor
    rows: Tensor
    data: LabelledImages


def embed_split(run: Run, split: str, most: int) -> Embedded:
    """At most so many rows of a split, the same ones for every run."""
    data = load_eval_data(run.config, split)
    rows = evenly_spaced(len(data), most)
    return Embedded(_embed(run.load_model(), data.subset(rows), run), rows, data)


def some_methods(*names: str) -> Cells:
    """Some of the methods.

    >>> list(some_methods("MS", "EPS + MS"))
    ['MS', 'EPS + MS']
    """
    return {name: METHODS[name] for name in names}
