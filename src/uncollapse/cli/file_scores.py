"""The figures of a file of embeddings: rows against each other, or queries against a gallery."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse._base.check import InputError, check_choice
from uncollapse._base.files import write_json
from uncollapse.cli.file_options import is_cosine
from uncollapse.cli.file_sides import (
    Question,
    Side,
    fine_classes,
    id_numbers,
    queries_and_gallery,
)
from uncollapse.cli.plain_lines import say
from uncollapse.cli.rerank_options import said as in_words
from uncollapse.cli.score_tables import ScoreLine, line_table, pair_table
from uncollapse.data.sources import Embeddings
from uncollapse.metrics import (
    ReidResult,
    ReRanking,
    RetrievalResult,
    clustering,
    confidence,
    reid,
    retrieval,
)
from uncollapse.metrics.re_identification import searching_rows

__all__ = ["evaluate_file"]

_CLUSTERED = 10_000  # rows that NMI is of unless it is asked for: k-means of more takes minutes
_TITLES = {"mAP": "mAP", "map@r": "MAP@R", "r_precision": "R-precision", "mrr": "MRR"}


def evaluate_file(
    path: Path,
    found: Embeddings,
    finer: Array | None,
    gallery_path: Path | None,
    other: Embeddings | None,
    asked: Question,
    json: Path | None,
) -> None:
    """Score, print one table, and write the figures to `json` if that is given."""
    from rich.console import Console

    cosine = is_cosine(asked.metric)
    check_choice("--intervals", asked.intervals, ("queries", "classes"))
    ks = _ranks(asked.ks)
    queries, gallery, left_out = queries_and_gallery(path, found, finer, gallery_path, other, asked)
    if asked.rerank is not None and (asked.cameras is None or gallery is None):
        given = "no column of cameras" if asked.cameras is None else "each row against all others"
        allowed = "--cameras beside it, and a gallery: --gallery FILE or --split-column COLUMN"
        raise InputError("--rerank", given, allowed)
    lines: list[ScoreLine] = []
    reranked: list[ScoreLine] = []
    console = Console()
    if asked.cameras is None:
        lines += _retrieved(queries, gallery, ks, cosine, asked)
        heading = ""
    else:
        lines, heading = _identified(queries, gallery, ks, cosine, asked)
    if asked.rerank is not None:
        reranked, _ = _identified(queries, gallery, ks, cosine, asked, asked.rerank)
    compared = len(reranked)  # of the figures so far each has its pair
    wanted = gallery is None and asked.cameras is None
    if asked.clustering or asked.multiplier > 1 or (wanted if asked.clustering is None else False):
        with console.status("clustering"):
            lines += _clustered(queries, gallery, cosine, asked)
    against = "each row against all others"
    if gallery is not None:
        against = f"{len(queries):,} queries against {len(gallery):,} rows"
        against += f" of {gallery_path.name}" if gallery_path is not None else ""
    size = f"{len(found):,} rows x {found.points.shape[1]}"
    said = [f"{path.name}: {size}; {against}, {asked.metric}", heading, left_out]
    say(console, "; ".join(part for part in said if part))
    if asked.rerank is not None:
        say(console, in_words(asked.rerank))
        console.print(pair_table(lines[:compared], reranked))
    if lines[compared:]:
        console.print(line_table(lines[compared:]))
    unit = "queries" if asked.intervals == "queries" else "whole classes"
    say(console, f"Intervals: bootstrap over {unit}. Ties count as wrong.")
    if json is not None:
        write_json(
            json,
            {
                "file": str(path),
                "gallery": None if gallery_path is None else str(gallery_path),
                "rows": len(found),
                "dim": found.points.shape[1],
                "queries": len(queries),
                "gallery_rows": len(gallery if gallery is not None else queries),
                "metric": asked.metric,
                "intervals": asked.intervals,
                **({"rerank": asdict(asked.rerank)} if asked.rerank else {}),
                "figures": [line.to_dict() for line in [*lines, *reranked]],
            },
        )
        say(console, f"wrote {json}")


def _retrieved(
    queries: Side, gallery: Side | None, ks: Sequence[int], cosine: bool, asked: Question
) -> list[ScoreLine]:
    rows = _drawn(len(queries), asked.max_rows)
    kinds = {"label": (queries.labels, None if gallery is None else gallery.labels)}
    if queries.fine_labels is not None and (gallery is None or gallery.fine_labels is not None):
        kinds["fine label"] = fine_classes(queries, gallery)
    lines: list[ScoreLine] = []
    for by, (mine, theirs) in kinds.items():
        if gallery is None:
            result = retrieval(
                queries.points, mine, rows=rows, ks=ks, full_map=True, normalize=cosine
            )
        else:
            result = retrieval(
                queries.points[rows], mine[rows], gallery.points, theirs,
                ks=ks, full_map=True, normalize=cosine,
            )  # fmt: skip
        over = _over(result, len(queries))
        titles = {f"recall@{k}": f"R@{k}" for k in result.recall} | _TITLES
        lines += _with_intervals(result, titles, mine[rows], over, by, asked)
    return lines


def _identified(
    queries: Side,
    gallery: Side | None,
    ks: Sequence[int],
    cosine: bool,
    asked: Question,
    rerank: ReRanking | None = None,
) -> tuple[list[ScoreLine], str]:
    """The Market-1501 protocol; a gallery of the queries themselves leaves out each one itself.

    The names of figures that are re-ranked begin with `reranked/`.
    """
    searched = queries if gallery is None else gallery
    ids, there = (id_numbers(side.labels) for side in (queries, searched))
    people = searching_rows(ids)
    if not len(people):
        raise InputError("labels", "-1 and 0 (junk, distractors) only", "ids of persons")
    rows = people[_drawn(len(people), asked.max_rows)]
    result = reid(
        queries.points[rows], ids[rows], queries.cameras[rows],
        searched.points, there, searched.cameras, ks=ks, normalize=cosine, rerank=rerank,
    )  # fmt: skip
    over = _over(result, len(people))
    titles = {"mAP": "mAP"} | {f"cmc@{k}": f"CMC@{k}" for k in result.cmc} | {"mINP": "mINP"}
    strangers = int((there == 0).sum()) if there.dtype.kind in "iu" else 0
    said = [f"{result.junk:,} junk rows (-1) left out"] * bool(result.junk)
    said += [f"{strangers:,} distractors (0)"] * bool(strangers)
    lines = _with_intervals(result, titles, ids[rows], over, "label", asked)
    if rerank is not None:
        lines = [replace(line, name=f"reranked/{line.name}") for line in lines]
    return lines, "; ".join(["same id and camera left out", *said])


def _clustered(
    queries: Side, gallery: Side | None, cosine: bool, asked: Question
) -> list[ScoreLine]:
    sides = [queries] if gallery is None else [queries, gallery]
    x = np.concatenate([side.points for side in sides])
    kinds = {"label": np.concatenate([side.labels.astype(str) for side in sides])}
    if all(side.fine_labels is not None for side in sides) and asked.cameras is None:
        mine, theirs = fine_classes(queries, gallery)
        kinds["fine label"] = np.concatenate([mine] if theirs is None else [mine, theirs])
    if asked.cameras is not None:  # junk and distractors are no class
        ids = np.concatenate([id_numbers(side.labels) for side in sides]).astype(str)
        kept = (ids != "-1") & (ids != "0")
        x, kinds = x[kept], {by: values[kept] for by, values in kinds.items()}
    most = asked.max_rows if asked.clustering else min(_CLUSTERED, asked.max_rows)
    rows = _drawn(len(x), most)
    over = f"{len(rows):,} rows" if len(rows) == len(x) else f"{len(rows):,} of {len(x):,} rows"
    lines = []
    for by, values in kinds.items():
        classes = len(np.unique(values[rows]))
        times = {"nmi": 1} | ({"nmi+": asked.multiplier} if asked.multiplier > 1 else {})
        for name, many in times.items():
            # With a cluster for each sample any embedding would look alike.
            many = min(many, max(1, len(rows) // (2 * classes)))
            found = clustering(x[rows], values[rows], multiplier=many, normalize=cosine)
            where = f"{over}, {found.clusters:,} clusters"
            lines.append(ScoreLine(name, name.upper(), found.nmi, where, by=by))
    return lines


def _with_intervals(
    result: RetrievalResult | ReidResult,
    titles: dict[str, str],
    labels: Array,
    over: str,
    by: str,
    asked: Question,
) -> list[ScoreLine]:
    if result.queries == result.queries_without_match:
        return [ScoreLine(name, title, None, over, by=by) for name, title in titles.items()]
    groups = labels if asked.intervals == "classes" else None
    return [
        ScoreLine.between(name, title, confidence(result, name, groups=groups), over, by)
        for name, title in titles.items()
    ]


def _over(result: RetrievalResult | ReidResult, asked: int) -> str:
    """How many queries a mean is over: drawn from more, or some of them without a match."""
    over = f"{result.queries:,} queries"
    if result.queries < asked:
        over = f"{result.queries:,} of {asked:,} queries"
    lost = result.queries_without_match
    return over if not lost else f"{over}, less {lost:,} without a match"


def _drawn(count: int, most: int) -> Array:
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, most, replace=False))


def _ranks(ks: Sequence[str] | None) -> tuple[int, ...]:
    words = [word for one in ks or ["1,5,10"] for word in one.replace(",", " ").split()]
    if not words or not all(word.isdecimal() and int(word) > 0 for word in words):
        raise InputError("-k", ", ".join(words) or "nothing", "whole numbers, such as 1,5,10")
    return tuple(sorted({int(word) for word in words}))
