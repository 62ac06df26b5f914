"""Cross-batch memory beside none: drift at the start, collapse, scale and R@1 over its size.

python benchmarks/memory.py --out FOLDER    all runs, on the data in UNCOLLAPSE_DATA (20 minutes)
python benchmarks/memory.py --finished      the tables of the runs made so far
"""

from __future__ import annotations

import sys
from pathlib import Path

from _memory_runs import RATES, SMALL, first_drift, grid, one_run
from _memory_table import MemoryRun, drifts_by_size, picture, summary, write_csv
from _study import CACHE, asked, cached

RUNS = Path("out/memory/runs.jsonl")


def main() -> int:
    chosen = asked(__doc__ or "")
    path = RUNS if chosen.cache == CACHE else chosen.cache
    settings = grid([name for name in RATES if name in chosen.names])
    first = [one for one in settings if one.references == "moving" and one.p != SMALL[0]]
    known = cached(first, first_drift, path.with_name("drifts.jsonl"), chosen.jobs)
    drifts = [MemoryRun(*found) for found in known]
    runs = [MemoryRun(*found) for found in cached(settings, one_run, path, chosen.jobs)]
    if not runs:
        print("no run is finished yet")
        return 1
    text = f"{drifts_by_size(drifts)}\n\n{len(runs)} of {len(settings)} runs are finished.\n\n"
    text += summary(runs)
    print(text)
    if chosen.out is not None:
        chosen.out.mkdir(parents=True, exist_ok=True)
        write_csv(runs, chosen.out / "runs.csv")
        picture(runs, drifts, chosen.out / "memory.png")
        (chosen.out / "summary.md").write_text(
            f"# Cross-batch memory and collapse\n\n{text}\n", encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
