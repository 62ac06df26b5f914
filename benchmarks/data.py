"""Cached image loading beside decoding: CPU time of one thread, interleaved medians, one run.

The images have a photograph's size (500 x 375 JPEG, as CUB-200-2011) and are generated; both sides
give the same batches. The bar is 10x.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from _timing import Row, interleaved, one_thread, report
from uncollapse.data import load

IMAGES, BATCH, BAR = 256, 64, 10.0


def main() -> int:
    one_thread()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["UNCOLLAPSE_CACHE"] = str(Path(scratch) / "cache")
        root = Path(scratch) / "images"
        write_images(root)
        cached = load("folder", root, size=256, fit="cover")
        decoded = load("folder", root, size=256, fit="cover", cache=False)
        rows = torch.randperm(IMAGES, generator=torch.Generator().manual_seed(0))[:BATCH]
        if not torch.equal(cached[rows][0], decoded[rows][0]):
            raise SystemExit("cached and decoded batches differ")
        times = interleaved(
            {
                "float cached": lambda: cached[rows],
                "float decoded": lambda: decoded[rows],
                "uint8 cached": lambda: cached.pixels(rows),
                "uint8 decoded": lambda: decoded.pixels(rows),
            }
        )
    lines = [
        Row(
            f"{kind} batch",
            f"{BATCH}x3x256²",
            times[f"{kind} cached"],
            times[f"{kind} decoded"],
            BAR,
        )
        for kind in ("float", "uint8")
    ]
    return 0 if report("Loading from the cache beside decoding", lines, "decode") else 1


def write_images(root: Path) -> None:
    """Smooth random pictures that compress about as photographs do."""
    rng = np.random.default_rng(0)
    for place in range(IMAGES):
        coarse = Image.fromarray(rng.integers(0, 256, (75, 100, 3), dtype=np.uint8))
        path = root / f"class{place % 8}" / f"{place}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse.resize((500, 375), Image.Resampling.BICUBIC).save(path, quality=90)


if __name__ == "__main__":
    sys.exit(main())
