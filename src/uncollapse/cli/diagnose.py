"""`uncollapse diagnose`: a verdict on embeddings of any origin, and a page that shows why."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uncollapse.cli.file_options import (
    FeaturesOption,
    IdOption,
    IgnoreOption,
    LabelOption,
    LabelsOption,
    only_for,
    open_embeddings,
)
from uncollapse.cli.plain_lines import say
from uncollapse.cli.verdict_gate import FailOnOption, fail_if, refused_verdicts

if TYPE_CHECKING:
    from uncollapse.data.readers import StartScale
    from uncollapse.health import Reference

__all__ = ["command"]

_SMALL = 5_000  # rows


def command(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Embeddings: .npz, .npy, .safetensors, .parquet or .csv; or a run directory.",
        ),
    ],
    labels: LabelsOption = None,
    fine_labels: Annotated[
        Path | None, typer.Option(help="A third file, with finer labels to evaluate by as well.")
    ] = None,
    features: FeaturesOption = None,
    label: LabelOption = None,
    id_: IdOption = None,
    ignore: IgnoreOption = None,
    images: Annotated[
        Path | None,
        typer.Option(help="Images: an .npy array, or the folder that contains the named files."),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a self-contained HTML page.")] = None,
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
    fail_on: FailOnOption = None,
) -> None:
    """Diagnose embeddings from any framework: have they collapsed, how, and what to change?"""
    from dataclasses import replace

    from rich.console import Console

    from uncollapse._base.extras import keep_memory
    from uncollapse.data.sources import read_labels

    keep_memory()  # large blocks come and go
    console = Console(highlight=False)
    of_files = {
        "--labels": labels,
        "--fine-labels": fine_labels,
        "--features": features,
        "--label": label,
        "--id": id_,
        "--ignore": ignore,
        "--images": images,
    }
    if len(files) > 1:
        of_one = of_files | {"--html": html, "--reference": reference}
        only_for("several files", "diagnose that one alone", of_one)
    refused, verdicts = refused_verdicts(fail_on), {}
    for file in files:
        if len(files) > 1:
            say(console, f"{file}:")
        if file.is_dir():
            only_for("a run directory", "embed the run into a file, and diagnose that", of_files)
            from uncollapse.report import diagnose_run

            with console.status("diagnosing the run"):
                result = diagnose_run(file, reference=reference, tsne=tsne, max_rows=max_rows)
        else:
            found = open_embeddings(file, labels, features, label, id_, ignore)
            fine = found.fine_labels if fine_labels is None else read_labels(fine_labels)
            start = None if reference is not None or found.origin is None else found.origin.start
            pictures = None
            if images is not None:
                from uncollapse.cli.picture_files import find_pictures

                pictures = find_pictures(images, found.names)
            small = len(found) <= _SMALL
            from uncollapse.report import diagnose

            with (
                console.status(f"diagnosing {len(found):,} embeddings"),
                _lightly() if small else nullcontext(),
            ):
                result = diagnose(
                    found.points,
                    found.labels,
                    fine,
                    pictures,
                    names=found.names,
                    title=file.name,
                    reference=reference if start is None else _as_reference(start),
                    tsne=tsne,
                    max_rows=max_rows,
                    modes=html is not None,  # only the page shows them
                    cosine=found.origin is None or found.origin.cosine is not False,
                )
            split = "" if found.origin is None else found.origin.split or ""
            compared = "" if start is None else str(start)
            result = replace(result, split=split, compared_with=compared)
        say(console, str(result))
        verdicts[file] = result.verdict
        if html is not None:
            say(console, f"wrote {result.save(html)}")
    fail_if(refused, verdicts)


@contextmanager
def _lightly() -> Iterator[None]:
    """Neither kernels nor a second thread: for few rows both take longer than they save."""
    from threadpoolctl import threadpool_limits

    from uncollapse._base.extras import without_kernels

    with without_kernels(), threadpool_limits(1):
        yield


def _as_reference(start: StartScale) -> Reference:
    from uncollapse.health import Reference

    known = (start.spread, start.cdnv, start.fine_agreement, start.fine_chance)
    return Reference(start.diameter, *(math.nan if one is None else one for one in known))
