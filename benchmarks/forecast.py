"""Forecast beside outcome: do drift, drift + probe and the bound (17) predict collapse?

python benchmarks/forecast.py --jobs 2      all without a rescue, on the data in UNCOLLAPSE_DATA
python benchmarks/forecast.py --finished    the tables of the runs made so far

Runs are shared with rescue.py, whose grid they are part of; so are the options.
"""

from __future__ import annotations

import sys

from _forecast_scores import Outcome
from _forecast_table import picture, summary, write_csv
from _study import asked, results
from _study_grid import AXES, forecasts, grid
from _study_run import one_run


def main() -> int:
    chosen = asked(__doc__ or "", axes=AXES)
    every = [one for _, run, hand in grid(chosen.names, chosen.axes) for one in (run, *hand)]
    asked_of = {one: forecasts(one) for one in dict.fromkeys(every) if forecasts(one)}
    settings = [one for run, (forecast,) in asked_of.items() for one in (run, forecast)]
    found = results(settings, one_run, chosen)
    runs = [
        Outcome(run, found[forecast] | found[run])
        for run, (forecast,) in asked_of.items()
        if run in found and forecast in found
    ]
    if not runs:
        print("no run is finished yet")
        return 1
    text = f"{len(runs)} of {len(asked_of)} runs are finished.\n\n{summary(runs)}"
    print(text)
    if chosen.out is not None:
        chosen.out.mkdir(parents=True, exist_ok=True)
        write_csv(runs, chosen.out / "runs.csv")
        picture(runs, chosen.out / "scores.png")
        (chosen.out / "summary.md").write_text(
            f"# The forecast beside what came of it\n\n{text}\n", encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
