"""`uncollapse evaluate`: how good a run's embedding is, or that of any file."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

import uncollapse as uc
from uncollapse._base.check import InputError
from uncollapse.cli import options, printing
from uncollapse.cli.embed import open_network
from uncollapse.cli.printing import ScoreLine, say, show, status, warn, write

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array
    from uncollapse.data.sources import Source

_RANKED = ("mAP", "map@r", "r_precision", "mrr")

_of_file = partial(typer.Option, rich_help_panel="For a file of embeddings")


@options.grouped
def command(
    source: options.SourceArgument,
    columns: options.Columns,
    run_options: options.RunOptions,
    clusters: Annotated[
        int | None,
        typer.Option(
            help="NMI of k-means: 1 for as many clusters as classes, 10 also for ten times as many "
            "(NMI+ of the EPS paper), 0 for none.  \\[default: 1 for a file searched in itself]",
            min=0,
        ),
    ] = None,
    rerank: Annotated[
        bool, typer.Option("--rerank", help="Also show the figures after k-reciprocal re-ranking.")
    ] = False,
    gallery: Annotated[
        Path | None,
        _of_file(help="The file to search in.  \\[default: each row searches all others]"),
    ] = None,
    cameras: Annotated[
        str | None,
        _of_file(
            metavar="COLUMN", help="The cameras: use the Market-1501 re-identification protocol."
        ),
    ] = None,
    metric: options.MetricOption = "euclidean",
    k: Annotated[str, _of_file("-k", metavar="RANKS", help="Ranks to report.")] = "1,2,4,8",
    max_rows: options.MaxRowsOption = printing.FEW_ROWS,
    json: options.JsonOption = None,
) -> None:
    """Evaluate a run on any split, or a file of embeddings, by coarse and fine labels.

    A file: R@k, mAP, MAP@R, R-precision and NMI; with --cameras mAP, CMC and mINP. A run whose
    dataset has queries and a gallery with cameras: R@k (CMC), mAP and mINP, as in Market-1501.
    A run whose dataset has pairs (lfw, or data.pairs): also accuracy over folds, AUC, EER and TAR
    at FAR.
    """
    if options.is_run(source):
        options.only_for_files(columns, gallery=gallery, cameras=cameras, json=json)
        _judge_run(source, run_options, clusters or 0, rerank)
        return
    options.only_for("runs", f"{source.name} is a file", run_options)
    if rerank and (cameras is None or gallery is None):
        raise InputError.conflict("--rerank needs --cameras and --gallery")
    settings: dict[str, Any] = {"ks": options.numbers("-k", k)}
    settings["normalize"] = options.normalizes(metric)
    others = {} if cameras is None else {"--cameras": cameras}
    sides = [options.open_file(source, columns, others)]
    if gallery is not None:
        if columns.label_places()[1][0] is not None:
            why = "--gallery: both files need a column of them"
            raise InputError.conflict(f"finer labels in a file of their own do not go with {why}")
        sides.append(options.open_second("--gallery", gallery, columns, sides[0], others))
    labels = _labels(sides)
    clustered = clusters or (clusters is None and gallery is None and cameras is None)
    times = {"clusters": sorted({1, clusters or 1}) if clustered else ()}
    if cameras is None:
        lines = _retrieved(sides, labels, max_rows, settings | times)
    else:
        lines = _identified(sides, cameras, max_rows, settings | times)
        if rerank:
            again = _identified(sides, cameras, max_rows, settings, rerank=uc.metrics.ReRanking())
            lines += [replace(i, name=f"reranked/{i.name}", by="re-ranked") for i in again]
    say(_about(sides, metric, cameras))
    if rerank:
        say(_described(uc.metrics.ReRanking()))
    show(printing.line_table(lines))
    say("Intervals: bootstrap over queries. Ties count as wrong.")
    figures = {
        "file": str(source),
        "gallery": None if gallery is None else gallery.name,
        "dim": sides[0].points.shape[1],
        "queries": len(sides[0]),
        "gallery_rows": len(sides[-1]),
        "metric": metric,
        "figures": [line.to_dict() for line in lines],
    }
    write(json, figures | ({"rerank": asdict(uc.metrics.ReRanking())} if rerank else {}))


def _labels(sides: list[Source]) -> dict[str, Array]:
    """Of queries and gallery; fine ones as numbers, for they name a class inside a label."""
    kinds = {"label": _joined([side.need_labels() for side in sides])}
    fine = [side.fine_labels for side in sides if side.fine_labels is not None]
    if len(fine) == len(sides):
        kinds["fine label"] = uc.metrics.evaluation.fine_classes(kinds["label"], _joined(fine))
    return kinds


def _joined(labels: list[Array]) -> Array:
    """Labels of both sides; as words, where one of them has words."""
    if len({values.dtype.kind in "iu" for values in labels}) > 1:
        labels = [values.astype(str) for values in labels]
    return np.concatenate(labels)


def _retrieved(
    sides: list[Source], labels: dict[str, Array], max_rows: int, settings: dict[str, Any]
) -> list[ScoreLine]:
    queries, lines = sides[0], []
    for by, every in labels.items():
        own, others = every[: len(queries)], every[len(queries) :]
        gallery = (sides[1].points, others) if len(sides) > 1 else ()
        scores = uc.metrics.evaluate_rows(
            queries.points, own, *gallery, max_rows=max_rows, full_map=True, **settings
        )
        names = [name for name in scores.values if name in _RANKED or name.startswith("recall@")]
        lines += _lines(scores, names, len(queries), by)
        if missing := [printing.title(name) for name in _RANKED if name not in scores.values]:
            fewer = "they rank every match of every query; a lower --max-rows has them"
            say(f"left out by {by}: {', '.join(missing)}: {fewer}")
    return lines


def _identified(
    sides: list[Source], column: str, max_rows: int, settings: dict[str, Any], **others: Any
) -> list[ScoreLine]:
    """The Market-1501 protocol; where rows search each other, no row meets itself."""
    from uncollapse.metrics.re_identification import searching_rows

    queries, gallery = sides[0], sides[-1]
    ids, cameras = _identities(queries), queries.columns[column]
    people = searching_rows(ids)
    if not len(people):
        raise InputError("labels", "-1 and 0 (junk, distractors) only", "ids of persons")
    rows = people[uc.metrics.ranking.sample_queries(len(people), max_rows)]
    settings = settings | others | {"cameras": (cameras[rows], gallery.columns[column])}
    asked, there = (queries.points[rows], ids[rows]), (gallery.points, _identities(gallery))
    scores = uc.metrics.evaluate_rows(*asked, *there, **settings)
    return _lines(scores, list(scores.ranked.per_query), len(people), "label")


def _identities(source: Source) -> Array:
    """Ids as numbers where all are written as such (0002, -1), which junk and distractors need."""
    labels = source.need_labels()
    if labels.dtype.kind != "U" or not all(v.removeprefix("-").isdecimal() for v in labels):
        return labels
    return labels.astype(np.int64)


def _lines(scores: uc.metrics.Scores, names: list[str], total: int, by: str) -> list[ScoreLine]:
    """The figures, and how many queries they are over: drawn from more, or without a match."""
    result = scores.ranked
    lost = result.queries_without_match
    sampled = uc.metrics.evaluation.sample_words(result.queries, total)
    over = sampled + (f", less {lost:,} without a match" if lost else "")
    lines = []
    for name in names:
        interval = None if result.queries == lost else uc.confidence(result, name)
        value = None if interval is None else interval.value
        lines.append(ScoreLine(name, printing.title(name), value, over, interval, by))
    for name, clustered in scores.clustered.items():
        rows = f"{sampled}, {clustered.clusters:,} clusters"
        lines.append(ScoreLine(name, name.upper(), clustered.nmi, rows, by=by))
    return lines


def _about(sides: list[Source], metric: str, cameras: str | None) -> str:
    """What searches what, and which rows are left out."""
    rows, dim = sides[0].points.shape
    about = f"{sides[0].title}: {rows:,} rows x {dim}; each row against all others, {metric}"
    if len(sides) == 2:
        about = f"{sides[0].title}: {rows:,} queries x {dim} against {len(sides[1]):,} rows of "
        about += f"{sides[1].title}, {metric}"
    if cameras is not None:
        ids = _identities(sides[-1]).astype(str)
        junk, distractors = (int((ids == number).sum()) for number in ("-1", "0"))
        about += "; same id and camera left out"
        about += f"; {junk:,} junk rows (-1) left out" if junk else ""
        about += f"; {distractors:,} distractors (0)" if distractors else ""
    return about


def _described(rerank: uc.metrics.ReRanking) -> str:
    numbers = f"k1 = {rerank.k1}, k2 = {rerank.k2}, λ = {rerank.lambda_value:g}"
    return f"re-ranked by k-reciprocal neighbours: {numbers}"


def _judge_run(path: Path, run_options: options.RunOptions, clusters: int, rerank: bool) -> None:
    from uncollapse.training import assemble, evaluation, measures

    run = uc.Run.open(path, trust=run_options.trust)
    config = run.config.with_root(run_options.data_root)
    uc.training.keep_memory()
    changes = {"clustering": clusters > 0, "multiplier": max(1, clusters)}
    settings = config.evaluate.model_copy(update=changes)
    network = open_network(path, run_options)
    names = config.data.eval_splits if run_options.split is None else [run_options.split]
    splits = {name: assemble.load_eval_data(config, name) for name in names}
    judges, warnings = evaluation.find_judges(config, splits)
    searches = {k: v for k, v in judges.items() if isinstance(v, evaluation.GallerySearch)}
    for text in warnings:
        warn(text)
    if rerank and len(searches) < len(splits):
        name = next(name for name in splits if name not in searches)
        raise InputError.conflict(
            f"--rerank: the split {name!r} has no queries that search a gallery, both with "
            "cameras; choose one that has with --split"
        )
    for name, data in [*splits.items(), *(("gallery", s.gallery) for s in searches.values())]:
        printing.warn_of_skipped(data, name)
    re_ranking = uc.metrics.ReRanking() if rerank else None
    with status(f"embedding {sum(map(len, splits.values())):,} samples of {', '.join(splits)}"):
        evaluated = evaluation.evaluate_splits(
            network.model, splits, settings, judges=judges, rerank=re_ranking
        )
    scores = measures.by_split(evaluated.scores)
    start = {key: value for key, value in measures.start_scores(run).items() if key in scores}
    for text in measures.find_damage(run):
        if text.startswith(str(measures.measures_file(run.path))):
            warn(f"{text}; the scores before training are left out")
            start = {}
    show(*printing.split_tables(scores, start))
    notes = measures.ends_below(start, scores)
    notes += [] if re_ranking is None else [_described(re_ranking)]
    notes += [f"{name}: {judge.describe()}" for name, judge in judges.items()]
    for line in [*notes, f"{network.about}: {run.path}"]:
        say(line)
