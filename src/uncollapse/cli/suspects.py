"""`uncollapse suspects`: the rows whose label the embedding contradicts, and how many there are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import uncollapse as uc
from uncollapse._base.check import InputError
from uncollapse._base.files import write_csv
from uncollapse.cli import options
from uncollapse.cli.embed import Rows, open_rows
from uncollapse.cli.printing import say, say_cost, show

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array
    from uncollapse.metrics import SuspectLabels

_MAX_ROWS = 50_000  # judged, sampled from more
_PAGE = 60  # rows that a page shows as pictures or texts
_NEIGHBOURS = 6  # that it shows of each
_HEAD = ["row", "name", "label", "suggested", "wrong", "score", "suspect", "candidate"]
_HEAD += ["neighbours", "labels"]


@options.grouped
def command(
    source: options.SourceArgument,
    columns: options.Columns,
    run_options: options.RunOptions,
    k: Annotated[int, typer.Option("-k", help="How many neighbours judge a row.", min=1)] = 10,
    metric: options.MetricOption = "euclidean",
    fine: Annotated[bool, typer.Option("--fine", help="Judge the fine labels.")] = False,
    max_rows: options.MaxRowsOption = _MAX_ROWS,
    most: Annotated[int, typer.Option("-n", help="How many rows to print.", min=1)] = 20,
    csv: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Write all rows here, worst first.")
    ] = None,
    html: options.HtmlOption = None,
    images: options.ImagesOption = None,
) -> None:
    """Find labels that are likely to be wrong, and say how many there are.

    Best on embeddings that were not trained on these labels: a network that has memorised wrong
    labels hides them.
    """
    from uncollapse.report.suspects_page import suspect_table

    normalize = options.normalizes(metric)
    if images is not None and html is None:
        raise InputError.conflict("--images needs --html: only the page shows pictures")
    rows = open_rows(source, columns, run_options, images)
    labels = rows.source.need_labels(fine=fine)
    say_cost(min(len(labels), max_rows), *rows.source.points.shape)
    settings: dict[str, Any] = {"neighbours": k, "normalize": normalize, "max_rows": max_rows}
    result = uc.suspect_labels(rows.source.points, labels, **settings)
    names = None if rows.source.names is None else rows.source.row_names
    if result.listed:
        show(suspect_table(result, labels, names, most))
    more = max(0, len(result.listed) - most)
    say(str(result) + (f"; {more:,} more than shown, --csv has them all" if more else ""))
    if rows.about:
        say(f"{rows.source.title}: {rows.about}")
    if csv is not None:
        write_csv(csv, _HEAD, _lines(result, labels, names))
        say(f"wrote {csv}")
    if html is not None:
        titles = rows.source.titles
        named = None if titles is None else list(map(str, titles))
        say(f"wrote {_page(rows, result, labels, named, html)}")


def _lines(result: SuspectLabels, labels: Array, names: list[str] | None) -> list[list[object]]:
    """Every row that could be judged, worst first, with its neighbours and their labels."""
    kinds, lines = result.listed, []
    for row in result.ranking.tolist():
        near = result.neighbours[row]
        name = "" if names is None else names[row]
        marks = [int(kinds.get(row) == kind) for kind in ("suspect", "candidate")]
        figures = f"{result.wrong[row]:.6f}", f"{result.score[row]:.4f}", *marks
        rows, words = " ".join(map(str, near.tolist())), " | ".join(map(str, labels[near].tolist()))
        lines.append([row, name, labels[row], result.suggested[row], *figures, rows, words])
    return lines


def _page(
    rows: Rows, result: SuspectLabels, labels: Array, names: list[str] | None, html: Path
) -> Path:
    from uncollapse.report.suspects_page import make_suspects_page

    shown = list(result.listed)[:_PAGE]
    near = {row: result.neighbours[row, :_NEIGHBOURS].tolist() for row in shown}
    images = None
    if rows.pictures is not None and shown:
        seen = sorted({*shown, *(n for neighbours in near.values() for n in neighbours)})
        images = dict(zip(seen, rows.pictures(seen), strict=True))
    title = rows.source.title
    page = make_suspects_page(result, labels, near, names=names, images=images, title=title)
    return page.save(html)
