"""Handwritten digits from scikit-learn: always there, no download."""

from __future__ import annotations

import numpy as np
import torch

from uncollapse.data.listing import Counts, DatasetInfo, Listing

__all__ = ["INFO", "listing"]

_TRAIN = 1198  # the first two thirds; the file is ordered by writer, so others wrote the rest

INFO = DatasetInfo(
    name="digits",
    title="Optical digits, 8 x 8, as scikit-learn ships them",
    home="https://scikit-learn.org/stable/datasets/toy_dataset.html",
    licence="CC BY 4.0 (UCI); shipped with scikit-learn",
    layout="nothing to download",
    splits=("train", "test", "all"),
    official={"train": Counts(1198, 10), "test": Counts(599, 10), "all": Counts(1797, 10)},
    channels=1,
)


def listing(root: object, split: str) -> Listing:
    """The first two thirds (`train`), the rest (`test`), or `all`; label = digit."""
    from sklearn.datasets import load_digits  # a second of imports that only this dataset needs

    bunch = load_digits()
    part = {"train": slice(0, _TRAIN), "test": slice(_TRAIN, None), "all": slice(None)}[split]
    # Values are 0..16.
    pixels = np.clip(np.round(bunch.images * (255 / 16)), 0, 255).astype(np.uint8)
    return Listing(
        images=torch.from_numpy(pixels[part])[:, None],
        labels=torch.from_numpy(bunch.target[part]).long(),
        class_names={digit: str(digit) for digit in range(10)},
        origin="scikit-learn",
    )
