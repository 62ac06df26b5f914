"""What a rescue costs: CPU time of rescued runs over unguarded ones, run in turn.

python benchmarks/rescue_time.py    four places of the study; data in UNCOLLAPSE_DATA
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from statistics import fmean

from _study import Setting, quiet
from _study_data import available, splits
from uncollapse.training.session import Session

TURNS = 2
PLACES = (
    Setting("noisy intents", "mlp", 18, 8, 64, "hard", "hard"),
    Setting("noisy letters", "resnet", 18, 8, 64, "hard", "hard"),
    Setting("letters", "conv2", 18, 8, 64, "hard", "hard"),
    Setting("people", "resnet", 18, 8, 64, "hard", "hard", unit=True, steps=300),
)


def seconds(setting: Setting) -> float:
    session = Session(setting.config(), splits(setting.data)[0])
    begun = time.process_time()
    for _ in range(setting.steps):
        session.advance()
    return time.process_time() - begun


def main() -> int:
    quiet()
    there = available(["intents", "letters", "people"])
    alone, saved = [], []
    for place in (one for one in PLACES if one.data.removeprefix("noisy ") in there):
        cured = replace(place, positives="inside", scale_free=True)
        rescued = replace(place, guard="rescue")
        turns = [[seconds(one) for one in (place, rescued, cured)] for _ in range(TURNS)]
        alone.append(fmean((hard + inside) / 2 for hard, _, inside in turns))
        saved.append(fmean(middle for _, middle, _ in turns))
        ratio = saved[-1] / alone[-1] - 1
        print(
            f"{place.data}, {place.backbone}: {alone[-1]:.2f} s, rescued {ratio:+.1%}", flush=True
        )
    if saved:
        print(f"all together: {sum(saved) / sum(alone) - 1:+.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
