"""Handwritten digits from scikit-learn: always there, no download."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from uncollapse.data.listing import DataError, Listing, dataset_info

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array

__all__ = ["INFO", "listing"]

_TRAIN = 1198  # the first two thirds; the file is ordered by writer, so others wrote the rest

INFO = dataset_info("digits")


def listing(root: object, split: str) -> Listing:
    """The first two thirds (`train`), the rest (`test`), or `all`; label = digit."""
    table = _shipped()
    part = {"train": slice(0, _TRAIN), "test": slice(_TRAIN, None), "all": slice(None)}[split]
    # Values are 0..16.
    pixels = np.round(table[:, :-1].reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    return Listing(
        images=pixels[part][:, None],
        labels=table[part, -1].astype(np.int64),
        class_names={digit: str(digit) for digit in range(10)},
        origin=INFO.comes_with,
    )


def _shipped() -> Array:
    """The table of `sklearn.datasets.load_digits`, without the second that importing it takes."""
    spec = importlib.util.find_spec("sklearn")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        path = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if path.is_file():
            return np.loadtxt(path, delimiter=",", dtype=np.uint8)
    raise DataError("digits: scikit-learn is installed without its digits.csv.gz")
