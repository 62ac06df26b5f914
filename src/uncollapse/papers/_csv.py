"""Rows as CSV, the same on every system."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

__all__ = ["csv_text"]


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    r"""The rows, the heading first, each ended by a line feed.

    >>> csv_text([["what", "value"], ["a, b", 1]])
    'what,value\n"a, b",1\n'
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
