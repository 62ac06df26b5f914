"""Text folded between words, for terminals: a word is cut only where it is wider than the room."""

from __future__ import annotations

import re
import textwrap

from rich.cells import cell_len, chop_cells

__all__ = ["folded", "longest_piece", "wrapped_for"]

# Where a path, a list or a name may be broken if it must be: after these.
_JOINT = re.compile(r"(?<=[/\\_,;=:|])(?=.)|(?<=[^\W\d]-)(?=\w)")


def folded(text: str, room: int) -> list[str]:
    """Lines of at most `room` columns; line breaks in the text stay.

    A word that is too wide is broken after a slash, an underscore or the like; where that does not
    do, anywhere.

    >>> folded("one two three", 8), folded("runs/long-name/report.html", 12)
    (['one two', 'three'], ['runs/long-', 'name/', 'report.html'])
    """
    room = max(1, room)
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line = ""
        for word in paragraph.split(" "):
            glue = " " if line else ""
            for piece in _pieces(word, room):
                if line and cell_len(line + glue + piece) > room:
                    lines.append(line)
                    line, glue = "", ""
                line, glue = line + glue + piece, ""
        lines.append(line)
    return lines


def longest_piece(text: str, *, joints: bool = False) -> int:
    """Columns of the widest word; with `joints`, of the widest part that may not be broken.

    >>> longest_piece("in runs/name"), longest_piece("in runs/name", joints=True)
    (9, 5)
    """
    words = text.split()
    if joints:
        words = [piece for word in words for piece in _JOINT.split(word)]
    return max(map(cell_len, words), default=0)


def wrapped_for(width: int, text: str) -> str:
    """Paragraphs wrapped between words, each under its own indentation; words stay whole.

    >>> print(wrapped_for(12, "  one two three\\nfour"))
      one two
      three
    four
    """
    found = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        lines = textwrap.wrap(
            line.strip(),
            max(width, len(indent) + 1),
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        found += lines or [""]
    return "\n".join(found)


def _pieces(word: str, room: int) -> list[str]:
    if cell_len(word) <= room:
        return [word]
    pieces: list[str] = []
    for part in _JOINT.split(word):
        pieces += [part] if cell_len(part) <= room else chop_cells(part, room)
    return pieces
