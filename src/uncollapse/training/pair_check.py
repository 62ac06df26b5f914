"""Pairs of a split, the same or not: a network judged by verification, as LFW has it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array
from uncollapse._base.check import InputError
from uncollapse.data import DataError, LabelledImages
from uncollapse.data.embeddings import Embeddings
from uncollapse.data.pair_lists import PairList, match_pairs, read_pairs
from uncollapse.data.registry import find_pairs, list_split
from uncollapse.metrics import verification
from uncollapse.training.config import Config
from uncollapse.training.gallery_search import GallerySearch

__all__ = ["VERIFICATION", "PairCheck", "find_checks"]

VERIFICATION = "verification/"  # before the names of figures that are of pairs
_RATES = (1e-2, 1e-3)


@dataclass(frozen=True, eq=False)
class PairCheck:
    """Pairs `[P, 2]` of rows of a split, which of them are the same, and their folds.

    `listed` pairs are in the file called `source`; the others have a sample in another split.
    """

    rows: Array
    same: Array
    folds: Array | None
    source: str
    listed: int

    @property
    def needed(self) -> Tensor:
        """The rows that are in a pair, ascending."""
        return torch.from_numpy(np.unique(self.rows))

    def scores(self, z: Tensor, taken: Tensor) -> dict[str, float]:
        """`verification/eer`, ... of embeddings `z` of the rows `taken`, which are ascending.

        `auc`, `eer`, `fold_accuracy` with its `fold_standard_error` (without folds `accuracy`, at
        the best threshold of these pairs), and `tar@0.01`, `tar@0.001` where there are different
        pairs enough. A pair is compared by Euclidean distance, as neighbours are.
        """
        places = np.searchsorted(taken.numpy(), self.rows)
        found = verification(z, pairs=places, same=self.same, folds=self.folds, far=_RATES)
        by_name = found.to_dict()
        names = ["fold_accuracy", "fold_standard_error"] if found.fold_accuracy else ["accuracy"]
        names += ["auc", "eer", *(f"tar@{rate:g}" for rate in _RATES)]
        known = {name: by_name[name] for name in names if by_name[name] is not None}
        return {VERIFICATION + name: float(v) for name, v in known.items() if math.isfinite(v)}

    def describe(self) -> str:
        """What is verified, in a sentence."""
        many = f"{len(self.rows):,}"
        if len(self.rows) < self.listed:
            many += f" of the {self.listed:,}"
        text = f"verification: {many} pairs of {self.source}, {int(self.same.sum()):,} the same"
        if self.folds is not None:
            text += f", in {len(np.unique(self.folds))} folds"
        return text


def find_checks(
    config: Config,
    splits: Mapping[str, LabelledImages],
    searches: Mapping[str, GallerySearch] | None = None,
) -> tuple[dict[str, PairCheck], list[str]]:
    """A check for each split that has both samples of some pairs; and warnings.

    Pairs are those of `data.pairs`, or of the list that the dataset comes with. Queries of
    `searches` are judged by those alone. Raises `DataError` for a list that cannot be read.
    """
    c = config.data
    source = Path(c.pairs).expanduser() if c.pairs is not None else find_pairs(c.name, c.root)
    if source is None or not splits:
        return {}, []
    pairs, found, warnings = read_pairs(source), {}, []
    for split, data in splits.items():
        if searches is not None and split in searches:
            continue
        check = _check_of(pairs, data, source)
        if not len(check.rows):
            if c.pairs is not None:
                why = f"no pair of {source} has both samples there"
                warnings.append(f"{split} is not verified: {why}")
            continue
        try:
            verification(scores=np.zeros(len(check.same)), same=check.same, folds=check.folds)
        except InputError as error:
            warnings.append(f"{split} is not verified by {source}: {error}")
            continue
        found[split] = check
        seen = _trained_on(config, data, check)
        if seen:
            why = f"{seen:,} of {len(check.rows):,} pairs have someone of the training split"
            warnings.append(f"{split}: {why}; their figures are not of unseen classes")
    return found, warnings


def _check_of(pairs: PairList, data: LabelledImages, source: Path) -> PairCheck:
    """The pairs whose samples are both in the split."""
    names = None if data.files is None else np.array(data.files)
    labels = data.labels.numpy()
    known = Embeddings(np.empty((len(data), 0)), labels=labels, names=names)
    rows, there = match_pairs(pairs, known, source, folders=True)
    rows = rows[there]
    same = labels[rows[:, 0]] == labels[rows[:, 1]] if pairs.same is None else pairs.same[there]
    folds = None if pairs.folds is None else pairs.folds[there]
    if folds is not None and len(np.unique(folds)) < 2:
        folds = None
    return PairCheck(rows, same, folds, source.name, len(pairs))


def _trained_on(config: Config, data: LabelledImages, check: PairCheck) -> int:
    """How many of the pairs are of a class that the run trains on."""
    c = config.data
    with suppress(DataError):  # evaluated where the training split is not
        train = list_split(c.name, c.root, c.train_split)
        labels = train.fine_labels if c.labels == "fine" else train.labels
        if labels is not None:
            seen = np.isin(data.labels.numpy()[check.rows], labels)
            return int(seen.any(axis=1).sum())
    return 0
