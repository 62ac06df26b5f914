"""Listings of datasets: which files and labels a split has, before any image is decoded."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from uncollapse._base.files import read_toml

if TYPE_CHECKING:
    from torch import Tensor

    from uncollapse._base.arrays import Array
    from uncollapse.data.types import ImageSource


class DataError(ValueError):
    """A copy of a dataset that cannot be used; the message says what was looked for, and where."""


@dataclass(frozen=True)
class LoadReport:
    """What was left out or changed while loading, by name.

    `missing`: in the dataset's own lists, but not on disk. `unreadable`: files that cannot be
    decoded. `ignored`: files that are not images, such as `Thumbs.db`. `converted`: images
    converted to the requested channels, by what they were (`grey`, `CMYK`, `alpha`, ...).

    >>> report = LoadReport(ignored=("Thumbs.db",), converted={"grey": ("a.jpg", "b.jpg")})
    >>> report.clean, report.summary()
    (False, '1 ignored (Thumbs.db); 2 converted from grey (a.jpg, b.jpg)')
    """

    missing: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    converted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Whether there is nothing to report."""
        return not (self.missing or self.unreadable or self.ignored or self.converted)

    @property
    def skipped(self) -> dict[str, tuple[str, ...]]:
        """Files that a user would expect among the samples, by the reason why they are not.

        System files (`Thumbs.db`, hidden files) are left out of `ignored`.
        """
        ignored = tuple(name for name in self.ignored if not _is_litter(name))
        kinds = {"missing": self.missing, "unreadable": self.unreadable, "ignored": ignored}
        return {kind: names for kind, names in kinds.items() if names}

    def skipped_summary(self) -> str:
        """One line about what was skipped: counts and the first names; empty if nothing was."""
        return _summary(self.skipped)

    def summary(self, names: int = 3) -> str:
        """One line: counts, and the first few names of each kind."""
        kinds = {kind: getattr(self, kind) for kind in ("missing", "unreadable", "ignored")}
        kinds |= {f"converted from {mode}": files for mode, files in self.converted.items()}
        return _summary(kinds, names) or "nothing left out or changed"


def _summary(kinds: Mapping[str, Sequence[str]], names: int = 3) -> str:
    parts = []
    for kind, files in kinds.items():
        if files:
            more = ", ..." if len(files) > names else ""
            parts.append(f"{len(files)} {kind} ({', '.join(files[:names])}{more})")
    return "; ".join(parts)


def _is_litter(name: str) -> bool:
    last = name.rpartition("/")[2]
    return last.startswith(".") or last.lower() in ("thumbs.db", "desktop.ini")


@dataclass(frozen=True)
class TextSource:
    """Texts held in memory, read as rows of bytes; longer ones are cut at 65,536 bytes.

    >>> import torch
    >>> source = TextSource(("hello", "you"))
    >>> source.shape, source.read(torch.tensor([1])).tolist()
    ((5,), [[121, 111, 117, 0, 0]])
    """

    texts: tuple[str, ...]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Bytes of the longest text."""
        return (min(max(self._sizes(), default=1), _MOST_BYTES) or 1,)

    def __len__(self) -> int:
        return len(self.texts)

    def read(self, rows: Tensor) -> Tensor:
        """The texts of these rows, `[B, L]` in int16."""
        from uncollapse._base.arrays import rows_of_texts  # torch: not needed to list datasets

        return rows_of_texts([self.texts[row] for row in rows.tolist()], self.shape[0])

    def shortened(self) -> dict[str, tuple[str, ...]]:
        """The rows that are cut, in the form of `LoadReport.converted`."""
        long = [row for row, size in enumerate(self._sizes(), 1) if size > _MOST_BYTES]
        names = tuple(f"row {row}" for row in long)
        return {f"texts above {_MOST_BYTES:,} bytes": names} if names else {}

    def _sizes(self) -> list[int]:
        return [len(text.encode("utf-8", "replace")) for text in self.texts]


_MOST_BYTES = 1 << 16  # of a text that are read
_IMAGE_ENDINGS = {".jpg", ".jpeg", ".png", ".bmp", ".gif"}
_IMAGE_ENDINGS |= {".tif", ".tiff", ".webp", ".ppm", ".pgm"}


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
    """One image with its labels and camera; a path stands for its `ImageRef`."""

    image: ImageRef | Path
    label: int
    fine: int | None = None
    camera: int | None = None


@dataclass(frozen=True)
class Listing:
    """A split: samples, their labels, and what was left out.

    `images` are files, an array in memory, texts, or anything with `shape`, `len` and `read(rows)`.
    """

    images: tuple[ImageRef, ...] | Array | TextSource | ImageSource
    labels: Array
    fine_labels: Array | None = None
    cameras: Array | None = None
    class_names: Mapping[int, str] = field(default_factory=dict)
    fine_names: Mapping[int, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    origin: str = ""
    split: str = ""

    @classmethod
    def of_rows(cls, rows: Iterable[Row], **known: Any) -> Listing:
        """A listing of the images that exist; the others are `missing`."""
        images: list[ImageRef] = []
        kept: list[Row] = []
        missing: list[str] = []
        for row in rows:
            image = row.image if isinstance(row.image, ImageRef) else ImageRef(row.image)
            if image.member is not None or image.path.is_file():
                images.append(image)
                kept.append(row)
            else:
                missing.append(image.name)
        labels, fine, cameras = (
            np.array([getattr(row, kind) for row in kept if getattr(row, kind) is not None], int)
            for kind in ("label", "fine", "camera")
        )
        return cls(
            images=tuple(images),
            labels=labels,
            fine_labels=fine if len(fine) else None,
            cameras=cameras if len(cameras) else None,
            missing=tuple(missing),
            **known,
        )

    @classmethod
    def of_classes(
        cls, images: Mapping[Path, int], names: Mapping[int, str], wanted: range, origin: Path
    ) -> Listing:
        """The images, by path, whose class is one of those wanted."""
        rows = [Row(path, label) for path, label in images.items() if label in wanted]
        kept = {number: name for number, name in names.items() if number in wanted}
        return cls.of_rows(rows, class_names=kept, origin=str(origin))

    def select(self, rows: Sequence[int]) -> Listing:
        """These rows only."""
        chosen = np.asarray(rows, dtype=np.int64)
        images = self.images
        if isinstance(images, TextSource):
            images = TextSource(tuple(images.texts[row] for row in rows))
        elif isinstance(images, tuple):
            images = tuple(images[row] for row in rows)
        else:
            images = images[chosen]  # type: ignore[index]
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
    """Description of a dataset; sizes and crops are those of the papers.

    `size`, `fit`, `middle`, `channels` and `invert` are the defaults for decoding its images;
    `crop` is the size of the network's input, cropped from them. `texts`: the samples are texts,
    not images. `comes_with` names the package that includes the dataset. `lister` is the function
    that lists a split, as `module:name`, `function` that of a dataset of your own; `classes` are
    the first and last class of each split, where splits are by class.
    """

    name: str
    lister: str = ""
    title: str = ""
    home: str = ""
    licence: str = ""
    layout: str = ""
    splits: tuple[str, ...] = ()
    function: Callable[[Path | None, str | None], Listing] | None = None
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
    classes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()

    def classes_of(self, split: str) -> range:
        """The classes of a split."""
        first, last = self.classes[split]
        return range(first, last + 1)


def _read_infos() -> dict[str, DatasetInfo]:
    """The descriptions in `datasets.toml`."""
    every = read_toml(Path(__file__).with_name("datasets.toml"))
    infos = {}
    for name, own in every.items():
        plain = every.get(own.pop("like", ""), {}) | own
        kind = "texts" if plain.get("texts") else "images"
        official = {
            split: Counts(counts[0], counts[1], counts[2] if counts[2:] else None, kind)
            for split, counts in plain.get("official", {}).items()
        }
        values = {key: tuple(v) if isinstance(v, list) else v for key, v in plain.items()}
        infos[name] = DatasetInfo(name, **(values | {"official": official}))
    return infos


INFOS = _read_infos()


def packaged_file(package: str, *parts: str) -> Path | None:
    """A file inside an installed package, found without importing it; None if there is none."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        path = Path(folder, *parts)
        if path.is_file():
            return path
    return None


def is_image(name: str) -> bool:
    """Whether the name is that of an image file; hidden files and macOS resource forks are not.

    >>> [is_image(n) for n in ("a.JPG", "Thumbs.db", "._a.jpg", "__MACOSX/x/a.png")]
    [True, False, False, False]
    """
    folder, last = os.path.split(name)  # as strings: datasets have a hundred thousand names
    hidden = last.startswith(".") or ("__MACOSX" in folder and "__MACOSX" in Path(folder).parts)
    return os.path.splitext(last)[1].lower() in _IMAGE_ENDINGS and not hidden


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
    """The error for a dataset of which none of the `wanted` files or folders was found."""
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
