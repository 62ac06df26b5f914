"""A table of methods by scores, stated as data: EPS Tables 1, 2, 3, 4 and 6."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from uncollapse.papers._compare import Comparison, Score, publish
from uncollapse.papers._item import Item, Made, Request
from uncollapse.papers._study import Cells, Setup, Study, Trained
from uncollapse.papers.eps._scores import Column, measure, measure_all_before

__all__ = ["Part", "method_scores", "table_item"]


@dataclass(frozen=True)
class Part:
    """A study, the columns read from its runs, and the paper's rows: a number per column.

    `file` names what is written, where a table has several parts.
    """

    study: Study[Setup]
    columns: Sequence[Column]
    paper: Mapping[str, Sequence[float | None]]
    heading: str = ""
    file: str = ""


def table_item(
    name: str,
    title: str,
    methods: Cells,
    parts: Sequence[Part],
) -> Item:
    """The table as an item: of each part, the paper's methods are trained, scored and compared."""
    return Item.of(name, partial(_make, title, methods, parts))


def _make(title: str, methods: Cells, parts: Sequence[Part], request: Request) -> Made:
    made = [_make_part(title, methods, part, request) for part in parts]
    files = [path for one in made for path in one.files]
    return Made(files, [page for one in made for page in one.pages])


def _make_part(title: str, methods: Cells, part: Part, request: Request) -> Made:
    trained = part.study.train(request, {name: methods[name] for name in part.paper})
    return publish(
        request,
        f"{title}, {part.heading}" if part.heading else title,
        Comparison(method_scores(trained, part.columns, part.paper)),
        about=trained.about(request),
        notes=trained.notes,
        file=part.file,
    )


def method_scores(
    trained: Trained,
    columns: Sequence[Column],
    paper: Mapping[str, Sequence[float | None]],
) -> list[Score]:
    """The scores of the paper's methods; one called "EPS + X" is compared with X."""
    rows = []
    before = measure_all_before(trained, columns)
    for method, theirs in paper.items():
        found = [measure(run, columns) for run in trained.runs[method]]
        than = method.removeprefix("EPS + ")
        for column, value in zip(columns, theirs, strict=True):
            ours, start = (
                [one[column.title] for one in scores] for scores in (found, before[method])
            )
            other = than if than != method else None
            rows.append(Score(method, column.title, value, ours, other, start))
    return rows
