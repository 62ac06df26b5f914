"""Nearest neighbours of queries in an embedded gallery, exact."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from uncollapse._base.check import InputError, check_int
from uncollapse.data import DataError, LabelledImages, describe, paper_transform
from uncollapse.data.images import Decoding, FileSource
from uncollapse.data.listing import ImageRef, is_image
from uncollapse.distances import pairwise_distances
from uncollapse.training.run import Run

__all__ = ["Neighbours", "images_of_files", "nearest"]


@dataclass(frozen=True)
class Neighbours:
    """`rows[q]` are the gallery rows nearest to query q, nearest first, at `distances[q]`."""

    rows: Tensor
    distances: Tensor


def nearest(queries: Tensor, gallery: Tensor, k: int, exclude: Tensor | None = None) -> Neighbours:
    """The k nearest gallery rows of each query; `exclude[q]` is a row query q must not find.

    Ties go to the lower row.

    >>> found = nearest(torch.tensor([[0.0]]), torch.tensor([[3.0], [1.0], [2.0]]), k=2)
    >>> found.rows.tolist(), found.distances.tolist()
    ([[1, 2]], [[1.0, 2.0]])
    """
    room = len(gallery) - (exclude is not None)
    if check_int("k", k) > room:
        raise InputError("k", k, f"at most {room}, the size of the gallery")
    parts = []
    for start in range(0, len(queries), 256):
        block = pairwise_distances(queries[start : start + 256], gallery)
        if exclude is not None:
            chosen = exclude[start : start + 256]
            block[torch.arange(len(block)), chosen] = torch.inf
        order = torch.argsort(block, dim=1, stable=True)[:, :k]
        parts.append((order, block.gather(1, order)))
    rows, distances = (torch.cat(part) for part in zip(*parts, strict=True))
    return Neighbours(rows, distances)


def images_of_files(paths: Iterable[str | Path], run: Run) -> LabelledImages:
    """Image files, or the images in folders, decoded as the run's evaluation images are.

    Their labels are all 0: they are not known.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            files += sorted(p for p in path.rglob("*") if p.is_file() and is_image(p.name))
        elif path.is_file():
            files.append(path)
        else:
            raise DataError(f"{path}: no such image file or folder")
    if not files:
        raise DataError(f"no image files in {', '.join(map(str, paths))}")
    config = run.config.data
    info = describe(config.name)
    channels, *size = run.sample_shape
    side = (config.size, config.size) if config.size else info.size or (size[0], size[1])
    how = Decoding(side, config.channels or channels, info.fit, info.invert)
    transform = paper_transform(config.name, train=False) if config.augment == "paper" else None
    refs = [ImageRef(file) for file in files]
    labels = torch.zeros(len(refs), dtype=torch.long)
    source, names = FileSource(refs, how), tuple(map(str, refs))
    return LabelledImages(source, labels, name="files", transform=transform, files=names)
