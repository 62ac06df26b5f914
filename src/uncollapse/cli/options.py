"""Options that several commands share, each declared once, and what they are turned into."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from uncollapse._base.check import InputError, check_choice
from uncollapse.cli.printing import warn

if TYPE_CHECKING:
    from uncollapse.data.sources import Source

_column = partial(typer.Option, rich_help_panel="Columns of a file")
_of_run = partial(typer.Option, rich_help_panel="For a run directory")

MetricOption = Annotated[str, typer.Option(metavar="euclidean|cosine", help="How rows compare.")]
SplitOption = Annotated[
    str | None,
    _of_run(help="A split of the run's dataset.  \\[default: the last one it is evaluated on]"),
]
RootOption = Annotated[Path | None, _of_run(help="Where the dataset is.")]
BestOption = Annotated[bool, _of_run("--best", help="Use the best checkpoint.")]
TrustOption = Annotated[
    bool, _of_run("--trust", help="Allow the config to import the Python code it names.")
]


@dataclass(frozen=True)
class Columns:
    """Which columns of a file of embeddings are what."""

    label: Annotated[str | None, _column(metavar="COLUMN", help="The labels.")] = None
    id: Annotated[str | None, _column(metavar="COLUMN", help="The names of the samples.")] = None
    features: Annotated[
        list[str] | None, _column(metavar="PATTERN", help="The dimensions: 'f*'. Can be repeated.")
    ] = None
    ignore: Annotated[
        list[str] | None, _column(metavar="PATTERN", help="What to ignore. Can be repeated.")
    ] = None
    labels: Annotated[Path | None, _column(help="A second file, with the labels.")] = None
    fine_labels: Annotated[Path | None, _column(help="A file with finer labels.")] = None


@dataclass(frozen=True)
class RunOptions:
    """Which network of a run is used, and where its dataset is."""

    data_root: RootOption = None
    best: BestOption = False
    trust: TrustOption = False


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option for each field of its parameters that are dataclasses.

    Typer has no groups of options; with this, commands share them.
    """
    own = inspect.signature(command, eval_str=True).parameters.values()
    groups: dict[str, Any] = {p.name: p.annotation for p in own if is_dataclass(p.annotation)}
    options: list[inspect.Parameter] = []
    for parameter in own:
        if parameter.name not in groups:
            options.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        hints = get_type_hints(parameter.annotation, include_extras=True)
        options += [
            inspect.Parameter(
                option.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=option.default,
                annotation=hints[option.name],
            )
            for option in fields(parameter.annotation)
        ]

    @wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            given = {option.name: values.pop(option.name) for option in fields(group)}
            values[name] = group(**given)
        command(**values)

    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run


def open_file(
    file: Path, columns: Columns, others: Mapping[str, str | None] | None = None
) -> Source:
    """Read a file of embeddings; metadata that cannot be used is a warning.

    `others` are further columns by their option; those that are None were not asked for.
    """
    from uncollapse.data.sources import open_source

    source = open_source(
        file,
        columns.labels,
        columns.fine_labels,
        features=columns.features or (),
        label=columns.label,
        id=columns.id,
        ignore=columns.ignore or (),
        columns={option: name for option, name in (others or {}).items() if name is not None},
    )
    if source.complaint:
        warn(source.complaint)
    return source


def only_for_files(*groups: object, **options: object) -> None:
    """Refuse options for files beside a run."""
    instead = "write the run's embeddings to a file with `uncollapse embed`, and pass that"
    only_for("files of embeddings", instead, *groups, **options)


def only_for(kind: str, instead: str, *groups: object, **options: object) -> None:
    """Refuse options that were given though they are for another `kind` of source."""
    for group in groups:
        options |= vars(group)
    for name, given in options.items():
        if given:
            flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
            raise InputError.conflict(f"{flag} is only for {kind}; {instead}")


def must_exist(*paths: Path) -> None:
    """`FileNotFoundError` for a path that is not there, before anything slow is imported."""
    for path in paths:
        path.stat()


def is_run(source: Path) -> bool:
    """Whether a run directory is meant, not a file; `InputError` where it is neither."""
    if source.is_dir():
        return True
    from uncollapse.data.readers import ARRAY_FILES, TABLE_FILES

    endings = (*ARRAY_FILES, *TABLE_FILES)
    if source.suffix not in endings:
        allowed = f"a run directory or a file of embeddings ({', '.join(endings)})"
        raise InputError("run", source, allowed)
    return False


def normalizes(metric: str) -> bool:
    """Whether rows are compared by their direction alone."""
    check_choice("--metric", metric, ("euclidean", "cosine"))
    return metric == "cosine"
