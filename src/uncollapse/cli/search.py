"""`uncollapse search`: the nearest neighbours of images or texts in a run, or of a file's rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

import uncollapse as uc
from uncollapse._base.check import InputError, percent, visible
from uncollapse._base.files import write_csv, write_json
from uncollapse._base.table import Table
from uncollapse.cli import options
from uncollapse.cli.embed import (
    Network,
    Rows,
    is_backbone,
    open_network,
    open_rows,
    unlabelled_texts,
)
from uncollapse.cli.printing import say, say_cost, show

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array
    from uncollapse.metrics.nearest_rows import Neighbours

_ENDINGS = (".png", ".csv", ".json")
_SHOWN = 10  # queries on a terminal; a file has all
_MOST_SHEET = 100  # queries that a contact sheet has room for


@options.grouped
def command(
    source: options.SourceArgument,
    columns: options.Columns,
    run_options: options.RunOptions,
    queries: Annotated[
        list[str] | None,
        typer.Argument(
            help="Image files, texts or files of texts, or row numbers of the split; of a file: "
            "its rows by number or by name, all of them by default.",
            show_default=False,
        ),
    ] = None,
    gallery: Annotated[
        list[Path] | None,
        typer.Option(
            help="What a run's network searches: image files or folders, or files of texts; by "
            "default the split."
        ),
    ] = None,
    like: Annotated[
        Path | None, typer.Option(help="Search a file for the rows of this other file.")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="How many neighbours.", min=1)] = 8,
    out: Annotated[
        Path | None,
        typer.Option(help="Write everything as .csv or .json, or a contact sheet as .png."),
    ] = None,
    images: options.ImagesOption = None,
    metric: options.MetricOption = "euclidean",
) -> None:
    """Find the nearest neighbours of images, texts or a file's rows: a table or a contact sheet.

    In place of a run, texts may be searched with a backbone, sentence:NAME.
    """
    if out is not None and out.suffix not in _ENDINGS:
        raise InputError("--out", out.name, f"a file ending in {', '.join(_ENDINGS)}")
    sheet = out is not None and out.suffix == ".png"
    normalize = options.normalizes(metric)
    if is_backbone(source) or options.is_run(source):
        options.only_for_files(columns, like=like, images=images)
        there, asked, own = _of_network(source, queries or [], gallery, run_options)
    else:
        instead = "name the file to search first, and a file of queries with --like"
        options.only_for("runs", instead, run_options, gallery=gallery)
        if sheet and (images is None or like is not None):
            need = "give --images, the pictures of the file's own rows, and no --like"
            raise InputError.conflict(f"--out {out}: for a .png {need}; or write .csv or .json")
        there = open_rows(source, columns, run_options, images)
        first = there.source
        second = first if like is None else options.open_second("--like", like, columns, first)
        rows = second.find_rows(queries) if queries else np.arange(len(second))
        asked, own = Rows(second.select(rows)), rows if like is None else None
    total = len(asked.source)
    if sheet and there.pictures is None:
        raise InputError("--out", "a .png file", "a .csv or .json file: texts have no pictures")
    if sheet and total > _MOST_SHEET:
        raise InputError("--out", f"{out} of {total:,}", f"at most {_MOST_SHEET} queries")
    hits = _nearest(there, asked, own, k, normalize)
    measure = "cosine" if normalize else "distance"
    entries = _entries(there, asked, hits, measure)
    count = min(_SHOWN, total)
    show(neighbour_table(entries[: count * k], measure))
    line = f"the first {count} of " if count < total else ""
    asking = "query" if total == 1 else "queries"
    line += f"{total:,} {asking if like is None else f'rows of {like.name}'}"
    line += f" among {len(there.source):,} rows of {there.source.title}"
    if "same" in entries[0]:
        share = sum(entry["same"] for entry in entries[::k]) / total
        line += f"; the nearest has the query's label in {percent(share)} of {total:,}"
    line += f"; {there.about}" if there.about else ""
    say(line + ("; --out writes them all" if count < total and out is None else ""))
    if out is not None:
        _write(out, there, asked, own, hits, entries)
        say(f"wrote {out}")


def _of_network(
    name: Path, queries: list[str], gallery: list[Path] | None, run_options: options.RunOptions
) -> tuple[Rows, Rows, Array | None]:
    """The samples of a run's split, or of files, searched for its rows or for other samples."""
    if not queries:
        allowed = "image files, texts, or row numbers of the split"
        raise InputError("queries", "nothing", allowed)
    if is_backbone(name) and not gallery:
        raise InputError("--gallery", "nothing", "a file or dataset of texts to search in")
    network = open_network(name, run_options)
    there = network.rows(*network.load(gallery, run_options))
    if all(query.isdecimal() for query in queries):  # '²' is a digit, but no number
        own = there.source.find_rows(queries)
        return there, Rows(there.source.select(own)), own
    return there, network.rows(_query_samples(network, queries), None), None


def _query_samples(network: Network, queries: list[str]) -> uc.data.LabelledImages:
    """Images of these files; or texts, each query one or a file of them."""
    if not network.on_texts:
        return network.load(queries, options.RunOptions())[0]
    from uncollapse.data.own import TEXT_TABLES, read_texts

    texts: list[str] = []
    for query in queries:
        is_file = query.endswith((".txt", *TEXT_TABLES)) and not any(map(str.isspace, query))
        texts += read_texts(Path(query)) if is_file else [query]
    return unlabelled_texts(texts)


def _nearest(there: Rows, asked: Rows, own: Array | None, k: int, normalize: bool) -> Neighbours:
    import torch

    from uncollapse._base.arrays import points
    from uncollapse.metrics.nearest_rows import nearest

    z, gallery = (points(rows.source.points, rows.source.title) for rows in (asked, there))
    rows = None if own is None else torch.from_numpy(own)
    say_cost(len(z), *gallery.shape)
    return nearest(z, gallery, k, rows, normalize=normalize, progress=None)


def _entries(there: Rows, asked: Rows, hits: Neighbours, measure: str) -> list[dict[str, Any]]:
    """One entry per neighbour, as a file has it: `same` where both labels are known."""
    gallery, queries = there.source, asked.source
    names, query_names, labels = gallery.row_names, queries.row_names, gallery.labels
    shown, fine = labels, gallery.fine_labels
    if labels is not None and fine is not None and labels.dtype.kind == fine.dtype.kind == "U":
        shown = np.array([f"{label} / {finer}" for label, finer in zip(labels, fine, strict=True)])
    entries = []
    for query, neighbours in enumerate(hits.rows.tolist()):
        for rank, row in enumerate(neighbours):
            entry = {"query": query_names[query], "rank": rank + 1}
            entry |= {"row": row, "neighbour": names[row]}
            if shown is not None:
                entry["label"] = shown[row].item()
            if labels is not None and queries.labels is not None:
                entry["same"] = str(labels[row]) == str(queries.labels[query])
            distance = float(hits.distances[query, rank])
            entry[measure] = 1 - distance * distance / 2 if measure == "cosine" else distance
            entries.append(entry)
    return entries


def neighbour_table(entries: list[dict[str, Any]], measure: str) -> Table:
    """Queries, each with its neighbours, nearest first."""
    first = entries[0]
    heads = ["query", "rank", "neighbour", *["label"] * ("label" in first)]
    table = Table([*heads, *[""] * ("same" in first), measure], keys=2)
    for entry in entries:
        cells = [entry["query"] if entry["rank"] == 1 else "", str(entry["rank"])]
        cells += [entry["neighbour"], *([str(entry["label"])] if "label" in entry else [])]
        cells += ["✓" if entry["same"] else "✗"] if "same" in entry else []
        table.add(*map(visible, [*cells, f"{entry[measure]:.4g}"]))
    return table


def _write(
    out: Path, there: Rows, asked: Rows, own: Array | None, hits: Neighbours, entries: list[Any]
) -> None:
    """All of them as .csv or .json, or as a contact sheet of pictures."""
    if out.suffix == ".json":
        write_json(out, entries)
        return
    if out.suffix == ".csv":
        write_csv(out, list(entries[0]), [list(entry.values()) for entry in entries])
        return
    from uncollapse.report.neighbours import contact_sheet, save_png

    of_queries = asked.pictures if own is None else there.pictures
    assert of_queries is not None
    assert there.pictures is not None
    pictures = of_queries(range(len(asked.source)) if own is None else own.tolist())
    same = iter(entry.get("same") for entry in entries)
    right = [[next(same) for _ in row] for row in hits.rows]
    neighbours = [there.pictures(rows) for rows in hits.rows.tolist()]
    save_png(contact_sheet(pictures, neighbours, right), out)
