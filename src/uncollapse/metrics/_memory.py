"""Bytes from what people write: 200_000_000, "150MB", "1.5 GiB"."""

from __future__ import annotations

import re

from uncollapse._base.check import InputError

__all__ = ["parse_bytes"]

_UNITS = {"": 1, "B": 1}
_UNITS |= {f"{letter}B": 1000**power for power, letter in enumerate("KMGT", start=1)}
_UNITS |= {f"{letter}IB": 1024**power for power, letter in enumerate("KMGT", start=1)}


def parse_bytes(value: int | str, name: str = "max_memory") -> int:
    """Return a number of bytes, or raise.

    >>> parse_bytes("150MB"), parse_bytes("1 KiB"), parse_bytes(4096)
    (150000000, 1024, 4096)
    """
    number: float
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
        unit = match.group(2).upper() if match else None
        number = float(match.group(1)) * _UNITS[unit] if match and unit in _UNITS else 0
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        number = 0
    if number < 1:
        raise InputError(name, repr(value), "bytes as a whole number or text such as '150MB'")
    return int(number)
