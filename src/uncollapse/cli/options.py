"""Options that several commands share, each declared once, and what they are turned into."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial, reduce, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console

from uncollapse._base.check import InputError, check_choice, percent
from uncollapse.cli.printing import parse_rule, say, warn

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array
    from uncollapse.data.sources import Source

_column = partial(typer.Option, rich_help_panel="Columns of a file")
_of_run = partial(typer.Option, rich_help_panel="For a run directory")

_SOURCE = "A run directory; or embeddings: .npz, .npy, .safetensors, .parquet or .csv."
SourceArgument = Annotated[Path, typer.Argument(metavar="RUN|FILE", help=_SOURCE)]
SourcesArgument = Annotated[list[Path], typer.Argument(metavar="RUN|FILE...", help=_SOURCE)]
ConfigArgument = Annotated[Path, typer.Argument(help="The run as a TOML file.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key: mining.positives=easy."),
]
DataRootOption = Annotated[Path | None, typer.Option(help="Where the dataset is (data.root).")]
TrustOption = Annotated[
    bool, typer.Option("--trust", help="Allow the config to import the Python code it names.")
]
MetricOption = Annotated[
    str, typer.Option(metavar="euclidean|cosine", help="How rows are compared.")
]
ImagesOption = Annotated[
    Path | None,
    typer.Option(help="A file's pictures: an .npy array, or the folder of the images it names."),
]
HtmlOption = Annotated[
    Path | None, typer.Option(dir_okay=False, help="Write a self-contained HTML page.")
]
JsonOption = Annotated[
    Path | None, typer.Option(dir_okay=False, help="Write the figures to this file.")
]
MaxRowsOption = Annotated[
    int,
    typer.Option(
        help="Score at most this many rows, sampled from more; they search all others.", min=8
    ),
]
FileArgument = Annotated[
    Path, typer.Argument(help="Embeddings: .npz, .npy, .safetensors, .parquet or .csv.")
]


def _checked_rules(rules: list[str] | None) -> list[str] | None:
    """The rules, once each of them can be read: before files are, which may take minutes."""
    for rule in rules or []:
        parse_rule(rule)
    return rules


FailIfOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RULE",
        help="Exit with code 1 if a figure is so: 'R@1<0.80'; any figure that --json writes. Can "
        "be repeated.",
        callback=_checked_rules,
    ),
]


@dataclass(frozen=True)
class Columns:
    """Which columns of a file of embeddings hold what; labels may be in a second file."""

    labels: Annotated[
        list[str] | None,
        _column(
            "--labels",
            "--label",
            metavar="COLUMN|FILE",
            help="The labels: a column, or a second file (FILE:COLUMN if it has several columns). "
            "Give it again for finer labels.",
        ),
    ] = None
    id: Annotated[str | None, _column(metavar="COLUMN", help="The names of the samples.")] = None
    text: Annotated[str | None, _column(metavar="COLUMN", help="The texts of the samples.")] = None
    info: Annotated[
        Path | None,
        _column(
            metavar="FILE",
            help="A further file of names, texts, image paths or labels; joined by name or id "
            "where both files have them, otherwise by row.",
        ),
    ] = None
    features: Annotated[
        list[str] | None,
        _column(
            metavar="PATTERN",
            help="The dimensions: 'f*'; or columns to leave out: '!price'. Can be repeated.",
        ),
    ] = None
    drop: Annotated[
        str | None,
        _column(
            metavar="KINDS",
            help="Rows to leave out: 'invalid' (NaN or infinite), 'zero', 'duplicates', 'far', "
            "'hubs', with commas between.  \\[default: invalid ones, if they are at most 5 %]",
        ),
    ] = None

    def label_places(self) -> list[tuple[Path | None, str | None]]:
        """File and column of the labels and of the fine labels; None where they are not named."""
        places = [_label_place(text) for text in self.labels or []]
        if len(places) > 2:
            raise InputError("--labels", f"given {len(places)} times", "labels, then finer ones")
        return [*places, (None, None), (None, None)][:2]


@dataclass(frozen=True)
class RunOptions:
    """Which network of a run is used, on which split, and where the dataset is."""

    split: Annotated[
        str | None,
        _of_run(help="A split of the run's dataset.  \\[default: what the run is evaluated on]"),
    ] = None
    data_root: Annotated[Path | None, _of_run(help="Where the dataset is.")] = None
    best: Annotated[bool, _of_run("--best", help="Use the best checkpoint.")] = False
    trust: Annotated[
        bool, _of_run("--trust", help="Allow the config to import the Python code it names.")
    ] = False


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option for each field of its parameters that are dataclasses.

    Typer has no groups of options; with this, commands share them.
    """
    parameters = inspect.signature(command, eval_str=True).parameters
    groups: dict[str, Any] = {
        name: p.annotation for name, p in parameters.items() if is_dataclass(p.annotation)
    }
    options: list[inspect.Parameter] = []
    for name, parameter in parameters.items():
        own = inspect.signature(groups[name], eval_str=True).parameters if name in groups else None
        for option in [parameter] if own is None else own.values():
            options.append(option.replace(kind=inspect.Parameter.KEYWORD_ONLY))

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
    file: Path,
    columns: Columns,
    others: Mapping[str, str] | None = None,
    *,
    drops: tuple[str, ...] | None = ("invalid",),
) -> Source:
    """Read a file of embeddings; notes say how it was read, unusable metadata gives a warning.

    `others` are further columns by their option; `drops` are the kinds of rows that are left out
    beside those of `--drop`, if they are few. With None every row stays.
    """
    from uncollapse.data.sources import open_source

    (labels, label), (fine_labels, fine_label) = columns.label_places()
    patterns = columns.features or []
    source = open_source(
        file,
        labels,
        fine_labels,
        info=columns.info,
        features=[pattern for pattern in patterns if not pattern.startswith("!")],
        label=label,
        fine_label=fine_label,
        id=columns.id,
        text=columns.text,
        ignore=[pattern[1:] for pattern in patterns if pattern.startswith("!")],
        columns=others,
    )
    for note in source.notes:
        say(f"note: {note}", console=Console(stderr=True))
    if source.complaint:
        warn(source.complaint)
    return source if drops is None else keep_rows([source], columns.drop, drops)[0]


def keep_rows(sources: list[Source], drop: str | None, drops: tuple[str, ...]) -> list[Source]:
    """Files of the same rows without those that are to be left out of any of them."""
    kept = reduce(np.intersect1d, [_kept_rows(source, drop, drops) for source in sources])
    if len(kept) == len(sources[0]):
        return sources
    if all(source.names is None for source in sources):
        sources[0] = replace(sources[0], names=np.arange(len(sources[0])).astype(str))
    return [source.select(kept) for source in sources]


def _kept_rows(source: Source, drop: str | None, drops: tuple[str, ...]) -> Array:
    """The rows that are of none of these kinds; says which are left out, and which zeros stay."""
    from uncollapse.metrics.spoiled_rows import FEW_INVALID, find_spoiled

    chosen = [word.strip() for word in drop.split(",")] if drop else []
    copies, hubs = bool({"duplicates", "far"} & {*chosen}), "hubs" in chosen
    spoiled = find_spoiled(source.points, duplicates=copies, neighbours=hubs)
    lines, kinds = spoiled.sentences(source.names), {*chosen, *drops}
    if len(spoiled.invalid) > FEW_INVALID * len(source) and "invalid" not in chosen:
        few = f"at most {percent(FEW_INVALID)} of such rows, or --drop invalid"
        raise InputError(source.title, lines["invalid"], few)
    kept = spoiled.kept(kinds)
    if not len(kept):
        raise InputError("--drop", f"all {len(source):,} rows of {source.title}", "rows to be left")
    for kind in (kind for kind in lines if kind in kinds):
        warn(f"{source.title}: {lines[kind]}; left out")
    if drops and "zero" in set(lines) - kinds:
        warn(f"{source.title}: {lines['zero']}; --drop zero leaves such rows out")
    return kept


def _label_place(text: str) -> tuple[Path | None, str | None]:
    """File and column of COLUMN, FILE or FILE:COLUMN.

    >>> _label_place("category"), _label_place("y.csv:kind")
    ((None, 'category'), (PosixPath('y.csv'), 'kind'))
    """
    file, _, column = text.rpartition(":")
    if Path(text).suffix in _endings():
        return Path(text), None
    return (Path(file), column) if Path(file).suffix in _endings() else (None, text)


def own_columns(columns: Columns) -> Columns:
    """The columns that a second file has as well: labels in a file of labels are the first's."""
    own = [text for text in columns.labels or [] if _label_place(text)[0] is None]
    return replace(columns, labels=own)


def open_second(
    option: str,
    file: Path,
    columns: Columns,
    first: Source,
    others: Mapping[str, str] | None = None,
) -> Source:
    """Read a second file of as many dimensions; its labels are in it, not in a file of labels."""
    source = open_file(file, own_columns(columns), others)
    dim, wanted = source.points.shape[1], first.points.shape[1]
    if dim != wanted:
        allowed = f"a file of {wanted} dimensions, as {first.title} has"
        raise InputError(option, f"{file.name} with {dim}", allowed)
    return source


def only_for(kind: str, instead: str, *groups: object, **options: object) -> None:
    """Refuse options that were given though they are for another `kind` of source."""
    for group in groups:
        options |= vars(group)
    for name, given in options.items():
        if given:
            flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
            raise InputError.conflict(f"{flag} is only for {kind}; {instead}")


def only_for_files(*groups: object, **options: object) -> None:
    """Refuse options for files beside a run."""
    instead = "write the run's embeddings to a file with `uncollapse embed`, and pass that"
    only_for("files of embeddings", instead, *groups, **options)


def must_exist(*paths: Path) -> None:
    """Raise `FileNotFoundError` for a missing path, before anything slow is imported."""
    for path in paths:
        path.stat()


def is_run(source: Path) -> bool:
    """Whether this is a run directory, not a file; `InputError` if it is neither."""
    if source.is_dir():
        return True
    if source.suffix not in _endings():
        allowed = f"a run directory or a file of embeddings ({', '.join(_endings())})"
        raise InputError("run", source, allowed)
    return False


def _endings() -> tuple[str, ...]:
    from uncollapse.data.readers import ARRAY_FILES, TABLE_FILES

    return (*ARRAY_FILES, *TABLE_FILES)


def numbers(option: str, text: str) -> list[int]:
    """Whole numbers of at least 1, separated by commas."""
    words = text.replace(",", " ").split()
    if not words or not all(word.isdecimal() and int(word) > 0 for word in words):
        raise InputError(option, repr(text), "whole numbers of at least 1, such as 1,5,10")
    return [int(word) for word in words]


def normalizes(metric: str) -> bool:
    """Whether rows are compared by their direction alone."""
    check_choice("--metric", metric, ("euclidean", "cosine"))
    return metric == "cosine"
