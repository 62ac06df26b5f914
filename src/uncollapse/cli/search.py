"""`uncollapse search`: the nearest neighbours of images or texts in a run, or of a file's rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from uncollapse._base.check import InputError, visible
from uncollapse._base.table import Table
from uncollapse.cli import options
from uncollapse.cli.embed import (
    embed_samples,
    is_backbone,
    load_samples,
    open_network,
    unlabelled_texts,
)
from uncollapse.cli.printing import say, show, status

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array
    from uncollapse.cli.embed import Network
    from uncollapse.data import LabelledImages
    from uncollapse.data.sources import Source
    from uncollapse.metrics.nearest_rows import Neighbours

_ENDINGS = (".png", ".csv", ".json")
_SHOWN = 10  # queries on a terminal; a file has all
_MOST_SHEET = 100  # queries that a contact sheet has room for


@dataclass(frozen=True)
class _Search:
    """What is searched and for what; `rows` are the queries' own in the gallery, if they have any.

    `about` is a line about the network. `pictures` gives those of some rows of the gallery,
    `query_pictures` those of the queries.
    """

    gallery: Source
    queries: Source
    rows: Array | None
    about: str = ""
    pictures: Callable[[list[int]], Sequence[Any]] | None = None
    query_pictures: Callable[[], Sequence[Any]] | None = None


@options.grouped
def search_command(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|FILE",
            help="A run directory or a file of embeddings; or a backbone for texts, sentence:NAME.",
        ),
    ],
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
    split: options.SplitOption = None,
    k: Annotated[int, typer.Option("-k", help="How many neighbours.", min=1)] = 8,
    out: Annotated[
        Path | None,
        typer.Option(help="Write everything as .csv or .json, or a contact sheet as .png."),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(
            help="Images of a file, for a .png: an .npy array, or the folder that contains them."
        ),
    ] = None,
    metric: options.MetricOption = "euclidean",
) -> None:
    """Find the nearest neighbours of images, texts or a file's rows: a table or a contact sheet."""
    if out is not None and out.suffix not in _ENDINGS:
        raise InputError("--out", out.name, f"a file ending in {', '.join(_ENDINGS)}")
    sheet = out is not None and out.suffix == ".png"
    normalize = options.normalizes(metric)
    if is_backbone(source) or options.is_run(source):
        options.only_for_files(columns, like=like, images=images)
        search = _of_network(source, queries or [], gallery, split, run_options, sheet)
    else:
        instead = "name the file to search first, and a file of queries with --like"
        options.only_for("runs", instead, run_options, gallery=gallery, split=split)
        if sheet and (images is None or like is not None):
            need = "give --images, the pictures of the file's own rows, and no --like"
            raise InputError.conflict(f"--out {out}: for a .png {need}; or write .csv or .json")
        search = _of_file(source, queries or [], like, columns, images if sheet else None)
    if sheet and len(search.queries) > _MOST_SHEET:
        given = f"{out} of {len(search.queries):,}"
        raise InputError("--out", given, f"at most {_MOST_SHEET} queries for a .png")
    hits = _nearest(search, k, normalize)
    measure = "cosine" if normalize else "distance"
    entries = _entries(search, hits, measure)
    count = min(_SHOWN, len(search.queries))
    show(neighbour_table(entries[: count * k], measure))
    say(_summary(search, entries, count, k, out))
    if out is not None:
        say(f"wrote {_write(out, search, hits, entries, k)}")


def _of_network(
    name: Path,
    queries: list[str],
    gallery: list[Path] | None,
    split: str | None,
    run_options: options.RunOptions,
    sheet: bool,
) -> _Search:
    """The samples of a run's split, or of files, searched for its rows or for other samples."""
    if not queries:
        allowed = "image files, texts, or row numbers of the split"
        raise InputError("queries", "nothing", allowed)
    if is_backbone(name) and not gallery:
        raise InputError("--gallery", "nothing", "a file or dataset of texts to search in")
    network = open_network(name, run_options)
    if sheet and network.on_texts:
        raise InputError("--out", "a .png file", "a .csv or .json file: texts have no pictures")
    data, name_of_split = load_samples(network, gallery, split, run_options.data_root)
    with status(f"embedding {len(data):,} samples"):
        source = embed_samples(network, data, name_of_split)
        if all(query.isdecimal() for query in queries):  # '²' is a digit, but no number
            rows = source.find_rows(queries)
            asked, samples = source.select(rows), data.subset(rows)
        else:
            rows = None
            samples = _query_samples(network, queries)
            asked = embed_samples(network, samples, None)
    labels = source.labels
    if labels is not None and data.class_names and not data.holds_texts:
        names = np.array([data.class_names.get(label, str(label)) for label in labels.tolist()])
        source = replace(source, labels=names)
        asked = asked if rows is None else replace(asked, labels=names[rows])
    return _Search(
        source,
        asked,
        rows,
        network.about,
        lambda some: list(data.pixels(some)),
        lambda: list(samples.pixels()),
    )


def _query_samples(network: Network, queries: list[str]) -> LabelledImages:
    """Images of these files; or texts, each query one or a file of them."""
    if not network.on_texts:
        return load_samples(network, queries, None, None)[0]
    from uncollapse.data.own import TEXT_TABLES, read_texts

    texts: list[str] = []
    for query in queries:
        is_file = query.endswith((".txt", *TEXT_TABLES)) and not any(map(str.isspace, query))
        texts += read_texts(Path(query)) if is_file else [query]
    return unlabelled_texts(texts)


def _of_file(
    file: Path, queries: list[str], like: Path | None, columns: options.Columns, images: Path | None
) -> _Search:
    """The rows of a file searched for some of themselves, or for those of another file."""
    source = options.open_file(file, columns)
    other = (
        source
        if like is None
        else options.open_file(like, replace(columns, labels=None, fine_labels=None))
    )
    dim, wanted = other.points.shape[1], source.points.shape[1]
    if dim != wanted:
        given = f"{other.title} with {dim}"
        raise InputError("--like", given, f"a file of {wanted} dimensions")
    rows = other.find_rows(queries) if queries else np.arange(len(other))
    if images is None:
        return _Search(source, other.select(rows), rows if like is None else None)
    pictures = source.find_pictures(images)

    def of_rows(some: list[int]) -> list[Any]:
        return [pictures[row] for row in some]

    asked = other.select(rows)
    return _Search(source, asked, rows, "", of_rows, lambda: of_rows(rows.tolist()))


def _nearest(search: _Search, k: int, normalize: bool) -> Neighbours:
    import torch
    from torch.nn.functional import normalize as unit

    from uncollapse.metrics.nearest_rows import nearest

    z, gallery = (torch.from_numpy(one.points) for one in (search.queries, search.gallery))
    if normalize:
        z, gallery = unit(z, eps=1e-300), unit(gallery, eps=1e-300)
    own = None if search.rows is None else torch.from_numpy(search.rows)
    return nearest(z, gallery, k, own, progress=None)


def _entries(search: _Search, hits: Neighbours, measure: str) -> list[dict[str, Any]]:
    """One entry per neighbour, as a file has it: `same` where both labels are known."""
    gallery, queries = search.gallery, search.queries
    names, asked, labels = gallery.row_names, queries.row_names, gallery.labels
    shown, fine = labels, gallery.fine_labels
    if labels is not None and fine is not None and labels.dtype.kind == fine.dtype.kind == "U":
        shown = np.array([f"{label} / {finer}" for label, finer in zip(labels, fine, strict=True)])
    entries = []
    for query, row_of_hits in enumerate(hits.rows.tolist()):
        for rank, row in enumerate(row_of_hits):
            entry = {"query": asked[query], "rank": rank + 1, "row": row, "neighbour": names[row]}
            if shown is not None:
                entry["label"] = shown[row].item()
            if labels is not None and queries.labels is not None:
                entry["same"] = str(labels[row]) == str(queries.labels[query])
            distance = float(hits.distances[query, rank])
            entry[measure] = 1 - distance * distance / 2 if measure == "cosine" else distance
            entries.append(entry)
    return entries


def neighbour_table(entries: Sequence[dict[str, Any]], measure: str) -> Table:
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


def _summary(
    search: _Search, entries: Sequence[dict[str, Any]], count: int, k: int, out: Path | None
) -> str:
    """How many queries the table shows, what was searched, and how often the nearest is right."""
    total, gallery = len(search.queries), search.gallery
    part = f"the first {count} of " if count < total else ""
    kind = "queries"
    if search.rows is None and not search.about:
        kind = f"rows of {search.queries.title}"
    line = f"{part}{total:,} {kind} among {len(gallery):,} rows of {gallery.title}"
    if "same" in entries[0]:
        share = sum(entry["same"] for entry in entries[::k]) / total
        line += f"; the nearest has the query's label in {share:.2%} of {total:,}"
    line += f"; {search.about}" if search.about else ""
    return line + ("; --out writes them all" if count < total and out is None else "")


def _write(
    out: Path, search: _Search, hits: Neighbours, entries: list[dict[str, Any]], k: int
) -> Path:
    """All of them as .csv or .json, or as a contact sheet of pictures."""
    from uncollapse._base.files import write_csv, write_json

    if out.suffix == ".json":
        write_json(out, entries)
    elif out.suffix == ".csv":
        write_csv(out, list(entries[0]), [list(entry.values()) for entry in entries])
    elif search.pictures is not None and search.query_pictures is not None:
        from uncollapse.report.neighbours import contact_sheet, save_png

        near = [search.pictures(rows) for rows in hits.rows.tolist()]
        right = None
        if "same" in entries[0]:
            same = [entry["same"] for entry in entries]
            right = [same[start : start + k] for start in range(0, len(same), k)]
        return save_png(contact_sheet(search.query_pictures(), near, right), out)
    return out
