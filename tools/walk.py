"""Which project files a reader walks through: a training step, a health check, a retrieval.

python tools/walk.py                    # with the compiled kernels, where numba is installed
python tools/walk.py --without-kernels  # plain torch
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
MOST = 8  # files of each walk


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


def walks() -> dict[str, Callable[[], object]]:
    """What is traced, by name: each a function to call."""
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(256, 128, generator=generator)
    labels = torch.arange(64).repeat_interleave(4)
    loss = uc.TripletLoss(margin=0.2, miner=uc.Miner("easy", "semihard"))
    return {
        "a training step, easy x semihard": lambda: loss(
            embeddings.clone().requires_grad_(), labels
        ).backward(),
        "health.measure of a batch": lambda: uc.health.measure(embeddings, labels),
        "retrieval": lambda: uc.retrieval(embeddings, labels),
    }


def walk(run: Callable[[], object]) -> Walk:
    """Trace `run`, after one run that imports and compiles."""
    run()
    with Walk() as seen:
        run()
    return seen


def _project_file(frame: FrameType) -> str | None:
    path = Path(frame.f_code.co_filename)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else None


def main() -> int:
    """Print each walk; 1 if one crosses more files than it should."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--without-kernels", action="store_true", help="plain torch instead")
    plain = options.parse_args().without_kernels
    longest = 0
    for name, run in walks().items():
        with without_kernels() if plain else contextlib.nullcontext():
            seen = walk(run)
        print(name)
        for number, (file, names) in enumerate(seen.files.items(), start=1):
            print(f"{number:3}  {file:24} {', '.join(names)}")
        print(f"{len(seen.files)} files (at most {MOST}), {seen.hops} calls from file to file\n")
        longest = max(longest, len(seen.files))
    return int(longest > MOST)


if __name__ == "__main__":
    raise SystemExit(main())
