"""How often each loss, miner, metric and figure makes the host wait for a device.

On the stand-in device of the tests, which counts reads of values, sizes that depend on values and
blocking copies. A loss: one step, forward and backward, of 24 rows. A function: of 64 rows.

    python benchmarks/host_reads.py [--where] [--every-miner]
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support import device_cases as cases


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--where", action="store_true", help="what waits, and where, after each")
    parser.add_argument("--every-miner", action="store_true", help="all pairs, triplet loss")
    arguments = parser.parse_args()
    places: Counter[tuple[str, str]] = Counter()
    makers = cases.loss_makers()
    print("| loss | " + " | ".join(cases.MINERS) + " |")
    for name, make in makers.items():
        row = []
        for words in cases.MINERS:
            if words != "none" and not hasattr(make(words), "miner"):
                row.append("")
                continue
            for kind in ("plain", "ragged"):
                x, labels = cases.given(name, kind)
                try:
                    *_, waits = cases.step(make, words, x, labels, on_device=True, steps=2)
                    row.append(str(len(waits)))
                    places.update(waits)
                except Exception as error:  # the table goes on
                    row.append(f"{type(error).__name__}: {str(error)[:40]}")
            row[-2:] = ["/".join(row[-2:])]
        print(f"| {name} | " + " | ".join(row) + " |", flush=True)
    if arguments.every_miner:
        for words in cases.EVERY_MINER:
            x, labels = cases.batch("ragged")
            make = makers["triplet"]
            *_, waits = cases.step(make, words, x, labels, on_device=True)
            print(f"| {words} | {len(waits)} |")
    print("| function | waits |")
    for name, function in cases.FUNCTIONS.items():
        try:
            waits = cases.function_result(function, on_device=True)[1]
            print(f"| {name} | {len(waits)} | {dict(waits.kinds)} |", flush=True)
            places.update(waits)
        except Exception as error:  # the table goes on
            print(f"| {name} | {type(error).__name__}: {str(error)[:160]} |", flush=True)
    if arguments.where:
        for (kind, place), count in places.most_common():
            print(count, kind, place)


if __name__ == "__main__":
    main()
