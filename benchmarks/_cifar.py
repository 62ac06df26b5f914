"""The test pictures of CIFAR-100, from its own file: the package does not load it."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from uncollapse.data import DataError


def cifar_pixels(most: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """So many rows of pixels in [0, 1], and their fine labels."""
    path = Path(os.environ.get("UNCOLLAPSE_DATA", "")) / "cifar100" / "test"
    if not path.is_file():
        raise DataError(f"cifar100: no file {path}")
    with path.open("rb") as file:
        table = pickle.load(file, encoding="bytes")
    rows = np.random.default_rng(0).permutation(len(table[b"data"]))[:most]
    return table[b"data"][rows] / np.float32(255), np.asarray(table[b"fine_labels"])[rows]
