"""Freed memory kept for the next step, where the C library is glibc."""

from __future__ import annotations

import ctypes
import os
from functools import cache

__all__ = ["KEEP_MEMORY", "give_back_memory", "keep_memory"]

KEEP_MEMORY = "UNCOLLAPSE_KEEP_MEMORY"  # the environment variable; 0 turns it off

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
_KEPT = 2**30
_MOST = 2**25  # what glibc before 2.35 takes as M_MMAP_THRESHOLD on 64 bits


def keep_memory(*, limit: int = _KEPT) -> bool:
    """Let glibc keep freed blocks instead of returning them to the kernel; whether it now does.

    PyTorch frees every activation at each step. By default glibc hands large blocks back to the
    kernel, and the next step faults them in again, page by page: a third of a small convnet's time
    on a CPU. With this, freed blocks of less than `limit` bytes (1 GiB) stay with the process: it
    holds about what it needed at its peak, and gaps between blocks in use raise that peak (by a
    third for conv2 at 64 x 64, batch 144). Free memory beyond `limit` at the end of the heap is
    returned at once, and `train` returns all that is free around evaluations and when it ends.

    Training, sweeps and probes call it. It does nothing, and returns False, where the C library is
    another one (musl, macOS, Windows), or the environment has `UNCOLLAPSE_KEEP_MEMORY=0`;
    `train.keep_memory = false` turns it off for a run.

    >>> keep_memory() in (True, False)
    True
    """
    libc = _glibc()
    if libc is None or os.environ.get(KEEP_MEMORY, "").strip().lower() in ("0", "false", "off"):
        return False
    kept = libc.mallopt(_MMAP_THRESHOLD, limit) or libc.mallopt(_MMAP_THRESHOLD, min(limit, _MOST))
    return bool(kept and libc.mallopt(_TRIM_THRESHOLD, limit))


def give_back_memory() -> None:
    """Return what is free to the kernel, whatever is kept otherwise; nothing without glibc."""
    libc = _glibc()
    if libc is not None:
        libc.malloc_trim(ctypes.c_size_t(0))


@cache
def _glibc() -> ctypes.CDLL | None:
    try:
        libc = ctypes.CDLL(None)
    except (OSError, TypeError):  # Windows has no such thing
        return None
    named = ("gnu_get_libc_version", "mallopt", "malloc_trim")
    return libc if all(hasattr(libc, name) for name in named) else None
