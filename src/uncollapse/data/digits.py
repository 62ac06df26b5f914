"""Handwritten digits from scikit-learn: always there, no download."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from uncollapse.data.listing import DataError, DatasetInfo, Listing, packaged_file

_TRAIN = 1198  # the first two thirds; the file is ordered by writer, so the rest has other writers


def listing(info: DatasetInfo, root: Path | None, split: str) -> Listing:
    """The first two thirds (`train`), the rest (`test`), or `all`; label = digit."""
    # The table of `sklearn.datasets.load_digits`, without the second that importing it takes.
    path = packaged_file("sklearn", "datasets", "data", "digits.csv.gz")
    if path is None:
        raise DataError("digits: scikit-learn is installed without its digits.csv.gz")
    table = np.loadtxt(path, delimiter=",", dtype=np.uint8)
    part = {"train": slice(0, _TRAIN), "test": slice(_TRAIN, None), "all": slice(None)}[split]
    # Values are 0..16.
    pixels = np.round(table[:, :-1].reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    return Listing(
        images=pixels[part][:, None],
        labels=table[part, -1].astype(np.int64),
        class_names={digit: str(digit) for digit in range(10)},
        origin=info.comes_with,
    )
