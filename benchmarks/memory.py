"""Cross-batch memory beside none: drift at the start, collapse, scale and R@1 over its size.

python benchmarks/memory.py                 all runs, on the data in UNCOLLAPSE_DATA (10 minutes)
python benchmarks/memory.py --finished      the tables of the runs made so far
"""

from __future__ import annotations

import sys
from pathlib import Path

from _memory_runs import RATES, grid, one_run
from _study import CACHE, asked, cached

RUNS = Path("out/memory/runs.jsonl")


def main() -> int:
    chosen = asked(__doc__ or "")
    path = RUNS if chosen.cache == CACHE else chosen.cache
    settings = grid([name for name in RATES if name in chosen.names])
    found = cached(settings, one_run, path, chosen.jobs)
    print(len(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
