"""`uncollapse search`: the nearest neighbours of images or texts in a run, or of a file's rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
    is_run,
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

__all__ = ["search_command"]


def search_command(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|FILE",
            help="A run directory or a file of embeddings; or a backbone for texts, sentence:NAME.",
        ),
    ],
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
            help="Image files or folders, or a file or dataset of texts, instead of a run's split."
        ),
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Take the queries from this file instead."),
    ] = None,
    split: SplitOption = None,
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
    """Find the nearest neighbours of images, texts or a file's rows: a table or a contact sheet."""
    from uncollapse._base.check import InputError
    from uncollapse.cli.text_choice import is_text_backbone

    check_ending(out)
    if is_text_backbone(source) or is_run(source):
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
            allowed = "image files, texts, or row numbers of the split"
            raise InputError("queries", "nothing", allowed)
        if is_text_backbone(source):
            only_for("a backbone", "it is of a run", {"--best": best, "--trust": trust})
            _search_plainly(source, queries, gallery, split, k, out, data_root)
            return
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
    from uncollapse.cli.file_search import search_file

    search_file(source, found, like, other, queries or [], k, out, images, is_cosine(metric))


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
    from uncollapse.training.assemble import trains_on_texts
    from uncollapse.training.evaluation import images_of_files

    opened = training.Run.open(run, trust=trust)
    chosen = choose(opened, best)
    model = chosen.model
    if trains_on_texts(opened.config):
        from uncollapse.cli.text_choice import GivenTexts, given_texts
        from uncollapse.cli.text_search import search_texts

        if gallery:
            words = given_texts(gallery, split, data_root)
        else:
            name = split or usual_split(opened)
            words = GivenTexts(split_images(opened, None, name, data_root), known=True)
        numbers = _row_numbers(queries, len(words.data))
        search_texts(model, said(chosen), words, queries, numbers, k, out)
        return
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
        pictures = None
        if out.suffix == ".png":
            pictures = list(asked.pixels()), [list(shelf.pixels(row)) for row in hits.rows]
        say(console, f"wrote {write_neighbours(out, found, pictures)}")


def _search_plainly(
    backbone: Path,
    queries: list[str],
    gallery: list[Path] | None,
    split: str | None,
    k: int,
    out: Path | None,
    data_root: Path | None,
) -> None:
    """Search texts with a backbone that nobody has trained further."""
    from uncollapse._base.check import InputError
    from uncollapse.cli.text_choice import given_texts, text_backbone
    from uncollapse.cli.text_search import search_texts

    if not gallery:
        raise InputError("--gallery", "nothing", "a file or dataset of texts to search in")
    words = given_texts(gallery, split, data_root)
    rows = _row_numbers(queries, len(words.data))
    said = f"{backbone} as it comes"
    search_texts(text_backbone(backbone), said, words, queries, rows, k, out)


def _row_numbers(queries: list[str], size: int) -> list[int] | None:
    """The queries as rows of the gallery, if they all are numbers."""
    from uncollapse._base.check import InputError

    if not all(query.isdecimal() for query in queries):  # '²' is a digit, but no number
        return None
    rows = [int(query) for query in queries]
    if max(rows) >= size:
        raise InputError("queries", max(rows), f"a row number below {size}")
    return rows
