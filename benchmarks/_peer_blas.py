"""Environment under which the peers' BLAS is as fast as it can be: imported before any BLAS loads.

One thread, or two if the command line has `TWO`. The OpenBLAS in faiss's package takes processors
newer than itself for very old ones and is then less than half as fast: it is told what it runs on.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["TWO"]

TWO = "--two-threads-in-this-process"
_CORES = {"SkylakeX": {"avx512f", "avx512vl", "avx512bw", "avx512dq"}, "Haswell": {"avx2", "fma"}}


def _settings(threads: int) -> dict[str, str]:
    settings = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    processor = Path("/proc/cpuinfo")
    flags = set(processor.read_text().split()) if processor.exists() else set()
    cores = [core for core, needed in _CORES.items() if needed <= flags]
    if cores and "OPENBLAS_CORETYPE" not in os.environ:
        settings["OPENBLAS_CORETYPE"] = cores[0]
    return settings


os.environ.update(_settings(2 if TWO in sys.argv else 1))
