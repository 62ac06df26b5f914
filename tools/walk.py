"""Which project files one training step crosses: a reader's walk, forward and backward.

python tools/walk.py                    # with the compiled kernels, where numba is installed
python tools/walk.py --without-kernels  # the torch twins
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import uncollapse as uc
from uncollapse._base.extras import without_kernels

ROOT = Path(uc.__file__).parent
MOST = 10  # files of one step, by the design


class Walk:
    """Files entered, in the order they are first met, and how often one file calls into another."""

    def __init__(self) -> None:
        self.files: dict[str, list[str]] = {}
        self.hops = 0

    def __enter__(self) -> Walk:
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _see(self, frame: FrameType, event: str, _arg: Any) -> None:
        here = _project_file(frame)
        if event != "call" or here is None:
            return
        caller = frame.f_back
        while caller is not None and _project_file(caller) is None:  # through torch and NumPy
            caller = caller.f_back
        self.hops += caller is None or _project_file(caller) != here
        names = self.files.setdefault(here, [])
        if frame.f_code.co_name not in names:
            names.append(frame.f_code.co_name)


def step(loss: torch.nn.Module, rows: int = 256, dim: int = 128) -> Callable[[], None]:
    """One forward and backward pass over a batch with classes of four."""
    z = torch.randn(rows, dim, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(rows // 4).repeat_interleave(4)

    def run() -> None:
        loss(z.clone().requires_grad_(), labels).backward()

    return run


def walk(run: Callable[[], None]) -> Walk:
    """Trace `run`, after one run that imports and compiles."""
    run()
    with Walk() as seen:
        run()
    return seen


def _project_file(frame: FrameType) -> str | None:
    path = Path(frame.f_code.co_filename)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else None


def main() -> int:
    """Print the walk of two kinds of step; 1 if one crosses more files than it should."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--without-kernels", action="store_true", help="take the torch twins")
    plain = options.parse_args().without_kernels
    longest = 0
    for positives, negatives in (("easy", "semihard"), ("hard", "hard")):
        loss = uc.TripletLoss(margin=0.2, miner=uc.Miner(positives, negatives))
        with without_kernels() if plain else contextlib.nullcontext():
            seen = walk(step(loss))
        print(f"{positives} x {negatives}")
        for number, (file, names) in enumerate(seen.files.items(), start=1):
            print(f"{number:3}  {file:24} {', '.join(names)}")
        print(f"{len(seen.files)} files (at most {MOST}), {seen.hops} calls from file to file\n")
        longest = max(longest, len(seen.files))
    return int(longest > MOST)


if __name__ == "__main__":
    raise SystemExit(main())
