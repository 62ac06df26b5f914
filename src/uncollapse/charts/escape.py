"""Text that is safe in SVG and HTML, and short names for elements that refer to each other."""

from __future__ import annotations

import hashlib
from html import escape

from uncollapse._base.plain_text import visible

__all__ = ["safe_text", "short_id"]


def safe_text(text: object) -> str:
    """Text without markup; what would act is shown, what XML does not know becomes a space.

    >>> safe_text("a < b"), safe_text("nul \\x00"), safe_text("half \\ud800")
    ('a &lt; b', 'nul [U+0000]', 'half  ')
    """
    return escape("".join(c if _known(c) else " " for c in visible(str(text))))


def short_id(*parts: object) -> str:
    """A name for elements that refer to each other: the same for the same content.

    >>> short_id("a") == short_id("a") != short_id("b")
    True
    """
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode("utf-8", "replace")).hexdigest()
    return f"u{digest[:10]}"


def _known(character: str) -> bool:
    if character in "\t\n":
        return True
    return character >= " " and character not in "\x7f\ufffe\uffff" and not _half(character)


def _half(character: str) -> bool:
    """Half of a pair of surrogates."""
    return "\ud800" <= character <= "\udfff"
