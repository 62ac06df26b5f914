"""Numbers as a person writes them: three digits, per cent, and short ones beside an axis."""

from __future__ import annotations

import math

__all__ = ["number", "percent", "tick_text"]


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


def tick_text(value: float) -> str:
    """A short number: there is room for six characters beside an axis.

    >>> tick_text(0.0002), tick_text(25000.0), tick_text(0.5)
    ('2e-4', '25k', '0.5')
    """
    if 0 < abs(value) < 0.001:
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value / 1000:g}k" if abs(value) >= 10_000 else number(value)
