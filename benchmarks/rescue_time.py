"""What a guard costs: processor time of watched and guarded runs over unwatched ones.

python benchmarks/rescue_time.py [TURNS]    places of the study; data in UNCOLLAPSE_DATA

A healthy run (easy x semihard) and one that collapses (hard x hard) and races; the latter beside
the mean of unwatched runs of it and of what usually cures it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from _study import Setting, quiet
from _study_data import available, plain, splits
from _study_run import started

TURNS, BLOCK = 3, 4
PLACES = (
    Setting("noisy intents", "mlp", 18, 8, 64, "", ""),
    Setting("letters", "mlp", 16, 4, 64, "", ""),
    Setting("letters", "mlp", 16, 4, 64, "", "", loop="watch"),
    Setting("ten objects", "resnet", 8, 8, 64, "", ""),
    Setting("ten objects", "resnet", 8, 8, 64, "", "", loop="watch"),
    Setting("letters", "conv2", 18, 8, 64, "", ""),
    Setting("people", "resnet", 18, 8, 64, "", "", unit=True, steps=300),
)


def seconds(settings: Sequence[Setting]) -> list[float]:
    """Of each run, all a few steps at a time in turn: what slows the machine slows them alike."""
    runs = [started(setting, splits(setting.data)[0]) for setting in settings]
    for run in runs:
        run.advance()  # what a first step builds
    spent, order = [0.0] * len(runs), list(range(len(runs)))
    while any(run.step < settings[0].steps for run in runs):
        order.reverse()
        for number in order:
            run, begun = runs[number], time.process_time()
            for _ in range(min(BLOCK, settings[0].steps - run.step)):
                run.advance()
            spent[number] += time.process_time() - begun
    return spent


def main() -> int:
    quiet()
    turns = int(sys.argv[1]) if sys.argv[1:] else TURNS
    names = list(dict.fromkeys(plain(place.data) for place in PLACES))
    there = available(names)
    print(
        "| place | ms a step | monitor | guard, healthy | guard, collapsing |\n" + "|---" * 5 + "|"
    )
    for place in (one for one in PLACES if plain(one.data) in there):
        calm = replace(place, positives="easy", negatives="semihard")
        hard = replace(place, positives="hard", negatives="hard")
        cured = replace(hard, positives="inside", scale_free=True)
        runs = [replace(calm, guard=name) for name in ("off", "warn", "rescue")]
        runs += [replace(hard, guard="off"), replace(cured, guard="off")]
        runs += [replace(hard, guard="rescue")]
        times = [seconds(runs) for _ in range(turns)]
        shares = [
            (warn / off - 1, healthy / off - 1, 2 * rescued / (lost + well) - 1)
            for off, warn, healthy, lost, well, rescued in times
        ]
        step = 1000 * median(row[0] for row in times) / place.steps
        cells = [f"{median(column):+.1%}" for column in zip(*shares, strict=True)]
        words = f"{place.data}, {place.backbone}, {place.loop}"
        print(f"| {words} | {step:.1f} | " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
