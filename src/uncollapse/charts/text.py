"""Estimated width of text, without a font, for a layout that fits in every renderer."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from html import escape

from uncollapse._base.check import visible
from uncollapse._base.table import number

# Advance of ' ' to '~' in hundredths of the size: a wide sans serif, so that narrower ones fit too.
_ADVANCES = (
    "3240468464957827393950843236323464646464646464646464343484848453996869707763587775"
    "292966568675796079696361736899696169393439845050616355636235636328285828976361636341523963"
    "598259595264346484"
)
_NOT_XML = re.compile("[^\t\n -~\x80-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_OTHER = 0.65
_BOLD = 1.13


def text_width(text: str, size: float = 12.0, *, bold: bool = False) -> float:
    """Estimated width of a line of text, rather too large than too small.

    >>> round(text_width("0.25"), 1), round(text_width("0.25", 24), 1)
    (26.9, 53.8)
    """
    return size * (_BOLD if bold else 1.0) * sum(_advance(character) for character in text)


def fitting_size(text: str, room: float, size: float = 12.0, least: float = 1.0) -> float:
    """The largest size up to `size`, in half units and at least `least`, at which text fits.

    >>> fitting_size("0.25", 100), fitting_size("0.25", 20)
    (12.0, 8.5)
    """
    wide = text_width(text, size)
    if wide <= room:
        return size
    return max(least, int(2 * size * room / wide) / 2)


def wrapped(text: str, room: float, size: float = 12.0, *, bold: bool = False) -> list[str]:
    """Lines that fit into `room`; line breaks in the text stay, a word too long is cut.

    >>> wrapped("one two three", 50)
    ['one two', 'three']
    """
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line = ""
        for word in _pieces(paragraph.split(" "), room, size, bold):
            longer = f"{line} {word}" if line else word
            if line and text_width(longer, size, bold=bold) > room:
                lines.append(line)
                longer = word
            line = longer
        lines.append(line)
    return lines if text else []


def _pieces(words: list[str], room: float, size: float, bold: bool) -> list[str]:
    pieces = []
    for word in words:
        while len(word) > 1 and text_width(word, size, bold=bold) > room:
            fits = len(word) - 1
            while fits > 1 and text_width(word[:fits], size, bold=bold) > room:
                fits -= 1
            pieces.append(word[:fits])
            word = word[fits:]
        pieces.append(word)
    return pieces


def _advance(character: str) -> float:
    start = 2 * (ord(character) - 32)
    if 0 <= start < len(_ADVANCES):
        return int(_ADVANCES[start : start + 2]) / 100
    if unicodedata.combining(character):
        return 0.0
    return 1.0 if unicodedata.east_asian_width(character) in "WF" else _OTHER


def tick_text(value: float, digits: int = 3) -> str:
    """A short number: there is room for six characters beside an axis.

    >>> tick_text(0.0002), tick_text(25000.0), tick_text(0.5)
    ('2e-4', '25k', '0.5')
    """
    if 0 < abs(value) < 0.001:
        mantissa, _, exponent = f"{value:.{digits - 2}e}".partition("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    thousands = abs(value) >= 10_000
    return f"{value / 1000:.{digits + 3}g}k" if thousands else number(value, digits)


def tick_texts(
    values: Iterable[float], say: Callable[[float, int], str] = tick_text
) -> dict[float, str]:
    """The text of each value, with as many digits as tell them apart.

    >>> list(tick_texts([9.998, 9.999, 10.0]).values())
    ['9.998', '9.999', '10']
    """
    every = set(values)
    digits = next((d for d in range(3, 16) if len({say(v, d) for v in every}) == len(every)), 3)
    return {value: say(value, digits) for value in sorted(every)}


def safe_text(text: object) -> str:
    """Text with markup escaped; characters that XML does not allow become spaces.

    >>> safe_text("a < b"), safe_text("nul \\x00"), safe_text("half \\ud800")
    ('a &lt; b', 'nul [U+0000]', 'half  ')
    """
    return escape(_NOT_XML.sub(" ", visible(str(text))))
