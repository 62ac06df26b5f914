"""Which project files a reader walks through: a step, a health check, a retrieval; JPEG to page.

python tools/walk.py                    # with the compiled kernels, where numba is installed
python tools/walk.py --without-kernels  # plain torch
python tools/walk.py jpeg               # from a folder of JPEG files, through training, to a page
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from PIL import Image

import uncollapse as uc
from uncollapse._base.extras import without_kernels
from uncollapse._base.progress import quiet_console
from uncollapse.report import write_report
from uncollapse.training.assemble import load_data
from uncollapse.training.config import Config, parse_config
from uncollapse.training.session import Session

ROOT = Path(uc.__file__).parent
MOST = 10  # files of each short walk
# From a JPEG to a page: files in training, files in the report, and how often the building of a
# session changes package. Checks of arguments, in `_base`, are called from everywhere and not
# counted there.
MOST_TRAINING, MOST_REPORT, MOST_CHANGES = 70, 30, 30


class Walk:
    """Files entered, in the order they are first met, and how often one calls into another.

    `changes` counts the calls from package to package, without those to and from `_base`.
    """

    def __init__(self) -> None:
        self.files: dict[str, list[str]] = {}
        self.hops = self.changes = 0

    def __enter__(self) -> Walk:
        threading.setprofile(self._see)  # images are decoded in threads
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _see(self, frame: FrameType, event: str, _arg: Any) -> None:
        here = _project_file(frame)
        if event != "call" or here is None:
            return
        caller, above = frame.f_back, None
        while caller is not None and (above := _project_file(caller)) is None:  # through torch
            caller = caller.f_back
        self.hops += above != here
        packages = {Path(file).parts[0] for file in (here, above or here)}
        self.changes += len(packages) > 1 and "_base" not in packages
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


def from_jpeg_to_page(folder: Path) -> dict[str, Walk]:
    """The walks of a small run on JPEG files, by name: its session, its training, its page."""
    first, second = _paint(folder / "first"), _paint(folder / "second")
    uc.train(first, folder / "imports", console=quiet_console())
    with Walk() as training:  # of files that no cache has yet
        run = uc.train(second, folder / "run", console=quiet_console())
    data = load_data(second, "train")
    return {
        "building a session": walk(lambda: Session(second, data)),
        "training on a folder of JPEG files": training,
        "the page of the run": walk(lambda: write_report(run)),
    }


def _paint(folder: Path) -> Config:
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for name in ("cups", "forks", "plates"):
            place = folder / split / name
            place.mkdir(parents=True)
            for number in range(4):
                pixels = rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{number}.jpg")
    return parse_config(
        {
            "data": {"name": "folder", "root": str(folder), "size": 12},
            "model": {"backbone": "conv2", "dim": 4},
            "batch": {"p": 2, "k": 2},
            "guard": {"every": 1},
            "train": {"steps": 2, "evaluate_every": 1, "device": "cpu"},
        }
    )


def _project_file(frame: FrameType) -> str | None:
    path = Path(frame.f_code.co_filename)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else None


def _show(name: str, seen: Walk, most: int) -> None:
    print(name)
    for number, (file, names) in enumerate(seen.files.items(), start=1):
        print(f"{number:3}  {file:24} {', '.join(names)}")
    counts = f"{len(seen.files)} files (at most {most})"
    print(f"{counts}, {seen.hops} calls from file to file, {seen.changes} between packages\n")


def main() -> int:
    """Print each walk; 1 if one crosses more files than it should."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("walk", nargs="?", choices=["short", "jpeg"], default="short")
    options.add_argument("--without-kernels", action="store_true", help="plain torch instead")
    given = options.parse_args()
    if given.walk == "jpeg":
        with tempfile.TemporaryDirectory() as folder:
            session, training, page = from_jpeg_to_page(Path(folder)).items()
        _show(*session, MOST_TRAINING)
        _show(*training, MOST_TRAINING)
        _show(*page, MOST_REPORT)
        print(f"building a session changes package at most {MOST_CHANGES} times")
        long = len(training[1].files) > MOST_TRAINING or len(page[1].files) > MOST_REPORT
        return int(long or session[1].changes > MOST_CHANGES)
    longest = 0
    for name, run in walks().items():
        with without_kernels() if given.without_kernels else contextlib.nullcontext():
            seen = walk(run)
        _show(name, seen, MOST)
        longest = max(longest, len(seen.files))
    return int(longest > MOST)


if __name__ == "__main__":
    raise SystemExit(main())
