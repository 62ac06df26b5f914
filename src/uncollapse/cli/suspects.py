"""`uncollapse suspects`: the rows whose label the embedding contradicts, and how many there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from uncollapse.cli.embed import BestOption, RootOption, SplitOption, TrustOption
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
from uncollapse.cli.plain_lines import say

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array
    from uncollapse.metrics import SuspectLabels

__all__ = ["suspects_command"]

_PAGE = 60  # suspects that a page shows as pictures or texts
_NEIGHBOURS = 6  # that it shows of each


@dataclass(frozen=True)
class _Source:
    """Embeddings, labels, names of the rows, and how to get the pictures of some of them."""

    title: str
    points: Any
    labels: Array
    names: list[str] | None
    pictures: Callable[[list[int]], dict[int, Any]] | None
    made_by: str = ""


def suspects_command(
    source: Annotated[
        Path, typer.Argument(metavar="RUN|FILE", help="A run directory or a file of embeddings.")
    ],
    k: Annotated[int, typer.Option("-k", help="How many neighbours judge a row.", min=1)] = 10,
    metric: MetricOption = "euclidean",
    fine: Annotated[bool, typer.Option("--fine", help="Judge the fine labels.")] = False,
    show: Annotated[int, typer.Option("-n", help="How many rows to print.", min=1)] = 20,
    csv: Annotated[Path | None, typer.Option(help="Write all rows here, worst first.")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page here: each suspect and its neighbours.")
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(help="A file's pictures: an .npy array, or the folder its names lie in."),
    ] = None,
    split: SplitOption = None,
    data_root: RootOption = None,
    best: BestOption = False,
    trust: TrustOption = False,
    labels: LabelsOption = None,
    features: FeaturesOption = None,
    label: LabelOption = None,
    id_: IdOption = None,
    ignore: IgnoreOption = None,
) -> None:
    """Find labels that are likely to be wrong, and say how many there are.

    Best on embeddings that were not trained on these labels: a network that has memorised wrong
    labels hides them.
    """
    from rich.console import Console

    from uncollapse.cli.suspect_tables import show_suspects, write_suspects
    from uncollapse.metrics import suspect_labels

    cosine, console = is_cosine(metric), Console()
    if is_run(source):
        of_files = {
            "--images": images,
            "--labels": labels,
            "--features": features,
            "--label": label,
            "--id": id_,
            "--ignore": ignore,
        }
        only_for("a run directory", "embed the run into a file, and give that", of_files)
        rows = _of_run(source, split, data_root, best, trust, fine)
    else:
        of_runs = {
            "--split": split, "--data-root": data_root, "--best": best, "--trust": trust,
        }  # fmt: skip
        only_for("a file of embeddings", "it is of a run", of_runs)
        if images is not None:
            only_for("no --html", "only the page shows pictures", {"--images": html is None})
        found = open_embeddings(source, labels, features, label, id_, ignore)
        rows = _of_file(source, found, images, fine)
    result = suspect_labels(rows.points, rows.labels, neighbours=k, normalize=cosine)
    show_suspects(console, result, rows.labels, rows.names, show)
    if rows.made_by:
        say(console, rows.made_by)
    if csv is not None:
        say(console, f"wrote {write_suspects(csv, result, rows.labels, rows.names)}")
    if html is not None:
        say(console, f"wrote {_page(rows, result, html)}")


def _page(rows: _Source, result: SuspectLabels, html: Path) -> Path:
    from uncollapse.report.suspects_page import make_suspects_page

    shown = result.rows[:_PAGE].tolist()
    near = {row: result.neighbours[row, :_NEIGHBOURS].tolist() for row in shown}
    pictures = None
    if rows.pictures is not None and shown:
        pictures = rows.pictures(sorted({*shown, *(n for some in near.values() for n in some)}))
    page = make_suspects_page(
        result, rows.labels, near, names=rows.names, images=pictures, title=rows.title
    )
    return page.save(html)


def _of_file(path: Path, found: Any, images: Path | None, fine: bool) -> _Source:
    from uncollapse._base.check import InputError

    labels = found.fine_labels if fine else found.labels
    if labels is None:
        kind = "fine labels" if fine else "labels"
        allowed = f"a file that has {kind}" + ("" if fine else ", or --labels, or --label")
        raise InputError(str(path.name), f"no {kind}", allowed)
    names = None if found.names is None else [str(name) for name in found.names]
    pictures = None
    if images is not None:
        from uncollapse.cli.picture_files import find_pictures
        from uncollapse.report.neighbours import check_images

        every = check_images(find_pictures(images, found.names), len(found))

        def pictures(some: list[int]) -> dict[int, Any]:
            return {row: every[row] for row in some}

    return _Source(path.name, found.points, labels, names, pictures)


def _of_run(
    path: Path, split: str | None, root: Path | None, best: bool, trust: bool, fine: bool
) -> _Source:
    import numpy as np
    import torch

    from uncollapse import training
    from uncollapse._base.check import InputError
    from uncollapse.cli.embed import split_images, usual_split
    from uncollapse.cli.network_choice import choose, said

    opened = training.Run.open(path, trust=trust)
    chosen = choose(opened, best)
    name = split or usual_split(opened)
    data = split_images(opened, None, name, root)
    if fine and data.fine_labels is None:
        raise InputError("--fine", "given", f"nothing: split {name!r} has no fine labels")
    by = data.by_fine_labels() if fine else data
    points = training.embed(chosen.model, data)
    labels = np.array([by.class_names.get(int(c), str(int(c))) for c in by.labels])
    names = list(data.files) if data.files is not None else data.texts()
    pictures = None
    if not data.holds_texts and len(data.shape) == 3:

        def pictures(some: list[int]) -> dict[int, Any]:
            return dict(zip(some, data.pixels(torch.tensor(some)), strict=True))

    about = f"split {name!r}: {said(chosen)}"
    if name == opened.config.data.train_split:
        about += "; the network was trained on these labels, and hides those it memorised"
    return _Source(f"{path.name}, split {name}", points, labels, names, pictures, about)
