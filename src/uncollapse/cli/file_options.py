"""What every command on a file of embeddings takes: which columns of it are what."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from uncollapse.data.sources import Embeddings

__all__ = [
    "FeaturesOption",
    "IdOption",
    "IgnoreOption",
    "LabelOption",
    "LabelsOption",
    "MetricOption",
    "is_cosine",
    "is_run",
    "must_exist",
    "only_for",
    "open_embeddings",
]

_PANEL = "Columns of a file"

LabelsOption = Annotated[
    Path | None,
    typer.Option(help="A second file with the labels.", rich_help_panel=_PANEL),
]
FeaturesOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN",
        help="Columns that are dimensions: 'f*'. Can be repeated.",
        rich_help_panel=_PANEL,
    ),
]
LabelOption = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="The column with the labels.", rich_help_panel=_PANEL),
]
IdOption = Annotated[
    str | None,
    typer.Option(
        "--id", metavar="COLUMN", help="The column with the sample names.", rich_help_panel=_PANEL
    ),
]
IgnoreOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN", help="Columns to ignore. Can be repeated.", rich_help_panel=_PANEL
    ),
]
MetricOption = Annotated[str, typer.Option(metavar="cosine|euclidean", help="The distance to use.")]


def open_embeddings(
    file: Path,
    labels: Path | None = None,
    features: list[str] | None = None,
    label: str | None = None,
    id_: str | None = None,
    ignore: list[str] | None = None,
    columns: Mapping[str, str | None] | None = None,
) -> Embeddings:
    """Read a file by the options above; what it says of itself in vain is a warning.

    `columns` are further ones by their option; those that are None were not asked for.
    """
    from uncollapse.cli.errors import warn
    from uncollapse.data.sources import open_source

    asked = {option: name for option, name in (columns or {}).items() if name is not None}
    found = open_source(
        file,
        labels,
        features=features or (),
        label=label,
        id=id_,
        ignore=ignore or (),
        columns=asked,
    )
    if found.complaint:
        warn(found.complaint)
    return found


def only_for(what: str, way: str, options: Mapping[str, object]) -> None:
    """Refuse options that mean nothing beside `what` was given; `way` says what to do instead."""
    from uncollapse._base.check import InputError

    for option, given in options.items():
        if given:
            raise InputError(option, given, f"nothing beside {what}: {way}")


def must_exist(*paths: Path) -> None:
    """`FileNotFoundError` for a path that is not there, before anything slow is imported."""
    for path in paths:
        path.stat()


def is_run(source: Path) -> bool:
    """Whether a run directory is meant, not a file; `InputError` where it is neither."""
    if source.is_dir():
        return True
    from uncollapse._base.check import InputError
    from uncollapse.data.readers import ARRAY_FILES, TABLE_FILES

    if source.suffix not in (*ARRAY_FILES, *TABLE_FILES):
        endings = ", ".join([*ARRAY_FILES, *TABLE_FILES])
        raise InputError("run", source, f"a run directory or a file of embeddings ({endings})")
    return False


def is_cosine(metric: str) -> bool:
    """Whether rows are compared by their direction."""
    from uncollapse._base.check import check_choice

    check_choice("--metric", metric, ("cosine", "euclidean"))
    return metric == "cosine"
