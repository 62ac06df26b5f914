"""Optional packages: import them where they are used, or say which extra to install."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

__all__ = ["MissingExtraError", "import_extra", "kernels", "without_kernels"]

_switched_off = False


class MissingExtraError(ImportError):
    """A feature needs a package that is not installed."""


def import_extra(module: str, extra: str) -> ModuleType:
    """Import an optional package, or raise an error that names the extra to install.

    >>> import_extra("no_such_package", extra="plots")
    Traceback (most recent call last):
    uncollapse._base.extras.MissingExtraError: this needs the package 'no_such_package'; install
    it with: pip install 'uncollapse[plots]'
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


def kernels(room: str = "uncollapse._kernels") -> ModuleType | None:
    """The compiled kernels, or None: numba is not installed, or `without_kernels` is in force."""
    return None if _switched_off else _load(room)


@contextmanager
def without_kernels() -> Iterator[None]:
    """Let the torch twins do the work; for tests and for benchmarks."""
    global _switched_off
    before, _switched_off = _switched_off, True
    try:
        yield
    finally:
        _switched_off = before


@functools.cache
def _load(room: str) -> ModuleType | None:
    try:
        return importlib.import_module(room)
    except (ImportError, RuntimeError):  # not installed, or nowhere to keep what it compiles
        return None
