"""The test pictures of CIFAR-100, a folder per class: the package has no loader of its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from uncollapse.data import DataError


def cifar_pixels(most: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """So many rows of pixels in [0, 1], and their fine labels."""
    folder = Path(os.environ.get("UNCOLLAPSE_DATA", "")) / "cifar100" / "test"
    files = sorted(folder.glob("*/*.png"))
    if not files:
        raise DataError(f"cifar100: no pictures in {folder}")
    rows = np.random.default_rng(0).permutation(len(files))[:most]
    pictures = np.stack([np.asarray(Image.open(files[row]).convert("RGB")) for row in rows])
    labels = np.array([files[row].parent.name for row in rows])
    return pictures.reshape(len(rows), -1) / np.float32(255), labels
