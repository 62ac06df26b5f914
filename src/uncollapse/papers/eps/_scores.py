"""EPS's methods and studies; scores of their runs' first and last networks, in percent."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from uncollapse._base.files import read_json, write_json
from uncollapse.data import LabelledImages
from uncollapse.metrics import clustering, compare_seeds, retrieval
from uncollapse.papers._compare import Claim, Score, spread
from uncollapse.papers._study import Cells, Trained, read_studies
from uncollapse.training import NotMeasuredError, Run, embed
from uncollapse.training.assemble import load_eval_data
from uncollapse.training.evaluation import evenly_spaced
from uncollapse.training.measurer import start_network
from uncollapse.training.measures import When

__all__ = [
    "METHODS",
    "STUDIES",
    "TABLES",
    "Column",
    "Embedded",
    "columns",
    "embed_split",
    "gain_claim",
    "measure",
    "measure_all",
    "method_scores",
    "some_methods",
    "start_and_end",
]


STUDIES = read_studies(Path(__file__).with_name("studies.toml"))
# Methods, columns and the paper's numbers; a method is the `[loss]` and `[mining]` of a config.
TABLES: Mapping[str, Any] = tomllib.loads(
    Path(__file__).with_name("tables.toml").read_text(encoding="utf-8")
)
METHODS: Cells = TABLES["methods"]


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
    def key(self) -> str:
        """Name in the file of scores."""
        what = f"nmi x{self.clusters}" if self.k is None else f"recall@{self.k}"
        return f"{self.split}/{'fine/' * self.fine}{what}"


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


def measure(run: Run, columns: Sequence[Column]) -> dict[str, float]:
    """The scores by the columns' titles; what was measured when the run ended is taken as it is."""
    step = run.summary["step"]
    kept = _kept(run)
    known: dict[str, float] = kept["scores"] if kept.get("step") == step else {}
    known = known | _measured(run, "after")
    before = kept.get("before", {})
    for split in dict.fromkeys(column.split for column in columns):
        missing = [c for c in columns if c.split == split and c.key not in known]
        if missing:
            known |= _measure(run, run.load_model(), split, missing)
            _keep(run, {"step": step, "scores": known, "before": before})
    return {column.title: known[column.key] for column in columns}


def measure_before(
    run: Run, columns: Sequence[Column], like: Sequence[Run] = ()
) -> dict[str, float]:
    """The scores of the network before training, by the columns' titles.

    What was measured when the run began is taken as it is, and what is known of a run in `like`
    that began alike; for the rest the network is built again.
    """
    known = _measured(run, "before")
    for other in [run, *(one for one in like if _start_of(one) == _start_of(run))]:
        known = _kept(other).get("before", {}) | known
    missing = [column for column in columns if column.key not in known]
    network = start_network(run) if missing else None
    for split in dict.fromkeys(column.split for column in missing):
        assert network is not None
        known |= _measure(run, network, split, [c for c in missing if c.split == split])
    kept = {"step": None, "scores": {}} | _kept(run)
    if kept.get("before") != known:
        _keep(run, kept | {"before": known})
    return {column.title: known[column.key] for column in columns}


def measure_all(trained: Trained, column: Column) -> dict[str, list[float]]:
    """One score of every run, by cell and in the order of the seeds."""
    return {
        cell: [measure(run, [column])[column.title] for run in runs]
        for cell, runs in trained.runs.items()
    }


def measure_all_before(
    trained: Trained, columns: Sequence[Column]
) -> dict[str, list[dict[str, float]]]:
    """`measure_before` of every run, by cell and in the order of the seeds.

    A network is built again once for all runs that begin alike.
    """
    done: list[Run] = []
    found: dict[str, list[dict[str, float]]] = {}
    for cell, runs in trained.runs.items():
        found[cell] = [measure_before(run, columns, done) for run in runs]
        done += runs
    return found


def start_and_end(trained: Trained, column: Column) -> list[Score]:
    """A score of every cell before training and at the end."""
    before = measure_all_before(trained, [column])
    return [
        Score(cell, column.title, None, end, before=[run[column.title] for run in before[cell]])
        for cell, end in measure_all(trained, column).items()
    ]


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
    return Embedded(embed(run.load_model(), data.subset(rows)), rows, data)


def _kept(run: Run) -> dict[str, Any]:
    file = run.path / "scores.json"
    found: dict[str, Any] = read_json(file) if file.is_file() else {}
    return found


def _keep(run: Run, found: Mapping[str, Any]) -> None:
    write_json(run.path / "scores.json", found)


def _start_of(run: Run) -> tuple[object, ...]:
    """What a network before training depends on; its batch norm on the first batches."""
    config = run.config
    return config.seed, config.data, config.model, config.batch


def _measured(run: Run, when: When) -> dict[str, float]:
    """Recall before or after training, by the columns' keys, of splits measured whole."""
    try:
        measures = run.measures()
    except NotMeasuredError:
        return {}
    moment = measures.before if when == "before" else measures.after
    most = run.config.evaluate.max_samples
    return {
        f"{split}/{name}": 100.0 * value
        for split, figures in ({} if moment is None else moment.splits).items()
        if most is None or measures.splits[split].total <= most
        for name, value in figures.scores.items()
        if "recall@" in name and "map@r" in figures.scores  # searched in itself
    }


def _measure(
    run: Run, network: nn.Module, split: str, columns: Sequence[Column]
) -> dict[str, float]:
    data = load_eval_data(run.config, split)
    z = embed(network, data)
    found: dict[str, float] = {}
    for fine in {column.fine for column in columns}:
        labels = (data.by_fine_labels() if fine else data).labels
        mine = [column for column in columns if column.fine == fine]
        ks = [column.k for column in mine if column.k is not None]
        recall = retrieval(z, labels, ks=ks, progress=False).recall if ks else {}
        for column in mine:
            if column.k is not None:
                found[column.key] = 100.0 * float(recall[column.k])
                continue
            # With fewer samples than clusters every sample would be one.
            most = max(1, len(z) // (2 * len(set(labels.tolist()))))
            times = min(column.clusters, most)
            result = clustering(z, labels, multiplier=times, restarts=1)
            found[column.key] = 100.0 * result.nmi
    return found


def method_scores(
    trained: Trained,
    columns: Sequence[Column],
    paper: Mapping[str, Sequence[float | None]],
) -> list[Score]:
    """The scores of the paper's methods; one called "EPS + X" is compared with X."""
    rows = []
    before = measure_all_before(trained, columns)
    for method, theirs in paper.items():
        found = [measure(run, columns) for run in trained.runs[method]]
        than = method.removeprefix("EPS + ")
        for column, value in zip(columns, theirs, strict=True):
            ours, start = (
                [one[column.title] for one in scores] for scores in (found, before[method])
            )
            other = than if than != method else None
            rows.append(Score(method, column.title, value, ours, other, start))
    return rows


_LEVEL = 0.05


def gain_claim(what: str, paper: str, mine: Sequence[float], theirs: Sequence[float]) -> Claim:
    """`mine` above `theirs`, pair by pair; not judged where so few pairs cannot be significant.

    >>> gain_claim("EPS", "significant", [3.0, 4.0], [1.0, 1.0]).ours
    '1.0 → 3.5 (+2.5), p = 0.5 (exact sign-flip; 2 pairs cannot give less than 0.5)'
    """
    what = f"{what}: gain in R@1"
    if len(mine) < 2:
        return Claim(what, paper, "one seed only", None)
    result = compare_seeds(mine, theirs)
    least = 2.0 ** (1 - len(mine))  # what so many pairs can give at all
    few = f"; {len(mine)} pairs cannot give less than {least:.2g}" if least > _LEVEL else ""
    means = f"{spread(theirs)[0]:.1f} → {spread(mine)[0]:.1f} ({result.difference:+.1f})"
    said = f"{means}, p = {result.p_value:.2g} ({result.test}{few})"
    holds = None if few else result.p_value < _LEVEL and result.difference > 0
    return Claim(what, paper, said, holds)


def some_methods(*names: str) -> Cells:
    """Some of the methods.

    >>> list(some_methods("MS", "EPS + MS"))
    ['MS', 'EPS + MS']
    """
    return {name: METHODS[name] for name in names}
