"""Text of others, for people to read: what would act on a terminal or a page is shown instead."""

from __future__ import annotations

__all__ = ["visible"]

# Marks that turn the direction of what follows: "exe.\u202egpj" would read "exe.jpg".
_TURNS = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_CONTROLS = [c for c in (*range(0x20), *range(0x7F, 0xA0)) if chr(c) not in "\t\n\r"]
_SHOWN = {code: f"[U+{code:04X}]" for code in (*_TURNS, *_CONTROLS)}


def visible(text: str) -> str:
    """The text with marks of direction and control characters by their numbers.

    >>> visible("photo\\u202egpj.exe"), visible("\\x1b[2J")
    ('photo[U+202E]gpj.exe', '[U+001B][2J')
    """
    return text.translate(_SHOWN)
