"""Timing shared by the benchmarks: CPU time, interleaved medians, GEMM cost, peak memory, bars.

Everything is a ratio taken in one run. One thread and process CPU time, so that a busy machine does
not change the figures; every contender is called once a round, so that a drift hits all alike.

    from _timing import Row, gemm, interleaved, one_thread, peak_megabytes, report
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

__all__ = ["Row", "gemm", "interleaved", "one_thread", "peak_megabytes", "report"]

_SHORT = 6e-3  # seconds: shorter calls are repeated inside one measurement

_PROBE = """
import gc, sys
def _peak():
    with open("/proc/self/status") as f:
        return next(int(l.split()[1]) for l in f if l.startswith("VmHWM")) / 1024
{setup}
{warm}
gc.collect()
with open("/proc/self/clear_refs", "w") as f:
    f.write("5")
_before = _peak()
{call}
print("PEAK", _peak() - _before)
"""


def one_thread() -> None:
    """Compute on one thread, so that CPU time is what one core does."""
    torch.set_num_threads(1)
    threadpool_limits(1)  # NumPy's products too: their threads spin while they wait


def interleaved(
    contenders: dict[str, Callable[[], object]],
    rounds: int = 9,
    warm: int = 1,
    budget: float | None = None,
) -> dict[str, float]:
    """Median CPU seconds of one call of each, called in turn; stops after `budget` seconds."""
    for _ in range(warm):
        for call in contenders.values():
            call()
    times: dict[str, list[float]] = {name: [] for name in contenders}
    begun = time.perf_counter()
    for done in range(rounds):
        for name, call in contenders.items():
            times[name].append(_cpu_seconds(call))
        if budget is not None and done >= 2 and time.perf_counter() - begun > budget:
            break
    return {name: statistics.median(values) for name, values in times.items()}


def gemm(n: int, dim: int = 128) -> Callable[[], object]:
    """One n x n x dim float32 product: the physical limit the costs are given in."""
    x, out = torch.randn(n, dim), torch.empty(n, n)
    return lambda: torch.mm(x, x.T, out=out)


def peak_megabytes(setup: str, call: str, warm: str = "") -> float:
    """Growth of the peak resident memory during `call`, in a fresh Python (Linux; else NaN).

    `setup`, `warm` and `call` are Python source run in this order in one namespace, one thread;
    this folder is importable there. `warm` should be a small call that loads what is loaded lazily.
    """
    if not Path("/proc/self/clear_refs").exists():
        return float("nan")
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=os.pathsep.join(paths))
    code = _PROBE.format(setup=setup, warm=warm, call=call)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the memory probe failed:\n{done.stderr}")
    return next(float(x.split()[1]) for x in done.stdout.splitlines() if x.startswith("PEAK"))


@dataclass
class Row:
    """One line of a report: ours beside a peer, with the bar it has to reach."""

    name: str
    size: str
    ours: float  # CPU seconds
    peer: float = float("nan")
    bar: float | None = None  # peer / ours must be at least this
    gemm: float = float("nan")  # CPU seconds of one product of that size
    ours_mb: float = float("nan")
    peer_mb: float = float("nan")

    @property
    def ratio(self) -> float:
        """How many times faster than the peer."""
        return self.peer / self.ours

    @property
    def outcome(self) -> str:
        """Whether the bar is reached."""
        if self.bar is None:
            return ""
        return "pass" if self.ratio >= self.bar else "MISS"


def report(title: str, rows: Sequence[Row], peer: str = "PML") -> bool:
    """Print the table; True when no bar is missed."""
    print(f"\n{title}")
    head = f"{'':30} {'N':>12} {'ours ms':>10} {peer + ' ms':>10} {'ratio':>8} {'bar':>6} {'':5}"
    print(f"{head} {'GEMMs':>7} {'ours MB':>8} {peer + ' MB':>8}")
    for row in rows:
        bar = "" if row.bar is None else f"{row.bar:g}x"
        digits = 2 if row.ratio < 10 else 1
        cells = (
            f"{row.name:30} {row.size:>12} {row.ours * 1e3:10.3f} {_number(row.peer * 1e3, 10, 3)} "
            f"{_number(row.ratio, 7, digits)}{'x' if row.ratio == row.ratio else ' '} {bar:>6} "
            f"{row.outcome:5} {_number(row.ours / row.gemm, 7, 1)} "
            f"{_number(row.ours_mb, 8, 1)} {_number(row.peer_mb, 8, 1)}"
        )
        print(cells, flush=True)
    return all(row.outcome != "MISS" for row in rows)


def _cpu_seconds(call: Callable[[], object]) -> float:
    # The first call pays for what the one before it left behind (memory given back, cold caches);
    # it only tells how often to repeat.
    begun = time.process_time()
    call()
    spent = time.process_time() - begun
    repeats = max(1, int(_SHORT / max(spent, 1e-5)))
    begun = time.process_time()
    for _ in range(repeats):
        call()
    return (time.process_time() - begun) / repeats


def _number(value: float, width: int, digits: int) -> str:
    return f"{'-':>{width}}" if value != value else f"{value:{width}.{digits}f}"
