"""`uncollapse diagnose`: a verdict on embeddings of any origin, and a page that shows why."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

import uncollapse as uc
from uncollapse._base.check import InputError, check_number, did_you_mean
from uncollapse._base.extras import return_large_blocks, without_kernels
from uncollapse._base.files import read_json
from uncollapse.cli import options
from uncollapse.cli.printing import FEW_ROWS, fail_with, failed_rules, say, status, write


@options.grouped
def command(
    files: options.SourcesArgument,
    columns: options.Columns,
    images: options.ImagesOption = None,
    html: options.HtmlOption = None,
    title: Annotated[
        str | None, typer.Option(help="What the page is headed.  \\[default: the file's name]")
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER|FILE",
            help="A healthy state to judge the scale by: its diameter, or a file of embeddings, "
            "such as those of the untrained network.  \\[default: the one before training, for "
            "runs and files of `uncollapse embed`]",
        ),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(
            help="The margin of the loss, in the embedding's own units: below it, no triplet can "
            "be satisfied.",
            min=0,
        ),
    ] = None,
    tsne: Annotated[bool, typer.Option("--tsne", help="Draw the map with t-SNE (slower).")] = False,
    max_rows: options.MaxRowsOption = FEW_ROWS,
    fail_on: Annotated[
        str | None,
        typer.Option(
            metavar="VERDICTS",
            help="Exit with code 1 on these verdicts, such as 'network-collapse,cone'; 'any' means "
            "all but healthy.",
        ),
    ] = None,
    fail_if: options.FailIfOption = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN|JSON",
            help="Exit with code 1 if a figure is worse, beyond its interval, than in this run or "
            "earlier --json file.",
        ),
    ] = None,
    json: options.JsonOption = None,
) -> None:
    """Diagnose embeddings from any framework: have they collapsed, how, and what to change?"""
    if len(files) > 1:
        one = {"images": images, "html": html, "reference": reference, "json": json}
        options.only_for("one file", "diagnose that file alone", columns, title=title, **one)
    refused, failed = refused_verdicts(fail_on), []
    settings: dict[str, Any] = {"tsne": tsne, "max_rows": max_rows}
    if margin:
        settings["thresholds"] = uc.health.Thresholds(margin=margin, margin_ratio=1.0)
    good = None if baseline is None else _read_baseline(baseline)
    scale, compared = (None, "") if reference is None else _read_reference(reference, columns)
    for file in files:
        if len(files) > 1:
            say(f"{file}:")
        if file.is_dir():
            options.only_for_files(columns, images=images)
            with status("diagnosing the run"):
                result = uc.report.diagnose_run(file, reference=scale, **settings)
        else:
            settings["modes"] = html is not None  # only the page shows them
            result = diagnose_file(file, columns, images, scale, settings)
        result = replace(result, title=title or result.title)
        result = replace(result, compared_with=compared or result.compared_with)
        say(str(result))
        if result.verdict in refused:
            failed.append(f"{file} is judged {result.verdict}, which --fail-on refuses")
        failed += [f"{file}: {why}" for why in failed_rules(fail_if or [], result.figures)]
        if good is not None:
            failed += [f"{file}: {why}" for why in result.worse_than(good)]
        if html is not None:
            say(f"wrote {result.save(html)}")
        write(json, {"file": str(file)} | result.to_dict())
    fail_with(failed)


@dataclass(frozen=True)
class _Baseline:
    verdict: str
    figures: dict[str, float | None]
    intervals: dict[str, tuple[float, float]]


def _read_baseline(path: Path) -> dict[str, Any]:
    """What an earlier diagnosis wrote, or the diagnosis of a run."""
    if path.is_dir():
        return uc.report.diagnose_run(path).to_dict()
    from pydantic import TypeAdapter, ValidationError

    good = read_json(path)
    try:
        known = TypeAdapter(_Baseline).validate_python(good)
        if {"rows", *known.intervals} <= set(known.figures):
            return good
    except ValidationError:
        pass
    raise InputError("--baseline", path, "a run, or what `uncollapse diagnose --json` wrote")


def _read_reference(text: str, columns: options.Columns) -> tuple[uc.Health | float, str]:
    """A number, or the scale of the embeddings in a file; and what it is, in words."""
    try:
        diameter = float(text)
    except ValueError:
        source = options.open_file(Path(text), replace(columns, labels=None, id=None))
        health = uc.measure(source.points, source.labels, modes=False)
        return health, f"diameter {health.diameter:.3g} of {len(source):,} rows of {source.title}"
    return check_number("--reference", diameter, 0.0), ""


def diagnose_file(
    file: Path,
    columns: options.Columns,
    images: Path | None,
    reference: uc.Health | float | None,
    settings: dict[str, Any],
) -> uc.report.Diagnosis:
    """Diagnose a file; one written by `uncollapse embed` has its own reference."""
    from threadpoolctl import threadpool_limits

    return_large_blocks()
    source = options.open_file(file, columns, drops=())
    origin = source.origin
    start = None if reference is not None or origin is None else origin.start
    with status(f"diagnosing {len(source):,} embeddings", len(source)), ExitStack() as light:
        if len(source) <= FEW_ROWS:  # kernels and a second thread take longer than they save
            light.enter_context(without_kernels())
            light.enter_context(threadpool_limits(1))
        result = uc.diagnose(
            source.points,
            source.labels,
            source.fine_labels,
            None if images is None else source.find_pictures(images),
            names=source.titles,
            title=source.title,
            reference=reference if start is None else _as_reference(start),
            cosine=origin is None or origin.cosine is not False,
            **settings,
        )
    split = "" if origin is None else origin.split or ""
    return replace(result, split=split, compared_with="" if start is None else str(start))


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
