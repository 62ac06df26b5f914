"""Optional packages: import them where they are used, or say which extra to install."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

__all__ = ["MissingExtraError", "compiled", "import_extra", "without_kernels"]


class MissingExtraError(ImportError):
    """A feature needs a package that is not installed."""


def import_extra(module: str, extra: str) -> ModuleType:
    """Import an optional package, or raise an error that names the extra to install.

    >>> import_extra("no_such_package", extra="faiss")
    Traceback (most recent call last):
    uncollapse._base.extras.MissingExtraError: this needs the package 'no_such_package'; install
    it with: pip install 'uncollapse[faiss]'
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


class _Compiled:
    @functools.cached_property
    def kernels(self) -> ModuleType | None:
        """The room of compiled kernels, loaded when first asked for; None without numba."""
        try:
            return importlib.import_module("uncollapse._kernels")
        except (ImportError, RuntimeError):  # not installed, or nowhere to keep what it compiles
            return None


compiled = _Compiled()


@contextmanager
def without_kernels() -> Iterator[None]:
    """Let the torch twins do the work: for tests, and where loading kernels would take longer."""
    loaded = vars(compiled).copy()
    compiled.kernels = None
    try:
        yield
    finally:
        vars(compiled).pop("kernels")
        vars(compiled).update(loaded)
