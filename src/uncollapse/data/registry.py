"""Datasets by name: what each is, and which files and labels its splits have."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from uncollapse._base.check import check_choice
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
from uncollapse.data.listing import DatasetInfo, Listing

__all__ = ["DATASETS", "OWN", "describe", "find_pairs", "list_split"]

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


def _resolve(info: DatasetInfo, root: str | Path | None) -> Path | None:
    """The folder given, or `UNCOLLAPSE_DATA` where it holds the dataset."""
    if root is not None:
        return Path(root).expanduser().absolute()
    shared = Path(os.environ.get("UNCOLLAPSE_DATA") or os.devnull).expanduser().absolute()
    return shared if any((shared / name).is_dir() for name in info.folders) else None
