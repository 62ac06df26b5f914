"""Ours for PML's, and PML's where a test asks for what we do not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["LEFT", "NotOffered", "or_else"]

LEFT: list[str] = []  # what the test at hand asked for and got from PML


class NotOffered(Exception):
    """What a test asks for and ours does not have."""


def or_else(made: Callable[..., Any], peer: Callable[..., Any]) -> Callable[..., Any]:
    """Ours, or PML's where its arguments have no like here."""

    def either(*args: Any, **options: Any) -> Any:
        try:
            found = made(*args, **options)
        except NotOffered as missing:
            LEFT.append(str(missing))
            return peer(*args, **options)
        object.__setattr__(found, "peer", lambda: peer(*args, **options))
        return found

    for name in vars(peer):
        if name.isupper():
            setattr(either, name, getattr(peer, name))
    return either
