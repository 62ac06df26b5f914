"""`uncollapse embed`, `uncollapse search` and `uncollapse export`: a trained run put to use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uncollapse._base.plain_text import visible
from uncollapse.cli.plain_lines import say

if TYPE_CHECKING:
    from uncollapse.data import LabelledImages
    from uncollapse.data.embeddings import Embeddings
    from uncollapse.data.origin import Origin
    from uncollapse.training import Run

__all__ = ["embed_command", "export_command", "search_command"]

RunArgument = Annotated[Path, typer.Argument(help="A run directory.")]
SplitOption = Annotated[
    str | None,
    typer.Option(help="A split of the run's dataset; by default the last it is evaluated on."),
]
RootOption = Annotated[Path | None, typer.Option(help="Where the dataset is.")]
TrustOption = Annotated[
    bool, typer.Option("--trust", help="Import code that the run's config names, whoever made it.")
]
BestOption = Annotated[bool, typer.Option("--best", help="Use the best checkpoint.")]


def embed_command(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="A .npz, .parquet or .safetensors file.")],
    images: Annotated[
        list[Path] | None, typer.Option(help="Image files or folders, instead of a split.")
    ] = None,
    split: SplitOption = None,
    data_root: RootOption = None,
    best: BestOption = False,
    trust: TrustOption = False,
) -> None:
    """Embed images, or a split of the run's dataset, into a file.

    The file keeps the names of the images, and for a split the run's scale before training, which
    `uncollapse diagnose` compares with.
    """
    from rich.console import Console

    from uncollapse import training
    from uncollapse.cli.network_choice import choose, said
    from uncollapse.data.embeddings import write_embeddings

    found = training.Run.open(run, trust=trust)
    chosen = choose(found, best)
    split = split or _usual_split(found)
    data = _images(found, images, split, data_root)
    console = Console()
    with console.status(f"embedding {len(data):,} samples"):
        points = training.embed(chosen.model, data)
    origin = _origin(found, chosen.step, None if images else split)
    path = write_embeddings(_described(points.numpy(), data, origin), out)
    scale = f"; reference: {origin.start}" if origin.start is not None else ""
    say(console, f"wrote {len(data):,} embeddings to {path}: {said(chosen)}{scale}")


def search_command(
    run: RunArgument,
    queries: Annotated[list[str], typer.Argument(help="Image files, or row numbers of the split.")],
    gallery: Annotated[
        list[Path] | None, typer.Option(help="Image files or folders, instead of a split.")
    ] = None,
    split: SplitOption = None,
    k: Annotated[int, typer.Option("-k", help="How many neighbours.", min=1)] = 8,
    out: Annotated[Path | None, typer.Option(help="A contact sheet as PNG.")] = None,
    data_root: RootOption = None,
    best: BestOption = False,
    trust: TrustOption = False,
) -> None:
    """Find the nearest neighbours of images, as a table and a contact sheet."""
    import torch
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from uncollapse import training
    from uncollapse.cli.network_choice import choose, said
    from uncollapse.training.lookup import images_of_files, nearest

    found = training.Run.open(run, trust=trust)
    chosen = choose(found, best)
    model = chosen.model
    split = split or _usual_split(found)
    shelf = _images(found, gallery, split, data_root)
    console = Console()
    with console.status(f"embedding {len(shelf):,} samples"):
        points = training.embed(model, shelf)
    rows = _row_numbers(queries, len(shelf))
    asked = images_of_files(queries, found) if rows is None else shelf.subset(rows)
    z = training.embed(model, asked) if rows is None else points[torch.tensor(rows)]
    hits = nearest(z, points, k, None if rows is None else torch.tensor(rows))
    known = gallery is None
    shelf_names = _names(shelf, known)
    table = Table("query", "rank", "neighbour", "distance")
    for column in table.columns:
        column.overflow = "fold"  # a long path is broken, not cut
    for q, name in enumerate(queries):
        for rank in range(k):
            row = int(hits.rows[q, rank])
            distance = f"{float(hits.distances[q, rank]):.4g}"
            cells = (name if rank == 0 else "", str(rank + 1), shelf_names[row], distance)
            table.add_row(*(escape(visible(cell)) for cell in cells))
    console.print(table)
    say(console, said(chosen))
    if out is not None:
        from uncollapse.report.contact_sheets import contact_sheet, save_png

        right = None
        if rows is not None:
            right = (shelf.labels[hits.rows] == asked.labels[:, None]).tolist()
        found_images = [list(shelf.pixels(row)) for row in hits.rows]
        sheet = contact_sheet(list(asked.pixels()), found_images, right)
        say(console, f"wrote {save_png(sheet, out)}")


def export_command(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="The ONNX file.")] = Path("model.onnx"),
    best: BestOption = False,
    trust: TrustOption = False,
) -> None:
    """Export the network to ONNX, and check that it computes the same."""
    from rich.console import Console

    from uncollapse.cli.network_choice import choose, said
    from uncollapse.training import Run
    from uncollapse.training.export import export_onnx

    chosen = choose(Run.open(run, trust=trust), best)
    result = export_onnx(chosen.model, chosen.checkpoint.state["shape"], out)
    same = f"its outputs differ from torch's by {result.difference:.1e}"
    say(Console(), f"wrote {result.path}: {said(chosen)}; {same}")


def _usual_split(run: Run) -> str:
    """The last split the run is evaluated on, or the one it is trained on."""
    splits = run.config.data
    return [splits.train_split, *splits.eval_splits][-1]


def _images(run: Run, files: list[Path] | None, split: str, root: Path | None) -> LabelledImages:
    from uncollapse.cli.skipped_files import tell_skipped
    from uncollapse.training.assemble import load_eval_data
    from uncollapse.training.lookup import images_of_files

    if files:
        return images_of_files(files, run)
    found = load_eval_data(run.config.with_root(root), split)
    tell_skipped(found, split)
    return found


def _row_numbers(queries: list[str], size: int) -> list[int] | None:
    """The queries as rows of the gallery, if they all are numbers."""
    from uncollapse._base.check import InputError

    if not all(query.isdecimal() for query in queries):  # '²' is a digit, but no number
        return None
    rows = [int(query) for query in queries]
    if max(rows) >= size:
        raise InputError("queries", max(rows), f"a row number below {size}")
    return rows


def _names(data: LabelledImages, known: bool) -> list[str]:
    """How each sample is called in a table: its file, or its row and class."""
    if data.files is not None:
        return list(data.files)
    classes = [data.class_names.get(int(c), str(int(c))) for c in data.labels]
    return [f"{row} ({name})" if known else str(row) for row, name in enumerate(classes)]


def _origin(run: Run, step: int, split: str | None) -> Origin:
    """Where rows come from, with the run's first scale; a warning where that is not known.

    Images of one's own get none: few of them, or of another kind, are no smaller for being shrunk.
    """
    from uncollapse._base.files import DamagedFileError
    from uncollapse.cli.errors import warn
    from uncollapse.data.origin import Origin
    from uncollapse.training import NotMeasuredError

    start = None
    try:
        start = None if split is None else run.measures().start(split)
    except (DamagedFileError, NotMeasuredError) as error:
        warn(f"{error}. The file holds no scale to compare with")
    return Origin(run.path.resolve().name, step, split, start, run.config.loss.normalizes)


def _described(points: object, data: LabelledImages, origin: Origin) -> Embeddings:
    import numpy as np

    from uncollapse.data.embeddings import Embeddings

    array, known = np.asarray(points), origin.split is not None
    names = np.array(_names(data, known))
    if not known:
        return Embeddings(array, names=names, origin=origin)
    fine = None if data.fine_labels is None else data.fine_labels.numpy()
    return Embeddings(array, data.labels.numpy(), fine, names, origin)
