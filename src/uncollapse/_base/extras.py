"""Optional packages: import them where they are used, or say which extra to install."""

from __future__ import annotations

import ctypes
import importlib
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property
from types import ModuleType
from typing import Any

from uncollapse._base.check import InputError


class MissingExtraError(ImportError):
    """A feature needs a package that is not installed."""


def import_extra(module: str, extra: str) -> ModuleType:
    """Import an optional package, or raise an error that names the extra to install.

    >>> import_extra("no_such_package", extra="frames")
    Traceback (most recent call last):
    uncollapse._base.extras.MissingExtraError: this needs the package 'no_such_package'; install
    it with: pip install 'uncollapse[frames]'
    """
    package, how = module.split(".")[0], f"install it with: pip install 'uncollapse[{extra}]'"
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != package:
            raise
        raise MissingExtraError(f"this needs the package {package!r}; {how}") from None


def own_part(kind: str, key: str, name: str) -> Any:
    """What `module.path:name` names, or an installed package adds as `name`; None if neither.

    Packages add `kind` ("losses", "datasets", "backbones") by entry points `uncollapse.KIND`.
    Modules are looked for in the current directory last. Raises `InputError` for `key`, also where
    the module cannot be imported, whatever its error, or the name cannot be called.

    >>> own_part("losses", "loss.name", "math:hypot")(3, 4)
    5.0
    """
    path, colon, attribute = name.partition(":")
    if not colon:
        return next((entry.load() for entry in _added(kind, name)), None)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    where = "module.path:name, a class or function of a package or a file in the current directory"
    try:
        part = getattr(importlib.import_module(path), attribute)
    except Exception as error:  # of the user's module
        raise InputError(key, f"{name!r} ({type(error).__name__}: {error})", where) from error
    if not callable(part):
        raise InputError(key, f"{name!r}, which is {part!r}", where)
    return part


def is_own(kind: str, name: str) -> bool:
    """Whether it is a name for `own_part`; nothing is imported to know that."""
    return ":" in name or bool(_added(kind, name))


def _added(kind: str, name: str) -> Any:
    from importlib.metadata import entry_points  # takes long to import, for a name that few use

    return entry_points(group=f"uncollapse.{kind}", name=name)


class _Compiled:
    @cached_property
    def kernels(self) -> ModuleType | None:
        """The package of compiled kernels, loaded on first use; None without numba."""
        try:
            return importlib.import_module("uncollapse._kernels")
        except (ImportError, RuntimeError):  # not installed, or nowhere to keep what it compiles
            return None


compiled = _Compiled()


@contextmanager
def without_kernels() -> Iterator[None]:
    """Use the plain torch versions: for tests, and where loading the kernels would take longer."""
    loaded = vars(compiled).copy()
    compiled.kernels = None
    try:
        yield
    finally:
        vars(compiled).pop("kernels")
        vars(compiled).update(loaded)


# Names of a package that are imported when they are first used.


def home_of(homes: Mapping[str, str]) -> dict[str, str]:
    """The module of each name; `homes` lists the names of each module, separated by spaces.

    >>> home_of({"copies": "check survey"})
    {'check': 'copies', 'survey': 'copies'}
    """
    return {name: home for home, names in homes.items() for name in names.split()}


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """A `__getattr__` for a package whose names are in modules of its own, each loaded on demand.

    >>> lazy_names("uncollapse._base", {"check": "InputError"})("InputError").__name__
    'InputError'
    """
    modules = home_of(homes)

    def load(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return load


# Freed memory kept for the next step, where the C library is glibc.

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
_KEPT, _MOST = 2**30, 2**25  # the second is what glibc before 2.35 takes as M_MMAP_THRESHOLD


def keep_memory() -> bool:
    """Let glibc keep freed blocks instead of returning them to the kernel; returns success.

    PyTorch frees every activation at each step. By default glibc hands large blocks back to the
    kernel, and the next step faults them in again, page by page: a third of a small convnet's time
    on a CPU. With this, freed blocks of less than 1 GiB stay with the process: it holds about what
    it needed at its peak, and gaps between blocks in use raise that peak (by a third for conv2 at
    64 x 64, batch 144). More free memory than that at the end of the heap is returned at once, and
    `train` returns all that is free around evaluations and when it ends.

    Training, sweeps and probes call it. It does nothing, and returns False, where the C library is
    another one (musl, macOS, Windows), or the environment has `UNCOLLAPSE_KEEP_MEMORY=0`.

    >>> keep_memory() in (True, False)
    True
    """
    libc = _glibc()
    if libc is None or os.environ.get("UNCOLLAPSE_KEEP_MEMORY") == "0":
        return False
    kept = libc.mallopt(_MMAP_THRESHOLD, _KEPT) or libc.mallopt(_MMAP_THRESHOLD, _MOST)
    return bool(kept and libc.mallopt(_TRIM_THRESHOLD, _KEPT))


def give_back_memory() -> None:
    """Return all free memory to the kernel now; does nothing without glibc."""
    if (libc := _glibc()) is not None:
        libc.malloc_trim(ctypes.c_size_t(0))


def return_large_blocks() -> None:
    """Return blocks of 4 MB to the kernel as they are freed; by default glibc keeps up to 32 MB."""
    if (libc := _glibc()) is not None:
        libc.mallopt(_MMAP_THRESHOLD, 1 << 22)


@cache
def _glibc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None
