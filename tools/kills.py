"""Kill runs and let processes meet, many times, and count: `python tools/kills.py`.

`make test` does a few of these; this does 30 kills of each kind and 20 meetings.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import hostile_processes as hostile


def main() -> None:
    """Run what is asked for, a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--meetings", type=int, default=20)
    parser.add_argument("--only", nargs="*", help="alone ranks sweep folder sweeps cache")
    asked = parser.parse_args()
    kinds = {
        "alone": ("kills of one process", hostile.kill_alone, asked.kills),
        "ranks": ("kills of a rank under torchrun", hostile.kill_ranks, asked.kills),
        "sweep": ("kills in a sweep", hostile.kill_sweep, asked.kills),
        "folder": ("times two processes in one folder", hostile.meet_in_a_folder, asked.meetings),
        "sweeps": ("times two processes in one sweep", hostile.meet_in_a_sweep, asked.meetings),
        "cache": ("times two processes in one image cache", _cache, asked.meetings),
    }
    for name in asked.only or kinds:
        what, work, count = kinds[name]
        with tempfile.TemporaryDirectory() as folder:
            begun = time.monotonic()
            done = work(count, Path(folder))
            spent = time.monotonic() - begun
        print(f"{done} {what}: nothing lost ({spent:.0f} s)", flush=True)


def _cache(count: int, folder: Path) -> int:
    files = [folder / f"{i}.png" for i in range(40)]
    for i, file in enumerate(files):
        Image.new("RGB", (64, 64), (i, 2 * i, 3 * i)).save(file)
    return hostile.meet_in_a_cache(count, files, folder / "caches")


if __name__ == "__main__":
    main()
