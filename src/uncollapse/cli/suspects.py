"""`uncollapse suspects`: the rows whose label the embedding contradicts, and how many there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from uncollapse._base.check import InputError, visible
from uncollapse._base.table import Table
from uncollapse.cli import options
from uncollapse.cli.embed import embed_samples, load_samples, open_network
from uncollapse.cli.printing import say, show

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array
    from uncollapse.data.sources import Source
    from uncollapse.metrics import SuspectLabels

    Pictures = Callable[[list[int]], dict[int, Any]]

_PAGE = 60  # suspects that a page shows as pictures or texts
_NEIGHBOURS = 6  # that it shows of each
_HEAD = ["row", "name", "label", "suggested", "wrong", "score", "suspect", "neighbours", "labels"]


@options.grouped
def suspects_command(
    source: Annotated[
        Path, typer.Argument(metavar="RUN|FILE", help="A run directory or a file of embeddings.")
    ],
    columns: options.Columns,
    run_options: options.RunOptions,
    k: Annotated[int, typer.Option("-k", help="How many neighbours judge a row.", min=1)] = 10,
    metric: options.MetricOption = "euclidean",
    fine: Annotated[bool, typer.Option("--fine", help="Judge the fine labels.")] = False,
    most: Annotated[int, typer.Option("-n", help="How many rows to print.", min=1)] = 20,
    csv: Annotated[Path | None, typer.Option(help="Write all rows here, worst first.")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page here: each suspect and its neighbours.")
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(help="A file's pictures: an .npy array, or the folder with its names."),
    ] = None,
    split: options.SplitOption = None,
) -> None:
    """Find labels that are likely to be wrong, and say how many there are.

    Best on embeddings that were not trained on these labels: a network that has memorised wrong
    labels hides them.
    """
    normalize, about, pictures = options.normalizes(metric), "", None
    if options.is_run(source):
        options.only_for_files(columns, images=images)
        rows, labels, pictures, about = _of_run(source, split, run_options, fine)
    else:
        options.only_for("runs", f"{source.name} is a file of embeddings", run_options, split=split)
        if images is not None and html is None:
            raise InputError.conflict("--images needs --html: only the page shows pictures")
        rows = options.open_file(source, columns)
        labels = rows.need_labels(fine=fine)
        if images is not None:
            pictures = _pictures_of_file(rows, images)
    from uncollapse.metrics import suspect_labels

    result = suspect_labels(rows.points, labels, neighbours=k, normalize=normalize)
    names = None if rows.names is None else rows.row_names
    shown = result.rows[:most].tolist()
    if shown:
        show(_table(result, shown, labels, names))
    more = len(result.rows) - len(shown)
    say(str(result) + (f"; {more:,} more than shown, --csv has them all" if more else ""))
    if about:
        say(about)
    if csv is not None:
        say(f"wrote {_write(csv, result, labels, names)}")
    if html is not None:
        say(f"wrote {_page(rows.title, result, labels, names, pictures, html)}")


def _of_run(
    path: Path, split: str | None, run_options: options.RunOptions, fine: bool
) -> tuple[Source, Array, Pictures | None, str]:
    """Embeddings of a split, its labels by name, its pictures, and a line about the network."""
    from dataclasses import replace

    import numpy as np
    import torch

    network = open_network(path, run_options)
    data, name = load_samples(network, None, split, run_options.data_root)
    if fine and data.fine_labels is None:
        raise InputError.conflict(f"--fine: the split {name!r} has no fine labels")
    rows = replace(embed_samples(network, data, name), title=f"{path.name}, split {name}")
    if data.files is None and not data.holds_texts:
        rows = replace(rows, names=None)  # they would tell the label
    by = data.by_fine_labels() if fine else data
    labels = np.array([by.class_names.get(int(c), str(int(c))) for c in by.labels])
    about = f"split {name!r}: {network.about}"
    if network.run is not None and name == network.run.config.data.train_split:
        about += "; the network was trained on these labels, and hides those it memorised"
    if data.holds_texts or len(data.shape) != 3:
        return rows, labels, None, about

    def pictures(some: list[int]) -> dict[int, Any]:
        return dict(zip(some, data.pixels(torch.tensor(some)), strict=True))

    return rows, labels, pictures, about


def _pictures_of_file(source: Source, images: Path) -> Pictures:
    from uncollapse.report.neighbours import check_images

    every = check_images(source.find_pictures(images), len(source))
    return lambda some: {row: every[row] for row in some}


def _table(
    result: SuspectLabels, shown: list[int], labels: Array, names: Sequence[str] | None
) -> Table:
    """The worst of them, with the label that their neighbours suggest."""
    named = ["name"] * (names is not None)
    table = Table(["row", *named, "label", "suggested", "agree", "P(wrong)"])
    for row in shown:
        near = labels[result.neighbours[row]]
        agree = f"{int((near == result.suggested[row]).sum())} of {len(near)}"
        cells = [str(row), *([] if names is None else [names[row]]), str(labels[row])]
        cells += [str(result.suggested[row]), agree, f"{result.wrong[row]:.3f}"]
        table.add(*map(visible, cells))
    return table


def _write(path: Path, result: SuspectLabels, labels: Array, names: Sequence[str] | None) -> Path:
    """Every row that could be judged, worst first, with its neighbours and their labels."""
    from uncollapse._base.files import write_csv

    suspect, lines = set(result.rows.tolist()), []
    for row in result.ranking.tolist():
        near = result.neighbours[row]
        name = "" if names is None else names[row]
        figures = f"{result.wrong[row]:.6f}", f"{result.score[row]:.4f}", int(row in suspect)
        rows, words = " ".join(map(str, near.tolist())), " | ".join(map(str, labels[near].tolist()))
        lines.append([row, name, labels[row], result.suggested[row], *figures, rows, words])
    write_csv(path, _HEAD, lines)
    return path


def _page(
    title: str,
    result: SuspectLabels,
    labels: Array,
    names: Sequence[str] | None,
    pictures: Pictures | None,
    html: Path,
) -> Path:
    from uncollapse.report.suspects_page import make_suspects_page

    shown = result.rows[:_PAGE].tolist()
    near = {row: result.neighbours[row, :_NEIGHBOURS].tolist() for row in shown}
    images = None
    if pictures is not None and shown:
        images = pictures(sorted({*shown, *(n for rows in near.values() for n in rows)}))
    page = make_suspects_page(result, labels, near, names=names, images=images, title=title)
    return page.save(html)
