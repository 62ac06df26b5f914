"""Verdicts in words: what happened, and what helps."""

from __future__ import annotations

from typing import NamedTuple

from uncollapse.report.markup import Html, esc

__all__ = ["VerdictWords", "badge", "verdict_words"]


class VerdictWords(NamedTuple):
    """How a verdict is shown: a sign, a tone, a headline, and what helps."""

    glyph: str
    tone: str
    headline: str
    helps: str


_WORDS = {
    "healthy": VerdictWords("✓", "good", "Healthy: no collapse found", ""),
    "shrinking": VerdictWords(
        "▼",
        "warn",
        "Shrinking: the embedding is losing its scale",
        "It is not a point yet. Hard positives with hard negatives pull everything together: easy "
        "positives, semi-hard negatives, a scale-free loss or a smaller mining pool do not.",
    ),
    "network-collapse": VerdictWords(
        "✗",
        "bad",
        "Network collapse: all embeddings have gone to one point",
        "What helps: easy positives or semi-hard negatives in place of hard with hard; a "
        "scale-free loss; fewer samples to mine over; a lower learning rate.",
    ),
    "class-collapse": VerdictWords(
        "✗",
        "bad",
        "Class collapse: classes have become points",
        "What is inside a class can no longer be told apart. What helps: easy positives, which "
        "pull a sample only to the nearest of its class, so that a class may keep several modes.",
    ),
    "dimensional-collapse": VerdictWords(
        "✗",
        "bad",
        "Dimensional collapse: few of the axes are used",
        "A smaller dim would hold the same. If more is wanted: less weight decay, a lower learning "
        "rate, more classes in a batch.",
    ),
    "diverging": VerdictWords(
        "✗",
        "bad",
        "Diverging: the embedding grows without bound",
        "What helps: a lower learning rate, gradient clipping, embeddings of length 1.",
    ),
}
_UNKNOWN = VerdictWords("?", "none", "Not judged", "")


def verdict_words(verdict: str | None) -> VerdictWords:
    """The words for a verdict; None or an unknown one is not judged.

    >>> verdict_words("healthy").headline
    'Healthy: no collapse found'
    """
    return _WORDS.get(verdict or "", _UNKNOWN)


def badge(verdict: str | None) -> Html:
    """A verdict in a table: sign and word.

    >>> badge("healthy")
    '<span class="badge good">✓ healthy</span>'
    """
    words = verdict_words(verdict)
    return Html(
        f'<span class="badge {words.tone}">{words.glyph} {esc(verdict or "not judged")}</span>'
    )
