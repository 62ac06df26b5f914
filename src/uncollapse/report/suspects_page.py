"""The page of `uncollapse suspects`: rows whose labels their neighbours contradict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from uncollapse._base.arrays import ArrayLike, label_array
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
    kinds, suspects = result.listed, list[list[object]]()
    for row, kind in kinds.items():
        name = Cell(short_line(known[row], _NAME), note=f"row {row}") if known else row
        wrong = round(float(result.wrong[row]), 3)
        suspects.append([name, str(given[row]), str(result.suggested[row]), wrong, kind])
    cards = []
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
    head = ["name" if known else "row", "label", "suggested", "P(wrong)", "kind"]
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
        "table": Table(head, suspects, first=_FIRST) if suspects else None,
        "more": len(suspects) - len(cards),
    }
    return Page("suspects.html.j2", content)
