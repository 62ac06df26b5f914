"""The page of `uncollapse suspects`: rows whose labels their neighbours contradict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from uncollapse._base.arrays import Array, ArrayLike, label_array
from uncollapse._base.check import visible
from uncollapse._base.table import Cell, Table, percent
from uncollapse.metrics.suspects import SuspectLabels
from uncollapse.report.neighbours import contact_sheet, embedded, short_line
from uncollapse.report.page import Page

_FIRST = 12  # rows of the table that are shown at once
_NAME = 28  # characters of a name in the table
_OPEN = 12  # cards that are shown at once
_CLASSES = 3  # whose votes are listed


def make_suspects_page(
    result: SuspectLabels,
    labels: ArrayLike,
    near: Mapping[int, Sequence[int]],
    *,
    names: Sequence[str] | None = None,
    images: Mapping[int, Any] | None = None,
    title: str = "Suspect labels",
) -> Page:
    """A card for each row of `near`, which has the neighbours to show, and a table of all
    suspects and candidates.

    `images` are by row, for the rows of `near` and their neighbours; without them the cards have
    names or texts.
    """
    given = label_array(labels)
    known = {} if names is None else dict(enumerate(map(short_line, names)))
    brief = None if names is None else [short_line(name, _NAME) for name in names]
    kinds, cards = result.listed, []
    for row, rows in near.items():
        label, suggested = str(given[row]), str(result.suggested[row])
        # Of the neighbours: of the suggested label, of the row's own, of a third one.
        marks = [{suggested: True, label: False}.get(str(given[n])) for n in rows]
        votes = Counter(given[result.neighbours[row]].tolist()).most_common(_CLASSES)
        card: dict[str, object] = {
            "label": f"{label} → {suggested}",
            "wrong": f"{result.wrong[row]:.3f}",
            "kind": kinds.get(row, "not listed"),
            "text": known.get(row, f"row {row}"),
            "votes": ", ".join(f"{count} × {voted}" for voted, count in votes),
            "near": [
                {"text": known.get(n, f"row {n}"), "label": str(given[n]), "right": mark}
                for n, mark in zip(rows, marks, strict=True)
            ],
        }
        if images is not None:
            card |= embedded(contact_sheet([images[row]], [[images[n] for n in rows]], [marks]))
        cards.append(card)
    content = {
        "title": title,
        "lead": str(result),
        "figures": {
            "suspect": len(result.rows),
            "candidates": len(result.candidates),
            "estimated wrong": round(result.expected),
            "share of labels": percent(result.rate),
            "labels judged": int(result.judged.sum()),
        },
        "cards": cards,
        "first": _OPEN,
        "pictures": images is not None,
        "table": suspect_table(result, given, brief, len(kinds)) if kinds else None,
        "more": len(kinds) - len(cards),
    }
    return Page("suspects.html.j2", content)


def suspect_table(
    result: SuspectLabels, labels: Array, names: Sequence[str] | None, most: int
) -> Table:
    """The worst of them, with the label that their neighbours suggest."""
    named = ["name"] * (names is not None)
    head = ["row", *named, "label", "suggested", "agree", "P(wrong)", "kind"]
    table = Table(head, first=_FIRST)
    for row, kind in list(result.listed.items())[:most]:
        near, suggested = labels[result.neighbours[row]], result.suggested[row]
        agree = f"{int((near == suggested).sum())} of {len(near)}"
        name = [] if names is None else [names[row]]
        words = *name, str(labels[row]), str(suggested), agree
        wrong = float(result.wrong[row])
        table.add(str(row), *map(visible, words), Cell(f"{wrong:.3f}", wrong), kind)
    return table
