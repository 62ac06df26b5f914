"""`uncollapse diagnose`: a verdict on embeddings of any origin, and a page that shows why."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import uncollapse as uc
from uncollapse._base.check import InputError, did_you_mean
from uncollapse._base.extras import keep_memory, without_kernels
from uncollapse.cli import options
from uncollapse.cli.printing import say, status

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
            help="The diameter of a healthy state, to judge the scale by.  \\[default: the one "
            "before training, for runs and files of `uncollapse embed`]"
        ),
    ] = None,
    tsne: Annotated[bool, typer.Option("--tsne", help="Draw the map with t-SNE (slower).")] = False,
    max_rows: Annotated[
        int,
        typer.Option(
            help="Score at most this many rows, sampled from more; they search all.", min=8
        ),
    ] = 5_000,
    fail_on: Annotated[
        str | None,
        typer.Option(
            metavar="VERDICTS",
            help="Exit with code 1 on these verdicts, such as 'network-collapse,cone'; 'any' means "
            "all but healthy.",
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
    refused, failed = refused_verdicts(fail_on), []
    settings: dict[str, Any] = {"tsne": tsne, "max_rows": max_rows}
    for file in files:
        if len(files) > 1:
            say(f"{file}:")
        if file.is_dir():
            options.only_for_files(columns, images=images)
            with status("diagnosing the run"):
                result = uc.report.diagnose_run(file, reference=reference, **settings)
        else:
            settings["modes"] = html is not None  # only the page shows them
            result = diagnose_file(file, columns, images, reference, settings)
        say(str(result))
        if result.verdict in refused:
            failed.append(f"{file} is judged {result.verdict}")
        if html is not None:
            say(f"wrote {result.save(html)}")
    for text in failed:
        line = f"failed: {text}, which --fail-on refuses"
        say(line, style="red", console=Console(stderr=True))
    if failed:
        raise typer.Exit(1)


def diagnose_file(
    file: Path,
    columns: options.Columns,
    images: Path | None,
    reference: float | None,
    settings: dict[str, Any],
) -> uc.report.Diagnosis:
    """Diagnose a file; one written by `uncollapse embed` has its own reference."""
    source = options.open_file(file, columns)
    origin = source.origin
    start = None if reference is not None or origin is None else origin.start
    light = _lightly() if len(source) <= _SMALL else nullcontext()
    with status(f"diagnosing {len(source):,} embeddings"), light:
        result = uc.diagnose(
            source.points,
            source.labels,
            source.fine_labels,
            None if images is None else source.find_pictures(images),
            names=source.names,
            title=source.title,
            reference=reference if start is None else _as_reference(start),
            cosine=origin is None or origin.cosine is not False,
            **settings,
        )
    split = "" if origin is None else origin.split or ""
    return replace(result, split=split, compared_with="" if start is None else str(start))


@contextmanager
def _lightly() -> Iterator[None]:
    """Neither kernels nor a second thread: for few rows both take longer than they save."""
    from threadpoolctl import threadpool_limits

    with without_kernels(), threadpool_limits(1):
        yield


def _as_reference(start: uc.data.sources.StartScale) -> uc.health.Reference:
    known = (start.spread, start.cdnv, start.fine_agreement, start.fine_chance)
    figures = (math.nan if value is None else value for value in known)
    return uc.health.Reference(start.diameter, *figures)


def refused_verdicts(text: str | None) -> frozenset[str]:
    """The verdicts that `--fail-on` names; `InputError` for an unknown word.

    >>> sorted(refused_verdicts("cone, network-collapse"))
    ['cone', 'network-collapse']
    >>> "shrinking" in refused_verdicts("any"), "healthy" in refused_verdicts("any")
    (True, False)
    """
    if text is None:
        return frozenset()
    bad = list(uc.health.VERDICTS)[1:]  # the first is healthy
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in (*bad, "any"):
            allowed = f"any, or one or several of {', '.join(bad)} with commas between"
            raise InputError("--fail-on", repr(word) + did_you_mean(word, bad), allowed)
    return frozenset(bad if "any" in words else words)
