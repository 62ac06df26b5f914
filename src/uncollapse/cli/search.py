"""`uncollapse search`: the nearest neighbours of images in a run, or of rows in any file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uncollapse.cli.embed import (
    BestOption,
    RootOption,
    SplitOption,
    TrustOption,
    sample_names,
    split_images,
    usual_split,
)
from uncollapse.cli.file_options import (
    FeaturesOption,
    IdOption,
    IgnoreOption,
    LabelOption,
    LabelsOption,
    MetricOption,
    is_cosine,
    only_for,
    open_embeddings,
)
from uncollapse.cli.neighbour_lists import (
    FoundNeighbours,
    check_ending,
    show_neighbours,
    write_neighbours,
)
from uncollapse.cli.plain_lines import say

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array
    from uncollapse.data.embeddings import Embeddings

__all__ = ["search_command"]

_MOST_SHEET = 100  # queries that a contact sheet has room for


def search_command(
    source: Annotated[
        Path,
        typer.Argument(metavar="RUN|FILE", help="A run directory, or a file of embeddings."),
    ],
    queries: Annotated[
        list[str] | None,
        typer.Argument(
            help="Image files, or row numbers of the split; of a file: its rows by number or by "
            "name, all of them by default.",
            show_default=False,
        ),
    ] = None,
    gallery: Annotated[
        list[Path] | None,
        typer.Option(help="Image files or folders, instead of a run's split."),
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Queries are rows of this file, not of the first."),
    ] = None,
    split: SplitOption = None,
    k: Annotated[int, typer.Option("-k", help="How many neighbours.", min=1)] = 8,
    out: Annotated[
        Path | None, typer.Option(help="All of it as .csv or .json, or a contact sheet as .png.")
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(
            help="A file's pictures, for a .png: an .npy array, or the folder its names lie in."
        ),
    ] = None,
    metric: MetricOption = "euclidean",
    data_root: RootOption = None,
    best: BestOption = False,
    trust: TrustOption = False,
    labels: LabelsOption = None,
    features: FeaturesOption = None,
    label: LabelOption = None,
    id_: IdOption = None,
    ignore: IgnoreOption = None,
) -> None:
    """Find the nearest neighbours of images or of a file's rows, as a table or a contact sheet."""
    from uncollapse._base.check import InputError

    check_ending(out)
    if source.is_dir():
        of_files = {
            "--like": like,
            "--images": images,
            "--labels": labels,
            "--features": features,
            "--label": label,
            "--id": id_,
            "--ignore": ignore,
            "--metric": is_cosine(metric),
        }
        only_for("a run directory", "embed the run into a file, and search that", of_files)
        if not queries:
            raise InputError("queries", "nothing", "image files, or row numbers of the split")
        _search_run(source, queries, gallery, split, k, out, data_root, best, trust)
        return
    of_runs = {
        "--gallery": gallery,
        "--split": split,
        "--data-root": data_root,
        "--best": best,
        "--trust": trust,
    }
    way = "name the file to search first, and other files' rows with --like"
    only_for("a file of embeddings", way if gallery else "it is of a run", of_runs)
    found = open_embeddings(source, labels, features, label, id_, ignore)
    other = None if like is None else open_embeddings(like, None, features, label, id_, ignore)
    _search_file(source, found, like, other, queries or [], k, out, images, is_cosine(metric))


def _search_run(
    run: Path,
    queries: list[str],
    gallery: list[Path] | None,
    split: str | None,
    k: int,
    out: Path | None,
    data_root: Path | None,
    best: bool,
    trust: bool,
) -> None:
    import torch
    from rich.console import Console

    from uncollapse import training
    from uncollapse.cli.network_choice import choose, said
    from uncollapse.metrics.nearest_rows import nearest
    from uncollapse.training.lookup import images_of_files

    opened = training.Run.open(run, trust=trust)
    chosen = choose(opened, best)
    model = chosen.model
    split = split or usual_split(opened)
    shelf = split_images(opened, gallery, split, data_root)
    console = Console()
    with console.status(f"embedding {len(shelf):,} samples"):
        points = training.embed(model, shelf)
    rows = _row_numbers(queries, len(shelf))
    asked = images_of_files(queries, opened) if rows is None else shelf.subset(rows)
    z = training.embed(model, asked) if rows is None else points[torch.tensor(rows)]
    hits = nearest(z, points, k, None if rows is None else torch.tensor(rows))
    right = None if rows is None else (shelf.labels[hits.rows] == asked.labels[:, None]).tolist()
    # The names of samples without a file have their class in them.
    found = FoundNeighbours(queries, sample_names(shelf, gallery is None), hits, None, right)
    show_neighbours(console, found)
    say(console, said(chosen))
    if out is not None:

        def pictures() -> tuple[list[object], list[list[object]]]:
            return list(asked.pixels()), [list(shelf.pixels(row)) for row in hits.rows]

        say(console, f"wrote {write_neighbours(out, found, pictures)}")


def _search_file(
    path: Path,
    found: Embeddings,
    like: Path | None,
    other: Embeddings | None,
    queries: list[str],
    k: int,
    out: Path | None,
    images: Path | None,
    cosine: bool,
) -> None:
    import numpy as np
    import torch
    from rich.console import Console

    from uncollapse._base.check import InputError
    from uncollapse.cli.picture_files import find_pictures
    from uncollapse.metrics.nearest_rows import nearest

    asked, place = (found, path) if other is None or like is None else (other, like)
    if asked.points.shape[1] != found.points.shape[1]:
        given = f"{place.name} with {asked.points.shape[1]}"
        raise InputError("--like", given, f"a file of {found.points.shape[1]} dimensions")
    rows = _rows_of(queries, asked, place)
    sheet = out is not None and out.suffix == ".png"
    if sheet and (other is not None or images is None or len(rows) > _MOST_SHEET):
        given = "--like" if other is not None else f"{len(rows):,} queries" if images else "no"
        allowed = f"--images for a .png, and at most {_MOST_SHEET} queries of the same file"
        raise InputError("--out", f"{out} with {given} --images" if not images else given, allowed)
    pictures = find_pictures(images, found.names) if sheet and images is not None else None
    z, shelf = (_directions(one) if cosine else one for one in (asked.points, found.points))
    at = torch.from_numpy(rows)
    hits = nearest(
        torch.from_numpy(z)[at],
        torch.from_numpy(shelf),
        k,
        at if other is None else None,
        progress=None,
    )
    right = None
    if found.labels is not None and asked.labels is not None:
        mine, theirs = (one.labels.astype(str) for one in (asked, found))  # type: ignore[union-attr]
        right = (theirs[hits.rows.numpy()] == mine[rows][:, None]).tolist()
    names = [_names(one) for one in (asked, found)]
    shown = FoundNeighbours(
        [names[0][row] for row in rows], names[1], hits, found.labels, right,
        "cosine" if cosine else "distance",
    )  # fmt: skip
    console = Console()
    count = show_neighbours(console, shown)
    many = f"{len(rows):,} queries" if other is None else f"{len(rows):,} rows of {place.name}"
    part = f"the first {count} of {many}" if count < len(rows) else many
    line = f"{part} among {len(found):,} rows of {path.name}"
    if right is not None:
        share = float(np.mean([row[0] for row in right]))
        line += f"; the nearest has the query's label in {share:.2%} of {len(rows):,}"
    say(console, line + ("; --out writes them all" if count < len(rows) and out is None else ""))
    if out is not None:

        def drawn() -> tuple[list[object], list[list[object]]]:
            if pictures is None:
                raise AssertionError
            return (
                [pictures[int(row)] for row in rows],
                [[pictures[int(row)] for row in near] for near in hits.rows],
            )

        say(console, f"wrote {write_neighbours(out, shown, drawn)}")


def _directions(points: Array) -> Array:
    import numpy as np

    norm = np.linalg.norm(points, axis=1, keepdims=True)
    unit: Array = points / np.where(norm > 0, norm, 1.0)
    return unit


def _names(found: Embeddings) -> list[str]:
    if found.names is None:
        return [str(row) for row in range(len(found))]
    return [str(name) for name in found.names]


def _rows_of(queries: list[str], found: Embeddings, path: Path) -> Array:
    """The rows meant: by name where the file has that name, by number otherwise; all if none."""
    import numpy as np

    from uncollapse._base.check import InputError, did_you_mean

    if not queries:
        return np.arange(len(found))
    known: dict[str, int] = {}
    for row, name in enumerate([] if found.names is None else found.names):
        known.setdefault(str(name), row)
    rows = []
    for query in queries:
        if query in known:
            rows.append(known[query])
        elif query.isdecimal() and int(query) < len(found):
            rows.append(int(query))
        else:
            named = f" or a name, such as {next(iter(known))!r}" if known else ""
            near = did_you_mean(query, list(known)[:10_000])
            allowed = f"a row number of {path.name} below {len(found)}{named}"
            raise InputError("queries", f"{query!r}{near}", allowed)
    return np.array(rows)


def _row_numbers(queries: list[str], size: int) -> list[int] | None:
    """The queries as rows of the gallery, if they all are numbers."""
    from uncollapse._base.check import InputError

    if not all(query.isdecimal() for query in queries):  # '²' is a digit, but no number
        return None
    rows = [int(query) for query in queries]
    if max(rows) >= size:
        raise InputError("queries", max(rows), f"a row number below {size}")
    return rows
