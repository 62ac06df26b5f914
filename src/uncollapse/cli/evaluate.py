"""`uncollapse evaluate`: how good a run's embedding is, or that of any file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from uncollapse._base.check import InputError, check_choice, check_int, check_number
from uncollapse._base.files import write_json
from uncollapse.cli.embed import open_network
from uncollapse.cli.options import (
    EMBED_FIRST,
    Columns,
    MetricOption,
    RunOptions,
    grouped,
    is_run,
    normalizes,
    only_for,
    open_file,
)
from uncollapse.cli.printing import (
    ScoreLine,
    line_table,
    say,
    show,
    split_tables,
    status,
    warn,
    warn_of_skipped,
)

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array
    from uncollapse.data.sources import Source
    from uncollapse.metrics import ReidResult, ReRanking, RetrievalResult
    from uncollapse.training import Config, Run
    from uncollapse.training.sections import EvaluateConfig

__all__ = ["evaluate_command"]

_RUN, _FILE = "For a run directory", "For a file of embeddings"
_CLUSTERED = 10_000  # rows that NMI is of unless it is asked for: k-means of more takes minutes
_TITLES = {"mAP": "mAP", "map@r": "MAP@R", "r_precision": "R-precision", "mrr": "MRR"}


@grouped
def evaluate_command(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|FILE",
            help="A run directory; or embeddings: .npz, .npy, .safetensors, .parquet or .csv.",
        ),
    ],
    columns: Columns,
    options: RunOptions,
    clusters: Annotated[
        int | None,
        typer.Option(
            help="Also compute NMI of k-means: 1 with as many clusters as classes, 10 also with "
            "ten times as many (NMI+ of the EPS paper), 0 not at all.  \\[default: 1 for a file "
            "searched in itself]",
            min=0,
        ),
    ] = None,
    rerank: Annotated[
        str | None,
        typer.Option(
            metavar="K1,K2,LAMBDA",
            help="Also show the figures after k-reciprocal re-ranking; usual are 20,6,0.3.",
        ),
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(help="Splits to evaluate.  \\[default: the config's]", rich_help_panel=_RUN),
    ] = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Measure the run for reports, if it has no measures.",
            rich_help_panel=_RUN,
        ),
    ] = False,
    queries: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN=VALUE",
            help="The rows that search, such as split=query.  \\[default: all]",
            rich_help_panel=_FILE,
        ),
    ] = None,
    gallery: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|COLUMN=VALUE",
            help="The rows searched in.  \\[default: each row searches all others]",
            rich_help_panel=_FILE,
        ),
    ] = None,
    cameras: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The cameras: use the Market-1501 re-identification protocol.",
            rich_help_panel=_FILE,
        ),
    ] = None,
    metric: MetricOption = "euclidean",
    k: Annotated[
        str, typer.Option("-k", metavar="RANKS", help="Ranks to report.", rich_help_panel=_FILE)
    ] = "1,2,4,8",
    intervals: Annotated[
        str,
        typer.Option(
            metavar="queries|classes",
            help="What the bootstrap resamples: queries, or whole classes (wider).",
            rich_help_panel=_FILE,
        ),
    ] = "queries",
    max_rows: Annotated[
        int,
        typer.Option(
            help="Score at most this many queries and cluster at most this many rows, sampled from "
            "more. The gallery is searched whole.",
            min=8,
            rich_help_panel=_FILE,
        ),
    ] = 30_000,
    json: Annotated[
        Path | None, typer.Option(help="Write the figures to this file.", rich_help_panel=_FILE)
    ] = None,
) -> None:
    """Evaluate a run on any split, or a file of embeddings, by coarse and fine labels.

    A file: R@k, mAP, MAP@R, R-precision and NMI; with --cameras mAP, CMC and mINP. The queries of a
    run's dataset that has a gallery with cameras: R@k (CMC), mAP and mINP, as Market-1501 has it.
    Pairs of a run's dataset (lfw's, or data.pairs): accuracy over folds, AUC, EER and TAR at FAR.
    """
    re_ranking = None if rerank is None else _re_ranking(rerank)
    if is_run(source):
        of_files = {"queries": queries, "gallery": gallery, "cameras": cameras, "json": json}
        only_for("files of embeddings", EMBED_FIRST, columns, **of_files)
        _evaluate_run(source, split, options, clusters or 0, measure, re_ranking)
        return
    instead = f"{source.name} is a file; --queries COLUMN=VALUE chooses rows of it"
    only_for("runs", instead, options, split=split, measure=measure)
    check_choice("--intervals", intervals, ("queries", "classes"))
    question = _Question(
        cameras, normalizes(metric), _ranks(k), intervals == "classes", max_rows, clusters
    )
    sides = _open_sides(source, columns, queries, gallery, cameras)
    lines = _score_file(sides, question, re_ranking)
    _show_file(sides, lines, metric, intervals, re_ranking)
    if json is not None:
        write_json(json, _as_json(source, sides, lines, metric, intervals, re_ranking))
        say(f"wrote {json}")


# A file.


@dataclass(frozen=True)
class _Question:
    """What is asked of a file."""

    cameras: str | None
    normalize: bool
    ks: tuple[int, ...]
    by_class: bool
    max_rows: int
    clusters: int | None


@dataclass(frozen=True)
class _Sides:
    """Queries, the gallery (None: the queries), and which rows are neither, in words."""

    queries: Source
    gallery: Source | None
    size: str
    left_out: str = ""

    @property
    def searched(self) -> Source:
        return self.queries if self.gallery is None else self.gallery

    @property
    def both(self) -> list[Source]:
        return [self.queries] if self.gallery is None else [self.queries, self.gallery]


def _open_sides(
    path: Path, columns: Columns, queries: str | None, gallery: str | None, cameras: str | None
) -> _Sides:
    """Which rows of one file or two search, and which are searched."""
    gallery_file = None
    if gallery is not None and ("=" not in gallery or Path(gallery).exists()):
        gallery_file, gallery = Path(gallery), None
    chosen = {"--queries": queries, "--gallery": gallery}
    parts = {option: _column_value(option, text) for option, text in chosen.items() if text}
    names = {option: column for option, (column, _) in parts.items()}
    whole = open_file(path, columns, names | {"--cameras": cameras})
    whole.need_labels()
    size = f"{len(whole):,} rows x {whole.points.shape[1]}"
    rows = {
        option: _rows_with(whole, option, column, value)
        for option, (column, value) in parts.items()
    }
    asked = whole.select(rows["--queries"]) if queries else whole
    if gallery_file is not None:
        if columns.fine_labels is not None:
            raise InputError.conflict(
                "--fine-labels cannot be used with a gallery file: give both files a column "
                "fine_labels"
            )
        other = open_file(gallery_file, replace(columns, labels=None), {"--cameras": cameras})
        other.need_labels()
        dim, wanted = other.points.shape[1], whole.points.shape[1]
        if dim != wanted:
            allowed = f"a file of {wanted} dimensions, as {path.name} has"
            raise InputError("--gallery", f"{gallery_file.name} with {dim}", allowed)
        return _Sides(asked, other, size)
    if not parts:
        return _Sides(whole, None, size)
    if gallery is None or gallery == queries:
        spare = len(whole) - len(asked)
        return _Sides(asked, None, size, f"{spare:,} other rows left out" if spare else "")
    spare = len(whole) - len(np.union1d(*rows.values())) if queries else 0
    left_out = f"{spare:,} rows are neither" if spare else ""
    return _Sides(asked, whole.select(rows["--gallery"]), size, left_out)


def _column_value(option: str, text: str) -> tuple[str, str]:
    column, equals, value = text.partition("=")
    if not equals:
        raise InputError(option, text, "COLUMN=VALUE, such as split=query")
    return column, value


def _rows_with(source: Source, option: str, column: str, value: str) -> Array:
    words = source.columns[column].astype(str)
    rows = np.flatnonzero(words == value)
    if not len(rows):
        values, counts = np.unique(words, return_counts=True)
        pairs = list(zip(values.tolist(), counts, strict=True))[:8]
        there = ", ".join(f"{word!r} ({count:,} rows)" for word, count in pairs)
        allowed = f"a value of column {column!r} of {source.title}: {there}"
        raise InputError(option, repr(value), allowed)
    return rows


def _score_file(sides: _Sides, question: _Question, rerank: ReRanking | None) -> list[ScoreLine]:
    if rerank is not None and (question.cameras is None or sides.gallery is None):
        raise InputError.conflict("--rerank needs --cameras and --gallery")
    if question.cameras is None:
        lines = _retrieved(sides, question)
    else:
        lines = _identified(sides, question)
        if rerank is not None:
            lines += _identified(sides, question, rerank)
    alone = sides.gallery is None and question.cameras is None
    if question.clusters or (alone and question.clusters is None):
        with status("clustering"):
            lines += _clustered(sides, question)
    return lines


def _retrieved(sides: _Sides, question: _Question) -> list[ScoreLine]:
    from uncollapse.metrics import retrieval

    queries, gallery = sides.queries, sides.gallery
    rows = _sample(len(queries), question.max_rows)
    settings: dict[str, Any] = {
        "ks": question.ks,
        "full_map": True,
        "normalize": question.normalize,
    }
    lines: list[ScoreLine] = []
    for by, labels in _kinds_of_labels(sides).items():
        own = labels[: len(queries)]
        if gallery is None:
            result = retrieval(queries.points, own, rows=rows, **settings)
        else:
            others = labels[len(queries) :]
            points = queries.points[rows]
            result = retrieval(points, own[rows], gallery.points, others, **settings)
        titles = {f"recall@{k}": f"R@{k}" for k in result.recall} | _TITLES
        lines += _with_intervals(result, titles, own[rows], len(queries), by, question)
    return lines


def _identified(
    sides: _Sides, question: _Question, rerank: ReRanking | None = None
) -> list[ScoreLine]:
    """The Market-1501 protocol; a gallery of the queries themselves leaves out each one itself."""
    from uncollapse.metrics import reid
    from uncollapse.metrics.re_identification import searching_rows

    queries, searched = sides.queries, sides.searched
    ids, others = _identities(queries), _identities(searched)
    people = searching_rows(ids)
    if not len(people):
        raise InputError("labels", "-1 and 0 (junk, distractors) only", "ids of persons")
    rows = people[_sample(len(people), question.max_rows)]
    cameras, other_cameras = (one.columns[str(question.cameras)] for one in (queries, searched))
    result = reid(
        queries.points[rows],
        ids[rows],
        cameras[rows],
        searched.points,
        others,
        other_cameras,
        ks=question.ks,
        normalize=question.normalize,
        rerank=rerank,
    )
    titles = {"mAP": "mAP"} | {f"cmc@{k}": f"CMC@{k}" for k in result.cmc} | {"mINP": "mINP"}
    lines = _with_intervals(result, titles, ids[rows], len(people), "label", question)
    if rerank is None:
        return lines
    return [replace(line, name=f"reranked/{line.name}", by="re-ranked") for line in lines]


def _clustered(sides: _Sides, question: _Question) -> list[ScoreLine]:
    from uncollapse.metrics import clustering

    points, kinds = np.concatenate([side.points for side in sides.both]), _kinds_of_labels(sides)
    if question.cameras is not None:  # junk and distractors are no class
        ids = np.concatenate([_identities(side) for side in sides.both]).astype(str)
        people = (ids != "-1") & (ids != "0")
        points, kinds = points[people], {"label": kinds["label"][people]}
    most = question.max_rows if question.clusters else min(_CLUSTERED, question.max_rows)
    rows = _sample(len(points), most)
    of = "" if len(rows) == len(points) else f" of {len(points):,}"
    lines = []
    for by, labels in kinds.items():
        classes = len(np.unique(labels[rows]))
        for name, times in {"nmi": 1, "nmi+": question.clusters or 1}.items():
            if name == "nmi+" and times == 1:
                continue
            # With one cluster per sample any embedding would look alike.
            times = min(times, max(1, len(rows) // (2 * classes)))
            found = clustering(
                points[rows], labels[rows], multiplier=times, normalize=question.normalize
            )
            over = f"{len(rows):,}{of} rows, {found.clusters:,} clusters"
            lines.append(ScoreLine(name, name.upper(), found.nmi, over, by=by))
    return lines


def _kinds_of_labels(sides: _Sides) -> dict[str, Array]:
    """Labels of queries and gallery; fine ones as numbers, for they name a class inside a label."""
    from uncollapse._base.arrays import class_ids

    both = {"label": _joined([side.need_labels() for side in sides.both])}
    fine = [side.fine_labels for side in sides.both if side.fine_labels is not None]
    if len(fine) == len(sides.both):
        coarse, finer = (class_ids(labels, None)[0] for labels in (both["label"], _joined(fine)))
        both["fine label"] = coarse * (finer.max() + 1) + finer
    return both


def _joined(labels: list[Array]) -> Array:
    """Labels of both sides; as words, where one of them has words."""
    if len({values.dtype.kind in "iu" for values in labels}) > 1:
        labels = [values.astype(str) for values in labels]
    return np.concatenate(labels)


def _identities(source: Source) -> Array:
    """Ids as numbers where all are written as such (0002, -1), which junk and distractors need."""
    labels = source.need_labels()
    if labels.dtype.kind != "U" or not all(v.removeprefix("-").isdecimal() for v in labels):
        return labels
    return labels.astype(np.int64)


def _with_intervals(
    result: RetrievalResult | ReidResult,
    titles: dict[str, str],
    labels: Array,
    total: int,
    by: str,
    question: _Question,
) -> list[ScoreLine]:
    """The figures, and how many queries they are over: drawn from more, or without a match."""
    from uncollapse.metrics import confidence

    drawn = f" of {total:,}" if result.queries < total else ""
    over, lost = f"{result.queries:,}{drawn} queries", result.queries_without_match
    over += f", less {lost:,} without a match" if lost else ""
    if result.queries == lost:
        return [ScoreLine(name, title, None, over, by=by) for name, title in titles.items()]
    groups = labels if question.by_class else None
    return [
        ScoreLine.between(name, title, confidence(result, name, groups=groups), over, by)
        for name, title in titles.items()
    ]


def _sample(count: int, most: int) -> Array:
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, most, replace=False))


def _show_file(
    sides: _Sides,
    lines: list[ScoreLine],
    metric: str,
    intervals: str,
    rerank: ReRanking | None,
) -> None:
    against = "each row against all others"
    if sides.gallery is not None:
        against = f"{len(sides.queries):,} queries against {len(sides.gallery):,} rows"
        if sides.gallery.title != sides.queries.title:
            against += f" of {sides.gallery.title}"
    about = [f"{sides.queries.title}: {sides.size}; {against}, {metric}"]
    if any(line.name == "mINP" for line in lines):
        ids = _identities(sides.searched)
        junk, distractors = (int((ids.astype(str) == word).sum()) for word in ("-1", "0"))
        about.append("same id and camera left out")
        about += [f"{junk:,} junk rows (-1) left out"] * bool(junk)
        about += [f"{distractors:,} distractors (0)"] * bool(distractors)
    say("; ".join([*about, *[sides.left_out] * bool(sides.left_out)]))
    if rerank is not None:
        say(_described(rerank))
    show(line_table(lines))
    unit = "queries" if intervals == "queries" else "whole classes"
    say(f"Intervals: bootstrap over {unit}. Ties count as wrong.")


def _as_json(
    path: Path,
    sides: _Sides,
    lines: list[ScoreLine],
    metric: str,
    intervals: str,
    rerank: ReRanking | None,
) -> dict[str, object]:
    return {
        "file": str(path),
        "gallery": None if sides.gallery is None else sides.gallery.title,
        "dim": sides.queries.points.shape[1],
        "queries": len(sides.queries),
        "gallery_rows": len(sides.searched),
        "metric": metric,
        "intervals": intervals,
        **({} if rerank is None else {"rerank": asdict(rerank)}),
        "figures": [line.to_dict() for line in lines],
    }


def _ranks(text: str) -> tuple[int, ...]:
    words = text.replace(",", " ").split()
    if not words or not all(word.isdecimal() and int(word) > 0 for word in words):
        raise InputError("-k", repr(text), "whole numbers, such as 1,5,10")
    return tuple(sorted({int(word) for word in words}))


def _re_ranking(text: str) -> ReRanking:
    from uncollapse.metrics import ReRanking

    try:
        k1, k2, weight = text.split(",")
        numbers = int(k1), int(k2), float(weight)
    except ValueError:
        allowed = "k1, k2 and lambda, such as 20,6,0.3"
        raise InputError("--rerank", repr(text), allowed) from None
    check_int("--rerank K1", numbers[0])
    check_int("--rerank K2", numbers[1])
    check_number("--rerank LAMBDA", numbers[2], 0.0, 1.0)
    return ReRanking(*numbers)


def _described(rerank: ReRanking) -> str:
    numbers = f"k1 = {rerank.k1}, k2 = {rerank.k2}, λ = {rerank.lambda_value:g}"
    return f"re-ranked by k-reciprocal neighbours: {numbers}"


# A run.


def _evaluate_run(
    path: Path,
    splits: list[str] | None,
    options: RunOptions,
    clusters: int,
    measure: bool,
    rerank: ReRanking | None,
) -> None:
    from uncollapse import training
    from uncollapse.training.assemble import load_eval_data
    from uncollapse.training.evaluation import evaluate_splits, find_checks, find_searches
    from uncollapse.training.run import ends_below

    run = training.Run.open(path, trust=options.trust)
    if measure:
        with status("measuring the network before and after training"):
            training.measure_run(run, data_root=options.data_root, warn=warn)
    config = run.config.with_root(options.data_root)
    if config.train.keep_memory:
        training.keep_memory()
    changes = {"clustering": clusters > 0, "multiplier": max(1, clusters), "reid_share": 1.0}
    settings = config.evaluate.model_copy(update=changes)
    network = open_network(path, options)
    scores: dict[str, float] = {}
    notes: list[str] = []
    for name in splits or config.data.eval_splits:
        data = load_eval_data(config, name)
        warn_of_skipped(data, name)
        searches, unsearched = find_searches(config, {name: data})
        checks, unchecked = find_checks(config, {name: data}, searches)
        for text in [*unsearched, *unchecked]:
            warn(text)
        if rerank is not None and name not in searches:
            raise InputError.conflict(
                f"--rerank: the split {name!r} has no queries that search a gallery, both with "
                "cameras; choose one that has with --split"
            )
        for search in searches.values():
            warn_of_skipped(search.gallery, "gallery")
            notes.append(f"{name}: {search.describe(settings)}")
        notes += [f"{name}: {check.describe()}" for check in checks.values()]
        with status(f"embedding {len(data):,} samples of {name}"):
            scores |= evaluate_splits(
                network.model,
                {name: data},
                settings,
                searches=searches,
                checks=checks,
                rerank=rerank,
            ).flat()
    start = _scores_before(run, config, settings, scores)
    show(*split_tables(scores, start))
    notes = [*ends_below(start, scores), *notes]
    for line in [*([] if rerank is None else [_described(rerank)]), *notes]:
        say(line)
    say(f"{network.about}: {run.path}")


def _scores_before(
    run: Run, config: Config, settings: EvaluateConfig, scores: Mapping[str, float]
) -> dict[str, float]:
    """What the network before training had of these scores, by the same names.

    Where the run's measures lack one (another split, NMI), the network is built again for it; where
    that cannot be done, a warning says why and the score is left out.
    """
    from uncollapse.data import DataError
    from uncollapse.training import CheckpointError, measurer
    from uncollapse.training.assemble import load_eval_data
    from uncollapse.training.evaluation import evaluate_splits, find_searches
    from uncollapse.training.measures import measures_file
    from uncollapse.training.run import find_damage, start_scores

    damage = [text for text in find_damage(run) if text.startswith(str(measures_file(run.path)))]
    for text in damage:
        warn(f"{text}; the scores before training are made again")
    known = {} if damage else start_scores(run)
    missing = list(dict.fromkeys(key.partition("/")[0] for key in scores if key not in known))
    if missing:
        try:
            with status("embedding with the network before training"):
                network = measurer.start_network(run, config)
                for name in missing:
                    splits = {name: load_eval_data(config, name)}
                    searches, _ = find_searches(config, splits)
                    known |= evaluate_splits(network, splits, settings, searches=searches).flat()
        except (DataError, CheckpointError) as error:
            warn(f"no scores before training of {', '.join(missing)}: {error}")
    return {key: value for key, value in known.items() if key in scores}
