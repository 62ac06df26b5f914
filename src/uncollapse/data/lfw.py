"""Labelled Faces in the Wild (Huang et al. 2007): a folder per person, and pairs in ten folds."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

from uncollapse.data.listing import DataError, DatasetInfo, Listing, Row, is_image, no_folder
from uncollapse.data.pair_lists import PairList, read_pairs

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array

_ENDINGS = (".jpg", ".png", ".jpeg", ".bmp")


def listing(info: DatasetInfo, root: Path | None, split: str) -> Listing:
    """`train`, `test` or `all`; label = person, numbered by name.

    `test` has the people in the second half of the folds (6 to 10), whose pairs evaluate it;
    `train` has everyone else, so nobody is in both. `all` needs no pairs.txt.
    """
    images = _find_images(info, root)
    people = {path.name: path for path in sorted(images.iterdir()) if path.is_dir()}
    source = find_pairs(info, root)
    pairs = None if source is None else read_pairs(source)
    named: set[tuple[str, int]] = set()
    if pairs is not None:
        both = itertools.chain(pairs.first, pairs.second)
        named = {name for name in both if isinstance(name, tuple)}
    numbers = {name: i for i, name in enumerate(sorted({*people, *(n for n, _ in named)}))}
    kept = set(numbers)
    if split != "all":
        if source is None or pairs is None:
            places = " or ".join(map(str, _places(images)))
            why = f"lfw: no pairs.txt in {places}, by which people are split into train and test"
            raise DataError(f"{why}; split 'all' needs none. Get it from {info.home}")
        tested = _tested(pairs, source)
        kept = tested if split == "test" else kept - tested
    rows, ignored, there = [], [], set()
    for name in sorted(kept & set(people)):
        for path in sorted(people[name].iterdir()):
            if is_image(path.name):
                rows.append(Row(path, numbers[name]))
                there.add(path.stem)
            else:
                ignored.append(f"{name}/{path.name}")
    for name, number in sorted(named):  # pictures that a pair is of, and that are not there
        if name in kept and f"{name}_{number:04d}" not in there:
            lost = images / name / f"{name}_{number:04d}.jpg"
            rows.append(Row(lost, numbers[name]))
    names = {number: name for name, number in numbers.items() if name in kept}
    return Listing.of_rows(rows, class_names=names, ignored=tuple(ignored), origin=str(images))


def find_pairs(info: DatasetInfo, root: Path | None) -> Path | None:
    """The list of pairs of a copy; None if it has none."""
    places = [folder / "pairs.txt" for folder in _places(_find_images(info, root))]
    return next((path for path in places if path.is_file()), None)


def _places(images: Path) -> tuple[Path, ...]:
    """Beside the folder of images, in it, or one up."""
    return images.parent, images, images.parent.parent


def _find_images(info: DatasetInfo, root: Path | None) -> Path:
    """The folder of people: `root`, a usual folder below it, or the images' folder in one."""
    names = (*info.folders, "images")  # what the archives unpack to, and what people call it
    if root is not None:
        for base in (root, *(root / name for name in info.folders)):
            for folder in (base, *(base / name for name in names)):
                if folder.is_dir() and any(map(_is_person, folder.iterdir())):
                    return folder
    raise no_folder(info, root, names)


def _is_person(folder: Path) -> bool:
    return any((folder / f"{folder.name}_0001{ending}").is_file() for ending in _ENDINGS)


def _tested(pairs: PairList, source: Path) -> set[str]:
    """The people of the second half of the folds."""
    folds: Array | None = pairs.folds
    if folds is None:
        raise DataError(f"{source}: one fold of pairs; people are split by folds, two at least")
    first = (int(folds.max()) + 1) // 2
    later = [pair for pair, fold in enumerate(folds) if fold >= first]
    return {str(side[pair][0]) for side in (pairs.first, pairs.second) for pair in later}
