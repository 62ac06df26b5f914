"""The user's own images: one folder per class, `root/[split/]class/[fine class/]image`."""

from __future__ import annotations

from pathlib import Path

from uncollapse.data.listing import (
    DataError,
    DatasetInfo,
    ImageRef,
    Listing,
    Row,
    is_image,
    list_rows,
)

__all__ = ["INFO", "SPLITS", "listing"]

SPLITS = ("train", "val", "test", "query", "gallery")

INFO = DatasetInfo(
    name="folder",
    title="Your own images, one folder per class",
    home="your own",
    licence="your own",
    layout="""\
<class>/<image>, or <class>/<finer class>/<image>
or, with splits: train/<class>/..., test/<class>/... (also val, query, gallery)""",
    splits=(*SPLITS, "all"),
    size=(224, 224),
    fit="cover",
)


def listing(root: Path | None, split: str | None) -> Listing:
    """Images below `root`; classes are numbered by name over all splits together.

    Without split folders there is only `all`. `split=None` is `train` where there is one.
    """
    if root is None or not root.is_dir():
        raise DataError(f"folder: root must be a folder of your images, got {root}")
    parts = {name: root / name for name in SPLITS if (root / name).is_dir()}
    split = split or ("train" if "train" in parts else "all")
    if split != "all" and split not in parts:
        there = ", ".join([*parts, "all"])
        raise DataError(f"folder: no split {split!r} in {root}; there is: {there}")
    rows: list[tuple[ImageRef, str, str, str]] = []
    ignored: list[str] = []
    for part, base in (parts or {"all": root}).items():
        for path in sorted(p for p in base.rglob("*") if p.is_file()):
            names = path.relative_to(base).parts
            if len(names) < 2 or not is_image(path.name):
                ignored += ["/".join(path.parts[-2:])] * (split in ("all", part))
            else:
                rows.append((ImageRef(path), part, names[0], "/".join(names[:-1])))
    if not rows:
        raise DataError(f"folder: no images in class folders below {root}; expected\n{INFO.layout}")
    classes = {name: place for place, name in enumerate(sorted({row[2] for row in rows}))}
    fines = {name: place for place, name in enumerate(sorted({row[3] for row in rows}))}
    nested = len(fines) > len(classes)
    return list_rows(
        (
            Row(image, classes[label], fines[fine] if nested else None)
            for image, part, label, fine in rows
            if split in ("all", part)
        ),
        class_names={place: name for name, place in classes.items()},
        fine_names={place: name for name, place in fines.items()} if nested else {},
        ignored=ignored,
        origin=str(root),
        split=split,
    )
