"""`uncollapse compare`: two embeddings of the same rows, before and after an upgrade."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from uncollapse._base.check import InputError
from uncollapse.cli import options
from uncollapse.cli.printing import fail_with, failed_rules, say, show, status, warn, write

if TYPE_CHECKING:
    from uncollapse.data.sources import Source

_PRINTED = 5  # classes and rows that lost most


@options.grouped
def command(
    old: options.FileArgument,
    new: Annotated[Path, typer.Argument(help="Newer embeddings of the same rows.")],
    columns: options.Columns,
    metric: options.MetricOption = "euclidean",
    k: Annotated[int, typer.Option("-k", help="How many neighbours are compared.", min=1)] = 10,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="The old limit for a pair to be the same: a distance, or a cosine with --metric "
            "cosine.  \\[default: the one that accepts 0.1 % of pairs of different labels]"
        ),
    ] = None,
    fail_if: options.FailIfOption = None,
    json: options.JsonOption = None,
    html: options.HtmlOption = None,
) -> None:
    """Compare two versions of an embedding: what got worse, and which threshold to use now?

    Rows are joined by name where both files have names, otherwise by position. Labels are those of
    OLD, or of NEW where OLD has none.
    """
    drops = ("invalid", "zero") if options.normalizes(metric) else ("invalid",)
    before = options.open_file(old, columns, drops=None)
    after = options.open_file(new, options.own_columns(columns), drops=None)
    before, after, joined = _joined(before, after)
    before, after = options.keep_rows([before, after], columns.drop, drops)
    labels = after.labels if before.labels is None else before.labels
    if labels is not None and after.labels is not None:
        differ = int((labels.astype(str) != after.labels.astype(str)).sum())
        if differ:
            warn(f"{differ:,} rows have another label in {new.name}; those of {old.name} are used")
    from uncollapse.report.comparison_page import compare

    titles, names = (before.title, after.title), before.names
    about: dict[str, Any] = {"titles": titles, "joined": joined, "metric": metric}
    about["names"] = after.names if names is None else names
    with status(f"comparing {len(before):,} rows", len(before)):
        result = compare(before.points, after.points, labels, k=k, threshold=threshold, **about)
    say(result.about)
    show(result.verdict_table())
    for line in result.sentences():
        say(line)
    for table in filter(None, (result.class_table(_PRINTED), result.row_table(_PRINTED))):
        show(table)
    write(json, {"old": str(old), "new": str(new)} | result.to_dict())
    if html is not None:
        say(f"wrote {result.save(html)}")
    fail_with(failed_rules(fail_if or [], result.figures))


def _joined(old: Source, new: Source) -> tuple[Source, Source, str]:
    """The rows that both have, in the old order, and by what they were joined."""
    if old.names is None or new.names is None or np.array_equal(old.names, new.names):
        if len(old) != len(new):
            allowed = f"{len(old):,} as in {old.title}, or names in both files to join by"
            raise InputError(new.title, f"{len(new):,} rows", allowed)
        return old, new, "joined row by row"
    from uncollapse.data.sources import join_by_name

    before, after = join_by_name(old, new)
    lost = [len(side) - len(before) for side in (old, new)]
    if any(lost):
        only = f"{lost[0]:,} rows of {old.title}, {lost[1]:,} of {new.title}"
        warn(f"left out, for the other file lacks their names: {only}")
    return before, after, "joined by name"
