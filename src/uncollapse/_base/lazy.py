"""Names of a package that are imported when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

__all__ = ["home_of", "lazy_names"]


def home_of(homes: Mapping[str, str]) -> dict[str, str]:
    """The module of each name; `homes` has the names of each module, with spaces between.

    >>> home_of({"copies": "check survey"})
    {'check': 'copies', 'survey': 'copies'}
    """
    return {name: home for home, names in homes.items() for name in names.split()}


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """A `__getattr__` for a package whose names are in modules of its own, each loaded on demand.

    >>> lazy_names("uncollapse._base", {"check": "InputError"})("InputError").__name__
    'InputError'
    """
    places = home_of(homes)

    def find(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"{package}.{places[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return find
