"""Text that is safe to put into a page: everything is escaped unless it is already markup."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable

from markupsafe import Markup, escape

__all__ = ["Html", "esc", "join", "number", "percent", "short_id"]


# Charts are drawn as strings that a template prints as they are.
Html = Markup


def esc(value: object) -> Html:
    """Any value as markup: escaped, unless it is markup already.

    >>> str(esc("a < b")), str(esc(Html("<b>x</b>")))
    ('a &lt; b', '<b>x</b>')
    """
    return escape(value)


def join(parts: Iterable[object], between: str = "") -> Html:
    """Parts one after the other, each escaped if need be.

    >>> str(join(["<", Html("<br>")]))
    '&lt;<br>'
    """
    return Html(between.join(esc(part) for part in parts))


def number(value: float | int | None, digits: int = 3) -> str:
    """A number as a person writes it; a dash for what is not known.

    >>> number(0.12345), number(12345.6), number(1e-7), number(12), number(None), number(1e30)
    ('0.123', '12,346', '1e-7', '12', '–', '1e30')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if 999.5 <= abs(value) < 1e7:  # where three digits would be written as 1e3
        return f"{value:,.0f}"
    text = f"{value:.{digits}g}"
    mantissa, found, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if found else text


def percent(share: float | None) -> str:
    """A share of one in per cent, with three digits at most.

    >>> [percent(share).replace("\N{NO-BREAK SPACE}", "_") for share in (0.98765, 1.2e-4)]
    ['98.8_%', '0.012_%']
    """
    if share is None or math.isnan(share):
        return "–"
    return f"{number(100 * float(share))}\N{NO-BREAK SPACE}%"


def short_id(*parts: object) -> str:
    """A name for elements that refer to each other: the same for the same content.

    >>> short_id("a") == short_id("a") != short_id("b")
    True
    """
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).hexdigest()
    return f"u{digest[:10]}"
