"""Caltech-UCSD Birds-200-2011 (Wah et al. 2011): EPS §5.2, HNM appendix D."""

from __future__ import annotations

from pathlib import Path

from uncollapse.data.listing import DataError, DatasetInfo, Listing, find_root
from uncollapse.data.readers import read_lines


def listing(info: DatasetInfo, root: Path | None, split: str) -> Listing:
    """`train`: classes 1-100, `test`: classes 101-200, or `all`; label = class number.

    To choose settings without the test classes, `fit` is classes 1-80 and `val` classes 81-100.
    """
    base = find_root(info, root, ["images.txt"])
    paths = _table(base / "images.txt")
    labels = {
        key: _number(base, key, text)
        for key, text in _table(base / "image_class_labels.txt").items()
    }
    names = {_number(base, key, key): name for key, name in _table(base / "classes.txt").items()}
    unlabelled = [key for key in paths if key not in labels]
    if unlabelled:
        raise DataError(f"cub200 in {base}: no label for image id {unlabelled[0]}")
    images = {base / "images" / path: labels[key] for key, path in paths.items()}
    return Listing.of_classes(images, names, info.classes_of(split), base)


def _table(path: Path) -> dict[str, str]:
    lines = read_lines(path, "cub200")
    pairs = (line.split(maxsplit=1) for line in lines if line.strip())
    return {pair[0]: pair[-1].strip() for pair in pairs}


def _number(base: Path, key: str, text: str) -> int:
    if not text.isdigit():
        raise DataError(f"cub200 in {base}: class of image id {key} is {text!r}, not a number")
    return int(text)
