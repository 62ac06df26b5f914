"""Runs that collapse under batch-hard: does the guard's rescue save them, and how well?

python benchmarks/rescue.py --jobs 2      all runs, on the data in UNCOLLAPSE_DATA
python benchmarks/rescue.py --finished    the tables of the runs made so far
python benchmarks/rescue.py --cases       three longer cases on Market-1501, one a plain loop

At each place (data, network, batch, dimension, rate, seed) hard x hard with margin 0.2, with margin
0 and soft, each without and with a rescue, and six strategies chosen by hand.
"""

from __future__ import annotations

import csv
import sys
from argparse import Namespace

import _rescue_cases
from _rescue_table import cases_of, counts
from _rescue_views import best_where, picture, table
from _study import asked, cached
from _study_grid import grid
from _study_run import one_run


def main() -> int:
    chosen = asked(__doc__ or "", "cases")
    return _three_cases(chosen) if chosen.cases else _study(chosen)


def _study(chosen: Namespace) -> int:
    settings = grid(chosen.names)
    found = dict(cached(settings, one_run, chosen.cache, chosen.jobs))
    cases = cases_of(found)
    if not cases:
        print(f"{len(found)} of {len(settings)} runs are finished, and no case yet")
        return 1
    text = "\n\n".join(
        [
            f"{len(found)} of {len(settings)} runs are finished.",
            counts(cases),
            table(cases),
            "## Which strategy is best where\n\nMean R@1 over places and seeds, without a rescue.",
            best_where(found),
        ]
    )
    print(text)
    if chosen.out is not None:
        chosen.out.mkdir(parents=True, exist_ok=True)
        (chosen.out / "summary.md").write_text(
            f"# What the guard rescues\n\n{text}\n", encoding="utf-8"
        )
        picture(cases, chosen.out / "rescued.png")
        with (chosen.out / "runs.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(cases[0].row()), lineterminator="\n")
            writer.writeheader()
            writer.writerows(case.row() for case in cases)
    return 0


def _three_cases(chosen: Namespace) -> int:
    runs = _rescue_cases.runs()
    path = chosen.cache.with_name("cases.jsonl")
    found = dict(cached(runs, _rescue_cases.one_run, path, chosen.jobs))
    text = _rescue_cases.table(found)
    print(text)
    if chosen.out is not None:
        chosen.out.mkdir(parents=True, exist_ok=True)
        (chosen.out / "cases.md").write_text(f"# Three longer cases\n\n{text}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
