"""Fonts for pixels: a sans serif found, or Pillow's own with near words for rare characters."""

from __future__ import annotations

import unicodedata
from functools import cache

from PIL import ImageFont

__all__ = ["Font", "font", "writable"]

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

# The first one found; DejaVu has every sign that we write.
_NAMES = {
    False: ("DejaVuSans.ttf", "NotoSans-Regular.ttf", "LiberationSans-Regular.ttf", "Arial.ttf"),
    True: ("DejaVuSans-Bold.ttf", "NotoSans-Bold.ttf", "LiberationSans-Bold.ttf", "Arial_Bold.ttf"),
}
_NEAR = {
    "α": "alpha", "β": "beta", "ρ": "rho", "σ": "sigma", "→": "->", "×": "x", "✗": "x", "✓": "ok",
    "–": "-", "—": "-", "−": "-", "∞": "inf", "≥": ">=", "≤": "<=", "\N{NO-BREAK SPACE}": " ",
}  # fmt: skip


@cache
def font(size: float, bold: bool = False) -> Font:
    """The font of a size in pixels."""
    for name in _NAMES[bold]:
        try:
            return ImageFont.truetype(name, size)
        except OSError:
            continue
    return ImageFont.load_default(size)


def writable(text: str, of: Font) -> str:
    """The text with every character that the font lacks put in other words."""
    return "".join(c if c.isspace() or _has(of, c) else _near(of, c) for c in text)


def _near(of: Font, character: str) -> str:
    known = _NEAR.get(character) or unicodedata.normalize("NFKD", character)
    return "".join(c for c in known if c == " " or _has(of, c)) or "?"


@cache
def _has(of: Font, character: str) -> bool:
    """Whether it is drawn otherwise than a character that no font has."""
    if character in "?":
        return True
    return bytes(of.getmask(character)) != bytes(of.getmask("\ufffe"))
