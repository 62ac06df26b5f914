"""What a page says about each verdict: a headline, and what it means; the adviser adds a cure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from uncollapse.report.tables import Cell

__all__ = ["VerdictText", "verdict_cell", "verdict_text"]


class VerdictText(NamedTuple):
    """How a verdict is shown: a glyph, a tone of the page, a headline, and what it means."""

    glyph: str
    tone: str
    headline: str
    helps: str


_TEXTS = {
    "healthy": VerdictText("✓", "good", "Healthy: no collapse found", ""),
    "shrinking": VerdictText(
        "▼",
        "warn",
        "Shrinking: the embedding is losing its scale",
        "It is not a point yet. Hard positives with hard negatives pull all embeddings together.",
    ),
    "network-collapse": VerdictText(
        "✗",
        "bad",
        "Network collapse: all embeddings have gone to one point",
        "Hard positives with hard negatives pull all embeddings together.",
    ),
    "class-collapse": VerdictText(
        "✗",
        "bad",
        "Class collapse: classes have become points",
        "Samples of the same class can no longer be told apart. Easy positives pull a sample only "
        "towards the nearest one of its class, so that a class can keep several modes.",
    ),
    "dimensional-collapse": VerdictText(
        "✗",
        "bad",
        "Dimensional collapse: few of the axes are used",
        "A smaller embedding dimension would hold the same information.",
    ),
    "diverging": VerdictText(
        "✗",
        "bad",
        "Diverging: the embedding grows without bound",
        "",
    ),
    "cone": VerdictText(
        "✗",
        "bad",
        "Cone: all embeddings point nearly the same way",
        "This concerns comparison by cosine: what tells rows apart is in the last digits. At "
        "search time, subtract the mean of the embeddings from each, and from each query, before "
        "cosines are taken. Compared by Euclidean distance, rows that are not normalised lose "
        "nothing by it.",
    ),
    "uninformative": VerdictText(
        "✗",
        "bad",
        "Uninformative: neighbours share labels no more often than chance",
        "The embedding may have its scale and its axes, but it says nothing about these labels. "
        "What to check: that labels and rows are in the same order, that the network was trained "
        "(and its weights loaded), that the labels are what it was trained for.",
    ),
}
_MERGED = "Class collapse: the modes inside classes have merged"
_UNKNOWN = VerdictText("?", "none", "Not judged", "")


def verdict_text(verdict: str | None, reasons: Sequence[str] = ()) -> VerdictText:
    """The texts of a verdict; None or an unknown one is not judged.

    Of the two kinds of class collapse the deciding reason, the first, says which it is.

    >>> verdict_text("healthy").headline
    'Healthy: no collapse found'
    """
    found = _TEXTS.get(verdict or "", _UNKNOWN)
    if verdict == "class-collapse" and reasons and "nearly points" not in reasons[0]:
        return found._replace(headline=_MERGED)
    return found


def verdict_cell(verdict: str | None) -> Cell:
    """A verdict in a table: glyph and word.

    >>> verdict_cell("healthy")
    Cell(text='✓ healthy', value=None, note='', style='badge good')
    """
    found = verdict_text(verdict)
    return Cell(f"{found.glyph} {verdict or 'not judged'}", style=f"badge {found.tone}")
