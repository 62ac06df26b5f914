"""Image files of a user's own, as a run's network wants them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch

from uncollapse.data import DataError, LabelledImages, describe
from uncollapse.data.images import Decoding, FileSource
from uncollapse.data.listing import ImageRef, is_image
from uncollapse.training.run import Run
from uncollapse.training.sample_transforms import evaluation_transform, size_pair

__all__ = ["images_of_files"]


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
    side = size_pair(config.size) or info.size or (size[0], size[1])
    middle = info.middle if config.middle is None else config.middle
    how = Decoding(side, config.channels or channels, config.fit or info.fit, info.invert, middle)
    transform = evaluation_transform(config)
    refs = [ImageRef(file) for file in files]
    labels = torch.zeros(len(refs), dtype=torch.long)
    source, names = FileSource(refs, how), tuple(map(str, refs))
    return LabelledImages(source, labels, name="files", transform=transform, files=names)
