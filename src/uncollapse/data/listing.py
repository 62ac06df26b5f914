"""What a dataset's files say before an image is decoded: which files, which labels, what is odd."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from uncollapse.data.load_report import DataError
from uncollapse.data.text_source import TextSource

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array

__all__ = [
    "Counts",
    "DatasetInfo",
    "ImageRef",
    "Listing",
    "Row",
    "find_root",
    "is_image",
    "list_rows",
    "no_folder",
]

_IMAGE_SUFFIXES = {
    ".jpg",
    ".jpeg",
    ".png",
    ".bmp",
    ".gif",
    ".tif",
    ".tiff",
    ".webp",
    ".ppm",
    ".pgm",
}


@dataclass(frozen=True)
class ImageRef:
    """An image file, or a member of a zip."""

    path: Path
    member: str | None = None

    @property
    def name(self) -> str:
        """How reports name it: the last two parts of its path."""
        return "/".join(Path(self.member or self.path).parts[-2:])

    def __str__(self) -> str:
        return str(self.path / self.member if self.member else self.path)


@dataclass(frozen=True)
class Row:
    """One image with what is known of it."""

    image: ImageRef
    label: int
    fine: int | None = None
    camera: int | None = None


@dataclass(frozen=True)
class Listing:
    """A split: images (files or an array in memory) or texts, labels, and what was left out."""

    images: tuple[ImageRef, ...] | Array | TextSource
    labels: Array
    fine_labels: Array | None = None
    cameras: Array | None = None
    class_names: Mapping[int, str] = field(default_factory=dict)
    fine_names: Mapping[int, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    converted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    origin: str = ""
    split: str = ""

    def select(self, rows: Sequence[int]) -> Listing:
        """These rows only."""
        chosen = np.asarray(rows, dtype=np.int64)
        images = self.images
        if isinstance(images, np.ndarray):
            images = images[chosen]
        elif isinstance(images, TextSource):
            images = images.select(rows)
        else:
            images = tuple(images[row] for row in rows)
        return replace(
            self,
            images=images,
            labels=self.labels[chosen],
            fine_labels=None if self.fine_labels is None else self.fine_labels[chosen],
            cameras=None if self.cameras is None else self.cameras[chosen],
        )


@dataclass(frozen=True)
class Counts:
    """How many samples (`kind`: images or texts), classes and fine classes a split has."""

    images: int
    classes: int
    fine_classes: int | None = None
    kind: str = field(default="images", compare=False)

    @classmethod
    def of(cls, listing: Listing) -> Counts:
        """Count what a listing holds."""
        fine = None if listing.fine_labels is None else len(np.unique(listing.fine_labels))
        kind = "texts" if isinstance(listing.images, TextSource) else "images"
        return cls(len(listing.labels), len(np.unique(listing.labels)), fine, kind)

    def __str__(self) -> str:
        fine = "" if self.fine_classes is None else f", {self.fine_classes:,} fine"
        return f"{self.images:,} {self.kind}, {self.classes:,} classes{fine}"


@dataclass(frozen=True)
class DatasetInfo:
    """What there is to know about a dataset; sizes and crops are the papers'.

    `size`, `fit`, `middle`, `channels` and `invert` say how its images are decoded unless the user
    says otherwise; `crop` is the network's input cut from them. `texts` says that there are none,
    and that samples are texts. `comes_with` names the package that always has the dataset.
    """

    name: str
    title: str
    home: str
    licence: str
    layout: str
    splits: tuple[str, ...]
    official: Mapping[str, Counts] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    size: tuple[int, int] | None = None
    fit: str = "stretch"
    middle: float = 1.0
    channels: int = 3
    invert: bool = False
    crop: int | None = None
    texts: bool = False
    comes_with: str = ""
    aliases: Mapping[str, str] = field(default_factory=dict)


def is_image(name: str) -> bool:
    """Whether the file name is an image's; hidden files and macOS resource forks are not.

    >>> [is_image(n) for n in ("a.JPG", "Thumbs.db", "._a.jpg", "__MACOSX/x/a.png")]
    [True, False, False, False]
    """
    folder, last = os.path.split(name)  # as strings: datasets have a hundred thousand names
    hidden = last.startswith(".") or ("__MACOSX" in folder and "__MACOSX" in Path(folder).parts)
    return os.path.splitext(last)[1].lower() in _IMAGE_SUFFIXES and not hidden


def find_root(info: DatasetInfo, root: Path | None, marker: Iterable[str]) -> Path:
    """The folder that holds one of the `marker` files: `root` itself or a usual folder below it.

    `root` may be the dataset's own folder or one that holds it under its official name.
    """
    wanted = list(marker)
    if root is not None:
        for folder in (root, *(root / name for name in info.folders)):
            if any((folder / name).exists() for name in wanted):
                return folder
    raise no_folder(info, root, wanted)


def no_folder(info: DatasetInfo, root: Path | None, wanted: Iterable[str]) -> DataError:
    """What to say where none of the `wanted` files or folders was found."""
    if root is None:
        shared = os.environ.get("UNCOLLAPSE_DATA")
        why = f"none of {', '.join(info.folders)} in {shared}" if shared else "no folder given"
        return DataError(
            f"{info.name}: {why}; pass root= or set UNCOLLAPSE_DATA to a folder that holds one "
            f"folder per dataset. Get it from {info.home}"
        )
    return DataError(
        f"{info.name}: none of {', '.join(wanted)} in {root}"
        + (f" or its folders {', '.join(info.folders)}" if info.folders else "")
        + f"; expected layout:\n{info.layout}"
    )


def list_rows(
    rows: Iterable[Row],
    *,
    class_names: Mapping[int, str],
    fine_names: Mapping[int, str] | None = None,
    ignored: Iterable[str] = (),
    origin: str = "",
    split: str = "",
) -> Listing:
    """Turn rows into a listing; files that are not there go to `missing`."""
    kept: list[Row] = []
    missing: list[Row] = []
    for row in rows:
        there = row.image.member is not None or row.image.path.is_file()
        (kept if there else missing).append(row)
    fine = [row.fine for row in kept if row.fine is not None]
    cameras = [row.camera for row in kept if row.camera is not None]
    return Listing(
        images=tuple(row.image for row in kept),
        labels=np.array([row.label for row in kept], np.int64),
        fine_labels=np.array(fine, np.int64) if fine else None,
        cameras=np.array(cameras, np.int64) if cameras else None,
        class_names=class_names,
        fine_names=fine_names or {},
        missing=tuple(row.image.name for row in missing),
        ignored=tuple(ignored),
        origin=origin,
        split=split,
    )
