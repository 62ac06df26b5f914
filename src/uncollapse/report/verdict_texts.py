"""What a page says about each verdict: a headline, and what helps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from uncollapse.report.tables import Cell

__all__ = ["VerdictText", "verdict_cell", "verdict_text"]


class VerdictText(NamedTuple):
    """How a verdict is shown: a glyph, a tone of the page, a headline, and what helps."""

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
        "It is not a point yet. Hard positives with hard negatives pull all embeddings together. "
        "What helps: easy positives, semi-hard negatives, a scale-free loss, or fewer samples to "
        "mine from.",
    ),
    "network-collapse": VerdictText(
        "✗",
        "bad",
        "Network collapse: all embeddings have gone to one point",
        "What helps: easy positives or semi-hard negatives instead of hard positives with hard "
        "negatives; a scale-free loss; fewer samples to mine from; a lower learning rate.",
    ),
    "class-collapse": VerdictText(
        "✗",
        "bad",
        "Class collapse: classes have become points",
        "Samples of the same class can no longer be told apart. What helps: easy positives, which "
        "pull a sample only towards the nearest one of its class, so that a class can keep "
        "several modes.",
    ),
    "dimensional-collapse": VerdictText(
        "✗",
        "bad",
        "Dimensional collapse: few of the axes are used",
        "A smaller embedding dimension would hold the same information. To use more axes: less "
        "weight decay, a lower learning rate, more classes per batch.",
    ),
    "diverging": VerdictText(
        "✗",
        "bad",
        "Diverging: the embedding grows without bound",
        "What helps: a lower learning rate, gradient clipping, normalised embeddings.",
    ),
    "cone": VerdictText(
        "✗",
        "bad",
        "Cone: all embeddings point nearly the same way",
        "This concerns comparison by cosine: what tells rows apart is in the last digits. What "
        "helps: subtract the mean of the embeddings from each before cosines are taken (and from "
        "each query), or whiten them; in training, a loss that pushes negatives apart. Compared "
        "by Euclidean distance, rows that are not normalised lose nothing by it.",
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
