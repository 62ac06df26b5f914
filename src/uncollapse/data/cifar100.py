"""CIFAR-100 (Krizhevsky 2009): label = one of 20 superclasses, fine label = one of 100 classes."""

from __future__ import annotations

from pathlib import Path

from uncollapse.data.listing import (
    DataError,
    DatasetInfo,
    ImageRef,
    Listing,
    Row,
    find_root,
    is_image,
)

# The superclass of each class, in alphabetical order; both are counted in that order.
_SUPERCLASSES = (
    *(4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7),
    *(6, 13, 15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10),
    *(16, 4, 17, 4, 2, 0, 17, 4, 18, 17, 10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16),
    *(12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13),
)


def listing(info: DatasetInfo, root: Path | None, split: str) -> Listing:
    """`train` (50,000) and `test` (10,000), each of all classes."""
    base = find_root(info, root, ["train", "test"])
    folder = base / split
    names = sorted(path.name for path in folder.glob("[!.]*") if path.is_dir())
    if len(names) != len(_SUPERCLASSES):
        given = f"{len(names)} folders of {len(_SUPERCLASSES)} classes in {folder}"
        raise DataError(f"{info.name}: {given}; expected layout:\n{info.layout}")
    rows = [
        Row(ImageRef(path), _SUPERCLASSES[number], number)
        for number, name in enumerate(names)
        for path in sorted((folder / name).iterdir())
        if is_image(path.name)
    ]
    return Listing.of_rows(
        rows,
        class_names=dict(enumerate(info.class_names)),
        fine_names=dict(enumerate(names)),
        origin=str(base),
    )
