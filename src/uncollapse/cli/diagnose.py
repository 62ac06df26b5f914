"""`uncollapse diagnose`: a verdict on embeddings of any origin, and a page that shows why."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from uncollapse._base.check import InputError, did_you_mean
from uncollapse._base.extras import keep_memory, without_kernels
from uncollapse.cli import options
from uncollapse.cli.printing import say, status

if TYPE_CHECKING:
    from uncollapse.data.sources import StartScale
    from uncollapse.health import Reference
    from uncollapse.report import Diagnosis

_FAILED = 1
_SMALL = 5_000  # rows


@options.grouped
def command(
    files: options.SourcesArgument,
    columns: options.Columns,
    images: options.ImagesOption = None,
    html: options.HtmlOption = None,
    reference: Annotated[
        float | None,
        typer.Option(
            help="Diameter when it was healthy, to judge the scale by.  \\[default: that before "
            "training, for a run and what `uncollapse embed` wrote]"
        ),
    ] = None,
    tsne: Annotated[bool, typer.Option("--tsne", help="Draw the map with t-SNE (slower).")] = False,
    max_rows: Annotated[
        int, typer.Option(help="Score at most this many rows, sampled from more.", min=8)
    ] = 30_000,
    fail_on: Annotated[
        str | None,
        typer.Option(
            metavar="VERDICTS",
            help="End with exit code 1 on these verdicts: 'network-collapse,cone', or any but "
            "healthy: 'any'.",
        ),
    ] = None,
) -> None:
    """Diagnose embeddings from any framework: have they collapsed, how, and what to change?"""
    keep_memory()  # large blocks come and go
    if len(files) > 1:
        instead = "diagnose that file alone"
        options.only_for(
            "one file", instead, columns, images=images, html=html, reference=reference
        )
    refused, verdicts = refused_verdicts(fail_on), {}
    for file in files:
        if len(files) > 1:
            say(f"{file}:")
        if file.is_dir():
            options.only_for_files(columns, images=images)
            from uncollapse.report import diagnose_run

            with status("diagnosing the run"):
                result = diagnose_run(file, reference=reference, tsne=tsne, max_rows=max_rows)
        else:
            modes = html is not None  # only the page shows them
            result = _diagnose_file(file, columns, images, reference, tsne, max_rows, modes)
        say(str(result))
        verdicts[file] = result.verdict
        if html is not None:
            say(f"wrote {result.save(html)}")
    _fail_if(refused, verdicts)


def _diagnose_file(
    file: Path,
    columns: options.Columns,
    images: Path | None,
    reference: float | None,
    tsne: bool,
    max_rows: int,
    modes: bool,
) -> Diagnosis:
    source = options.open_file(file, columns)
    pictures = None if images is None else source.find_pictures(images)
    origin = source.origin
    start = None if reference is not None or origin is None else origin.start
    from uncollapse.report import diagnose

    light = _lightly() if len(source) <= _SMALL else nullcontext()
    with status(f"diagnosing {len(source):,} embeddings"), light:
        result = diagnose(
            source.points,
            source.labels,
            source.fine_labels,
            pictures,
            names=source.names,
            title=source.title,
            reference=reference if start is None else _as_reference(start),
            tsne=tsne,
            max_rows=max_rows,
            modes=modes,
            cosine=origin is None or origin.cosine is not False,
        )
    split = "" if origin is None else origin.split or ""
    return replace(result, split=split, compared_with="" if start is None else str(start))


@contextmanager
def _lightly() -> Iterator[None]:
    """Neither kernels nor a second thread: for few rows both take longer than they save."""
    from threadpoolctl import threadpool_limits

    with without_kernels(), threadpool_limits(1):
        yield


def _as_reference(start: StartScale) -> Reference:
    from uncollapse.health import Reference

    known = (start.spread, start.cdnv, start.fine_agreement, start.fine_chance)
    return Reference(start.diameter, *(math.nan if value is None else value for value in known))


def refused_verdicts(text: str | None) -> frozenset[str]:
    """The verdicts that `--fail-on` names; `InputError` for a word that is none.

    >>> sorted(refused_verdicts("cone, network-collapse"))
    ['cone', 'network-collapse']
    >>> "shrinking" in refused_verdicts("any"), "healthy" in refused_verdicts("any")
    (True, False)
    """
    if text is None:
        return frozenset()
    from uncollapse.health import VERDICTS

    bad = list(VERDICTS)[1:]  # the first is healthy
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in (*bad, "any"):
            allowed = f"any, or one or several of {', '.join(bad)} with commas between"
            raise InputError("--fail-on", repr(word) + did_you_mean(word, bad), allowed)
    return frozenset(bad if "any" in words else words)


def _fail_if(refused: frozenset[str], verdicts: Mapping[Path, str]) -> None:
    """End the command with exit code 1, a line for each, where a verdict is one of the refused."""
    failed = {path: verdict for path, verdict in verdicts.items() if verdict in refused}
    for path, verdict in failed.items():
        console = Console(stderr=True, style="red")
        say(f"failed: {path} is judged {verdict}, which --fail-on refuses", console=console)
    if failed:
        raise typer.Exit(_FAILED)
