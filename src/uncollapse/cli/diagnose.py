"""`uncollapse diagnose`: a verdict on embeddings of any origin, and a page that shows why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uncollapse.cli.plain_lines import say

if TYPE_CHECKING:
    from uncollapse.data.embeddings import Embeddings
    from uncollapse.report.pictures import Images

__all__ = ["command"]


def command(
    file: Annotated[
        Path, typer.Argument(help="Embeddings: .npz, .npy, .safetensors, .parquet or .csv.")
    ],
    labels: Annotated[
        Path | None, typer.Option(help="A second file that holds the labels.")
    ] = None,
    fine_labels: Annotated[
        Path | None, typer.Option(help="A third one with finer labels, to judge by as well.")
    ] = None,
    features: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Columns that are dimensions: 'f*'. May be repeated."),
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column that holds the labels.")
    ] = None,
    id_: Annotated[
        str | None,
        typer.Option("--id", metavar="COLUMN", help="The column that names the samples."),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Columns to leave out. May be repeated."),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(help="Pictures: an .npy array, or the folder the file's names lie in."),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a self-contained page here.")] = None,
    reference: Annotated[
        float | None, typer.Option(help="Diameter when it was healthy, to judge the scale by.")
    ] = None,
    tsne: Annotated[bool, typer.Option("--tsne", help="Draw the map by t-SNE (slower).")] = False,
) -> None:
    """Say whether and how embeddings have collapsed."""
    from rich.console import Console

    from uncollapse.data.embeddings import read_embeddings, read_labels
    from uncollapse.report import diagnose

    console = Console(highlight=False)
    found = read_embeddings(
        file, labels, features=features or (), label=label, id=id_, ignore=ignore or ()
    )
    fine = found.fine_labels if fine_labels is None else read_labels(fine_labels)
    with console.status(f"diagnosing {len(found):,} embeddings"):
        result = diagnose(
            found.points,
            found.labels,
            fine,
            _images(images, found),
            names=found.names,
            title=file.name,
            reference=reference,
            tsne=tsne,
        )
    say(console, str(result))
    if html is not None:
        say(console, f"wrote {result.save(html)}")


def _images(source: Path | None, found: Embeddings) -> Images | None:
    import numpy as np

    from uncollapse._base.check import InputError

    if source is None:
        return None
    if source.suffix == ".npy":
        array: Images = np.load(source, mmap_mode="r", allow_pickle=False)
        return array
    if found.names is None or not source.is_dir():
        given = f"{source}" + (", but the file has no names" if source.is_dir() else "")
        raise InputError("--images", given, "an .npy array, or a folder that has the file's names")
    return [source / str(name) for name in found.names]
