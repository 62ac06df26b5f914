"""Optional packages: import them where they are used, or say which extra to install."""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["MissingExtraError", "import_extra"]


class MissingExtraError(ImportError):
    """A feature needs a package that is not installed."""


def import_extra(module: str, extra: str) -> ModuleType:
    """Import an optional package, or raise an error that names the extra to install.

    >>> import_extra("no_such_package", extra="plots")
    Traceback (most recent call last):
    uncollapse._extras.MissingExtraError: this needs the package 'no_such_package'; install it with:
    pip install 'uncollapse[plots]'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise
        raise MissingExtraError(
            f"this needs the package {module.split('.')[0]!r}; "
            f"install it with: pip install 'uncollapse[{extra}]'"
        ) from None
