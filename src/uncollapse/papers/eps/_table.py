"""Tables of methods by scores, each stated as data: EPS Tables 2, 3, 4 and 6."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from uncollapse.papers._beside import Beside, publish
from uncollapse.papers._item import Item, Request
from uncollapse.papers.eps._scores import Column, score_rows
from uncollapse.papers.eps._study import Methods, Study
from uncollapse.papers.eps.methods import BASELINE
from uncollapse.papers.eps.protocols import TIMES

__all__ = ["Part", "columns", "table_item"]


class Part:
    """A study with the columns read from it, and the paper's rows for the same columns."""

    def __init__(
        self,
        study: Study,
        columns: Sequence[Column],
        paper: Mapping[str, Sequence[float | None]],
        heading: str = "",
    ) -> None:
        self.study, self.columns, self.paper, self.heading = study, columns, paper, heading


def columns(
    split: str, ks: Sequence[int], nmi: Mapping[str, int], *, name: str = "", fine: bool = False
) -> list[Column]:
    """Recall@k for the `ks`, then NMI by title with so many clusters a class.

    >>> [column.title for column in columns("test", [1, 2], {"NMI+": 10})]
    ['R@1', 'R@2', 'NMI+']
    """
    found = [Column(f"{name} R@{k}".strip(), split, fine, k) for k in ks]
    named = nmi.items()
    return found + [Column(f"{name} {t}".strip(), split, fine, clusters=c) for t, c in named]


def table_item(
    name: str,
    title: str,
    methods: Methods,
    parts: Sequence[Part],
    *,
    needs: str,
    summary: str,
    laptop: str = "minutes",
) -> Item:
    """The item of a table: each part is trained, scored and set beside the paper's numbers."""
    return Item(
        name=name,
        summary=summary,
        needs=needs,
        time=TIMES | {"laptop": laptop},
        make=_maker(name, title, methods, parts),
        scales=("laptop", "smoke", "paper"),
    )


def _maker(
    name: str, title: str, methods: Methods, parts: Sequence[Part]
) -> Callable[[Request], list[Path]]:
    def make(request: Request) -> list[Path]:
        made: list[Path] = []
        for part in parts:
            trained = part.study.train(request, methods)
            table = Beside(
                title + (f", {part.heading}" if part.heading else ""),
                score_rows(trained, part.columns, part.paper, BASELINE),
                about=trained.about(request, name),
                notes=trained.notes,
            )
            file = f"{name}-{part.study.name.split('-')[0]}" if len(parts) > 1 else name
            made += publish(request, name, table, file=file)
        return made

    return make
