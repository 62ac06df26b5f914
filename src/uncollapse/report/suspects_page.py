"""The page of `uncollapse suspects`: each row whose label its neighbours contradict, and they."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from uncollapse._base.arrays import Array, ArrayLike, label_array
from uncollapse.metrics.suspects import SuspectLabels
from uncollapse.report.neighbours import contact_sheet, data_uri, short_line
from uncollapse.report.page import Page, Table

__all__ = ["make_suspects_page"]

_FIRST = 20  # rows of the table that are shown at once
_CLASSES = 3  # whose votes are listed


def make_suspects_page(
    found: SuspectLabels,
    labels: ArrayLike,
    near: Mapping[int, Sequence[int]],
    *,
    names: Sequence[str] | None = None,
    images: Mapping[int, Any] | None = None,
    title: str = "Suspect labels",
) -> Page:
    """A card for each row of `near`, which has the neighbours to show, and a table of all suspects.

    `images` are by row, for the rows of `near` and their neighbours; without them the cards have
    names or texts.
    """
    given = label_array(labels)
    cards = [_card(found, given, row, near[row], names, images) for row in near]
    rows = found.rows.tolist()
    lines: list[list[object]] = [
        [
            row,
            *([] if names is None else [short_line(names[row])]),
            str(given[row]),
            str(found.suggested[row]),
            round(float(found.wrong[row]), 3),
        ]
        for row in rows
    ]
    head = ["row", *["name"] * (names is not None), "label", "suggested", "P(wrong)"]
    figures = {
        "suspect": len(rows),
        "estimated wrong": round(found.expected),
        "share of labels": f"{found.rate:.1%}",
        "labels judged": int(found.judged.sum()),
    }
    content = {
        "title": title,
        "lead": str(found),
        "figures": figures,
        "cards": cards,
        "pictures": images is not None,
        "table": Table(head, lines, first=_FIRST) if lines else None,
        "more": len(rows) - len(cards),
    }
    return Page("suspects.html.j2", content)


def _card(
    found: SuspectLabels,
    labels: Array,
    row: int,
    near: Sequence[int],
    names: Sequence[str] | None,
    images: Mapping[int, Any] | None,
) -> dict[str, object]:
    label, suggested = str(labels[row]), str(found.suggested[row])
    # Of the neighbours: of the suggested label, of the row's own, of a third one.
    kinds = [{suggested: True, label: False}.get(str(labels[n])) for n in near]
    votes = Counter(labels[found.neighbours[row]].tolist()).most_common(_CLASSES)
    card: dict[str, object] = {
        "label": label,
        "suggested": suggested,
        "wrong": f"{found.wrong[row]:.3f}",
        "name": f"row {row}" if names is None else f"row {row} · {short_line(names[row])}",
        "votes": ", ".join(f"{count} × {one}" for one, count in votes),
    }
    if images is not None:
        sheet = contact_sheet([images[row]], [[images[n] for n in near]], [kinds])
        return card | {"source": data_uri(sheet), "width": sheet.width, "height": sheet.height}
    words = [f"row {n}" if names is None else short_line(names[n]) for n in near]
    tones = {True: "good", False: "bad", None: ""}
    lines = zip(words, near, kinds, strict=True)
    return card | {
        "near": [{"text": w, "label": str(labels[n]), "tone": tones[kind]} for w, n, kind in lines]
    }
