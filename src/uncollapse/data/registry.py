"""Datasets by name: `load("cub200", split="train")`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from torch import Tensor

from uncollapse._base.check import InputError, check_choice
from uncollapse._base.progress import ProgressOption
from uncollapse.data import (
    array_files,
    cars196,
    clinc150,
    cub200,
    digits,
    folder,
    letters,
    lfw,
    manifest,
    market1501,
    mnist,
    omniglot,
    sop,
    texts,
)
from uncollapse.data.augment import Compose, center_crop, horizontal_flip, random_resized_crop
from uncollapse.data.cache import cached
from uncollapse.data.images import Decoding, FileSource, inspect_files
from uncollapse.data.listing import DatasetInfo, Listing
from uncollapse.data.text_source import TextSource
from uncollapse.data.types import (
    DataError,
    ImageSource,
    LabelledImages,
    LoadReport,
    TensorSource,
    Transform,
)

__all__ = ["DATASETS", "OWN", "describe", "find_pairs", "list_split", "load", "paper_transform"]

# Typed loosely: only your own datasets take None for "the usual split".
_LISTERS: dict[str, tuple[DatasetInfo, Callable[..., Listing]]] = {
    "digits": (digits.INFO, digits.listing),
    "letters": (letters.INFO, letters.listing),
    "mnist-parity": (mnist.PARITY, mnist.parity),
    "mnist": (mnist.MNIST, partial(mnist.listing, mnist.MNIST)),
    "fashion-mnist": (mnist.FASHION, partial(mnist.listing, mnist.FASHION)),
    "omniglot": (omniglot.INFO, omniglot.listing),
    "market1501": (market1501.INFO, market1501.listing),
    "cub200": (cub200.INFO, cub200.listing),
    "cars196": (cars196.INFO, cars196.listing),
    "cars196-makes": (cars196.MAKES, cars196.makes),
    "sop": (sop.INFO, sop.listing),
    "lfw": (lfw.INFO, lfw.listing),
    "clinc150": (clinc150.INFO, clinc150.listing),
}
_OWN: dict[str, tuple[DatasetInfo, Callable[..., Listing]]] = {
    "folder": (folder.INFO, folder.listing),
    "manifest": (manifest.INFO, manifest.listing),
    "arrays": (array_files.INFO, array_files.listing),
    "texts": (texts.INFO, texts.listing),
}

DATASETS = tuple(_LISTERS)
OWN = tuple(_OWN)


def load(
    name: str,
    root: str | Path | None = None,
    split: str | None = None,
    *,
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    fit: str | None = None,
    middle: float | None = None,
    cache: bool = True,
    strict: bool = False,
    transform: Transform | None = None,
    progress: ProgressOption = None,
) -> LabelledImages:
    """Load a split of a dataset: one of `DATASETS`, or your own (`OWN`).

    `root` is the dataset's folder (or your file), or a folder that holds it under its usual name;
    by default that is `UNCOLLAPSE_DATA`. `split` is `train` unless said otherwise; `describe` lists
    the others. Image files are decoded to `size` (height, width; one number is square), `channels`
    and `fit` (`"cover"`, `"contain"`, `"stretch"`), the papers' by default, once, into a
    memory-mapped cache; `cache=False` decodes them at every access. Of height and width the share
    `middle` is kept before that, 0.6 of lfw's, whose faces are there. What had to be left out or
    converted is in `.report`; `strict` makes it an error. `transform` takes and gives batches.

    >>> data = load("digits", split="test")
    >>> len(data), data.shape, data.split
    (599, (1, 8, 8), 'test')
    """
    info = describe(name)
    listing = list_split(name, root, split)
    report = LoadReport(
        missing=listing.missing, ignored=listing.ignored, converted=listing.converted
    )
    source: ImageSource
    if isinstance(listing.images, Tensor | TextSource):
        asked = {"size": size, "channels": channels, "fit": fit, "middle": middle}
        for option, value in asked.items():
            if value is not None:
                raise InputError(option, value, f"nothing: {name} is not decoded from image files")
        held = listing.images
        source = held if isinstance(held, TextSource) else TensorSource(held)
    else:
        files = FileSource(listing.images, _decoding(info, size, channels, fit, middle))
        source = files
        if cache and len(files):
            place = f"{listing.origin} {listing.split}"
            done = cached(files, f"{name}-{listing.split}", place=place, progress=progress)
            source, listing = done.source, listing.select(done.rows)
            report = replace(report, unreadable=done.unreadable, converted=done.converted)
        elif strict:
            found = inspect_files(files, progress)
            report = replace(report, unreadable=found.unreadable, converted=found.converted)
    if strict and not report.clean:
        raise DataError(f"{name} in {listing.origin}, strict: {report.summary()}")
    if len(source) == 0:
        kind = "texts" if info.texts else "images"
        raise DataError(f"{name} in {listing.origin}: no usable {kind} ({report.summary()})")
    return LabelledImages(
        source=source,
        labels=listing.labels,
        fine_labels=listing.fine_labels,
        cameras=listing.cameras,
        class_names=listing.class_names,
        fine_names=listing.fine_names,
        name=name,
        split=listing.split,
        origin=listing.origin,
        report=report,
        transform=transform,
        files=tuple(map(str, listing.images)) if isinstance(listing.images, tuple) else None,
    )


def describe(name: str) -> DatasetInfo:
    """Where to get a dataset, its licence, layout, splits and official counts.

    >>> print(describe("cub200").official["train"])
    5,864 images, 100 classes
    """
    check_choice("name", name, (*DATASETS, *OWN))
    return (_LISTERS | _OWN)[name][0]


def list_split(name: str, root: str | Path | None = None, split: str | None = None) -> Listing:
    """Which files and labels a split has, before anything is decoded.

    >>> len(list_split("digits").labels)
    1198
    """
    info = describe(name)
    split = info.aliases.get(split, split) if split is not None else None
    if split is not None:
        check_choice("split", split, info.splits)
    elif name in _LISTERS:
        split = "train"
    listing = (_LISTERS | _OWN)[name][1](_resolve(info, root), split)
    return listing if listing.split else replace(listing, split=split or "all")


def find_pairs(name: str, root: str | Path | None = None) -> Path | None:
    """The list of pairs that a dataset comes with, to verify; None where there is none.

    >>> find_pairs("digits") is None
    True
    """
    return lfw.find_pairs(_resolve(describe(name), root)) if name == "lfw" else None


def paper_transform(name: str, *, train: bool, seed: int = 0) -> Compose:
    """The batch transform of the papers for a dataset: what `load` leaves to do.

    Where the network's input is cropped from the cached images (CUB, Cars, SOP): for training a
    random resized crop and a flip, for evaluation the middle. Market-1501: a flip in training.
    Nothing for the others.

    >>> import torch
    >>> crop = paper_transform("cub200", train=False)
    >>> tuple(crop(torch.zeros(2, 3, 256, 256)).shape)
    (2, 3, 224, 224)
    """
    info = describe(name)
    if info.crop is not None:
        size = (info.crop, info.crop)
        if not train:
            return Compose([partial(center_crop, size=size)])
        return Compose([partial(random_resized_crop, size=size), horizontal_flip], seed=seed)
    return Compose([horizontal_flip] if train and name == "market1501" else [], seed=seed)


def _resolve(info: DatasetInfo, root: str | Path | None) -> Path | None:
    """The folder given, or `UNCOLLAPSE_DATA` where it holds the dataset."""
    if root is not None:
        return Path(root).expanduser().absolute()
    shared = Path(os.environ.get("UNCOLLAPSE_DATA") or os.devnull).expanduser().absolute()
    return shared if any((shared / name).is_dir() for name in info.folders) else None


def _decoding(
    info: DatasetInfo,
    size: int | tuple[int, int] | None,
    channels: int | None,
    fit: str | None,
    middle: float | None,
) -> Decoding:
    chosen = (size, size) if isinstance(size, int) else size or info.size or (224, 224)
    share = info.middle if middle is None else middle
    return Decoding(chosen, channels or info.channels, fit or info.fit, info.invert, share)
