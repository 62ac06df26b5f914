"""Runs that may collapse: does the guard's rescue save them, how well, and does it harm others?

python benchmarks/rescue.py --jobs 2          all runs, on the data in UNCOLLAPSE_DATA
python benchmarks/rescue.py --finished        the tables of the runs made so far
python benchmarks/rescue.py --axes losses --data letters "ten objects"    a part of it
python benchmarks/rescue.py --watched FILE    with another version of the guard: runs without one
                                              come from the same cache, guarded ones go to FILE

Axes: `mining` (batch-hard with margin 0.2, with margin 0, and soft), `losses` on the sphere at the
usual and at a far too high rate, `rates` (a tenth, one, ten times the usual), `optimizers` (SGD,
AdamW with warm-up and cosine) and `loops` (`uc.watch` in a plain one, with our loss,
pytorch-metric-learning's, and one's own). Each run is made without and with a rescue, beside runs
chosen by hand: six strategies, or on the sphere lower rates. Where it ends in an alarm, what it was
advised is followed to the letter. All of it is in `_study_grid.PLACES`; a killed study goes on.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import replace

from _rescue_table import ALARMS, Results, advice, cases_of, counts, followed
from _rescue_views import best_where, picture, table
from _study import asked, results
from _study_grid import AXES, Planned, forecasts, grid
from _study_run import one_run


def main() -> int:
    chosen = asked(__doc__ or "", axes=AXES)
    planned = grid(chosen.names, chosen.axes)
    settings = [
        one
        for _, run, hand in planned
        for one in (run, replace(run, guard="rescue"), *forecasts(run), *hand)
    ]
    found = results(settings, one_run, chosen)
    count = len(found)
    warned = [case for case in planned if _alarmed(found, case)]
    stopped = [replace(case.setting, guard="stop") for case in warned]
    found |= results(stopped, one_run, chosen)
    told = followed(warned, found)
    found |= results([one for some in told.values() for one in some], one_run, chosen)
    cases = cases_of(planned, found)
    if not cases:
        print(f"{count} of {len(set(settings))} runs are finished, and no case yet")
        return 1
    text = "\n\n".join(
        [
            f"{count} of {len(set(settings))} runs are finished.",
            counts(cases),
            "## What was advised, followed to the letter",
            advice(cases, told, found),
            "## Every place",
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


def _alarmed(found: Results, case: Planned) -> bool:
    return case.setting in found and found[case.setting]["verdict"] in ALARMS


if __name__ == "__main__":
    sys.exit(main())
