"""Data of the study of mode drift: classes with finer classes hidden in them, and a network each.

Images are those of UNCOLLAPSE_DATA; features those of `benchmarks/real_features.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uncollapse.data import load

FEATURES = Path("out/features")
TUNED, JUDGED = ("omniglot", "mnist"), ("clinc", "cub", "cars")
NAMES = {
    "omniglot": "Omniglot alphabets",
    "mnist": "MNIST parity, plane",
    "clinc": "CLINC domains",
    "cub": "CUB kinds",
    "cars": "Cars makers",
}
LEAST_FINE = 3  # finer classes that a class needs to take part
MOST = 2000  # rows that recall is measured on


@dataclass(frozen=True)
class Rows:
    """Samples with their class and their finer class, drawn by row."""

    samples: Tensor
    labels: Tensor
    fine: Tensor

    def __getitem__(self, rows: Any) -> tuple[Tensor, Tensor]:
        index = torch.as_tensor(rows)
        return self.samples[index], self.labels[index]

    def every(self, most: int) -> Rows:
        """At most so many rows, evenly chosen."""
        rows = torch.arange(0, len(self.labels), -(-len(self.labels) // most))
        return Rows(self.samples[rows], self.labels[rows], self.fine[rows])

    def letters(self, step: int) -> Rows:
        """All rows of every so many finer classes."""
        rows = torch.isin(self.fine, self.fine.unique()[::step])
        return Rows(self.samples[rows], self.labels[rows], self.fine[rows])


@dataclass(frozen=True)
class CoarseSet:
    """What is trained on, what is held out, the shape of a batch and of the embedding."""

    train: Rows
    test: Rows
    p: int
    k: int
    dim: int
    sphere: bool

    def network(self) -> nn.Module:
        """Four convolution blocks for images, a head of two layers for features."""
        shape = self.train.samples.shape[1:]
        if len(shape) == 1:
            hidden = nn.Linear(shape[0], 256)
            return nn.Sequential(hidden, nn.ReLU(), nn.Linear(256, self.dim))
        blocks: list[nn.Module] = []
        for channels in (shape[0], 16, 16, 16):
            blocks += [nn.Conv2d(channels, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
            blocks += [nn.MaxPool2d(2, ceil_mode=True)]
        model = nn.Sequential(*blocks, nn.Flatten(), nn.LazyLinear(self.dim))
        model(self.train.samples[:2])
        return model


@cache
def coarse_set(name: str) -> CoarseSet:
    """By its short name: a key of `NAMES`. Raises where its files are missing."""
    if name == "omniglot":
        train, test = omniglot()
        return CoarseSet(train, test.every(MOST), 4, 40, 64, True)
    if name == "mnist":
        train, test = (_parity(_images("mnist", split)) for split in ("train", "test"))
        return CoarseSet(train.every(6000), test.every(MOST), 2, 80, 2, False)
    file = {"clinc": "minilm-clinc150", "cub": "lite0-cub200", "cars": "lite0-cars196"}[name]
    train, test = _features(FEATURES / f"{file}.npz")
    return CoarseSet(train, test.every(MOST), 4, 40, 64, True)


def omniglot() -> tuple[Rows, Rows]:
    """Letters by alphabet, to train on and held out: those are of other alphabets."""
    train, test = (_images("omniglot", split, size=20) for split in ("train", "test"))
    return train, test


def _images(name: str, split: str, **options: Any) -> Rows:
    data = load(name, split=split, **options)
    samples, labels = data[torch.arange(len(data))]
    fine = data.by_fine_labels().labels if data.fine_labels is not None else labels
    return Rows(samples.float(), labels, fine)


def _parity(rows: Rows) -> Rows:
    """Digits 0 to 5, odd or even."""
    kept = rows.fine < 6
    digits = rows.fine[kept]
    return Rows(rows.samples[kept], digits % 2, digits)


def _features(path: Path) -> tuple[Rows, Rows]:
    """The file's own training and test rows, or every other row of each finer class."""
    with np.load(path) as file:
        table = {key: file[key] for key in file.files}
    _, labels = np.unique(table["labels"], return_inverse=True)
    _, fine = np.unique(table["fine_labels"], return_inverse=True)
    parts = np.array([len(np.unique(fine[labels == c])) for c in range(labels.max() + 1)])
    kept = np.flatnonzero(parts[labels] >= LEAST_FINE)
    numbers = np.cumsum(parts >= LEAST_FINE) - 1  # proxies want classes without gaps
    labels = numbers[labels]
    if "splits" in table:
        first = table["splits"][kept] == "train"
    else:
        order = np.argsort(fine[kept], kind="stable")
        first = np.empty(len(kept), bool)
        first[order] = np.arange(len(kept)) % 2 == 0
    x = torch.from_numpy(table["embeddings"][kept]).float()
    middle, width = x[first].mean(0), x[first].std(0).clamp(min=1e-6)
    x = (x - middle) / width
    found = []
    for part in (first, ~first):
        chosen = torch.from_numpy(np.flatnonzero(part))
        y, f = (torch.from_numpy(one[kept])[chosen] for one in (labels, fine))
        found.append(Rows(x[chosen], y, f))
    return found[0], found[1]
