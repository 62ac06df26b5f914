"""Queries that search a gallery: a network judged by re-identification, as Market-1501 has it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array
from uncollapse._base.progress import ProgressOption
from uncollapse.data import DataError, LabelledImages, describe
from uncollapse.data.registry import list_split
from uncollapse.metrics.re_identification import reid, searching_rows
from uncollapse.metrics.re_ranking import ReRanking
from uncollapse.training.assemble import load_eval_data
from uncollapse.training.config import Config
from uncollapse.training.run_sections import EvaluateConfig

__all__ = ["RERANKED", "SHARE", "GallerySearch", "Sides", "find_searches"]

RERANKED = "reranked/"  # before the names of figures after re-ranking
SHARE = "share/"  # before the names of figures that are of some identities only
_KS = (1, 5, 10)
_LEAST = 50  # identities of a share: fewer say little, and cost little anyway


@dataclass(frozen=True, eq=False)
class Sides:
    """Rows of the queries that search, and of the gallery they search in; both ascending."""

    queries: Tensor
    gallery: Tensor
    identities: int


@dataclass(frozen=True, eq=False)
class GallerySearch:
    """The queries of a split and their gallery, both with cameras.

    Identity -1 is junk, which nobody searches for and nobody meets; identity 0, unless it has a
    name of its own, is a distractor: wrong for every query.
    """

    queries: LabelledImages
    gallery: LabelledImages

    def sides(self, settings: EvaluateConfig, share: float = 1.0) -> Sides:
        """Who searches whom: all of them, or a share of the identities, always the same ones.

        Distractors are taken in proportion. `evaluate.max_samples` bounds each of the two sides.
        """
        ids, there = self._ids
        asks = np.isin(np.arange(len(ids)), searching_rows(ids))
        people = np.random.default_rng(0).permutation(np.unique(ids[asks]))
        others = np.flatnonzero((there != -1) & ~np.isin(there, people))
        count = len(people)
        if share < 1.0:
            count = min(count, max(_LEAST, math.ceil(share * count)))
        if settings.max_samples is not None:
            sizes = np.arange(1, len(people) + 1)
            asked = np.cumsum(_counts(people, ids[asks]))
            met = np.cumsum(_counts(people, there)) + sizes * len(others) / len(people)
            fitting = int((np.maximum(asked, met) <= settings.max_samples).sum())
            count = min(count, max(fitting, min(2, len(people))))
        kept = people[:count]
        strangers = np.random.default_rng(1).permutation(others)
        strangers = strangers[: round(len(others) * count / len(people))]
        gallery = np.union1d(np.flatnonzero(np.isin(there, kept)), strangers)
        queries = np.flatnonzero(asks & np.isin(ids, kept))
        return Sides(torch.from_numpy(queries), torch.from_numpy(gallery), count)

    def plan(self, settings: EvaluateConfig) -> tuple[Sides, Sides | None]:
        """All of it, and the share that is looked at during training; None where that is all."""
        whole = self.sides(settings)
        part = self.sides(settings, settings.reid_share)
        return whole, None if part.identities == whole.identities else part

    def scores(
        self,
        queries: Tensor,
        gallery: Tensor,
        sides: Sides,
        settings: EvaluateConfig,
        *,
        rerank: ReRanking | None = None,
        progress: ProgressOption = False,
    ) -> dict[str, float]:
        """`recall@k` (CMC), `mAP` and `mINP` of these sides, whose embeddings are given.

        A figure without a query that has a match is left out. With `rerank` they are of the
        re-ranked order, and their names begin with `reranked/`.
        """
        ids, there = self._ids
        assert self.queries.cameras is not None
        assert self.gallery.cameras is not None
        found = reid(
            queries,
            ids[sides.queries.numpy()],
            self.queries.cameras[sides.queries],
            gallery,
            there[sides.gallery.numpy()],
            self.gallery.cameras[sides.gallery],
            ks=sorted({*_KS, *settings.ks}),
            rerank=rerank,
            progress=progress,
        )
        prefix = "" if rerank is None else RERANKED
        named = {f"recall@{k}": value for k, value in found.cmc.items()}
        named |= {"mAP": found.map, "mINP": found.minp}
        return {prefix + name: float(v) for name, v in named.items() if math.isfinite(v)}

    def describe(self, settings: EvaluateConfig) -> str:
        """What is searched, in a sentence."""
        ids, there = self._ids
        whole, part = self.plan(settings)
        strangers = int((~np.isin(there[whole.gallery.numpy()], ids)).sum())
        said = [
            f"re-identification: {len(whole.queries):,} queries of {whole.identities:,} identities "
            f"in a gallery of {len(whole.gallery):,}, same identity and camera left out",
            *[f"{strangers:,} distractors in it"] * bool(strangers),
            *[f"{(there == -1).sum():,} junk images left out"] * bool((there == -1).any()),
        ]
        if part is not None:
            key = f"evaluate.reid_share = {settings.reid_share:g}"
            said.append(f"while training, {part.identities:,} of the identities ({key})")
        return "; ".join(said)

    def matched(self) -> bool:
        """Whether any query has a match under another camera."""
        ids, there = self._ids
        assert self.queries.cameras is not None
        assert self.gallery.cameras is not None
        rows = searching_rows(ids)
        seen = {(int(i), int(c)) for i, c in zip(there, self.gallery.cameras, strict=True)}
        cameras: dict[int, set[int]] = {}
        for identity, camera in seen:
            cameras.setdefault(identity, set()).add(camera)
        asked = zip(ids[rows].tolist(), self.queries.cameras[torch.from_numpy(rows)], strict=True)
        return any(cameras.get(identity, set()) - {int(camera)} for identity, camera in asked)

    @cached_property
    def _ids(self) -> tuple[Array, Array]:
        """Identities of queries and gallery; names that happen to have number 0 make room for it.

        Words are numbered from 0, and 0 is the number of distractors.
        """
        ids, there = self.queries.labels.numpy(), self.gallery.labels.numpy()
        name = {**self.gallery.class_names, **self.queries.class_names}.get(0, "0")
        if name in ("0", "distractor"):
            return ids, there
        return np.where(ids >= 0, ids + 1, ids), np.where(there >= 0, there + 1, there)


def find_searches(
    config: Config, splits: Mapping[str, LabelledImages]
) -> tuple[dict[str, GallerySearch], list[str]]:
    """A search for each split that is the queries of a gallery with cameras; and warnings.

    The split is `query` of a dataset that has a `gallery`, both with cameras.
    """
    c, found, warnings = config.data, {}, []
    info = describe(c.name)
    for split, data in splits.items():
        if info.aliases.get(split, split) != "query" or data.cameras is None:
            continue
        if "gallery" not in info.splits:
            continue
        try:
            list_split(c.name, c.root, "gallery")
        except DataError as error:
            why = str(error).splitlines()[0]
            warnings.append(f"{split} is searched in itself: its gallery is not there ({why})")
            continue
        search = GallerySearch(data, load_eval_data(config, "gallery"))
        if search.gallery.cameras is None or not search.matched():
            why = "no query has a match under another camera of the gallery"
            warnings.append(f"{split} is searched in itself: {why}")
            continue
        found[split] = search
    return found, warnings


def _counts(people: Array, ids: Array) -> Array:
    """How many of the ids each of the people has."""
    names, counts = np.unique(ids, return_counts=True)
    place = np.searchsorted(names, people).clip(max=len(names) - 1)
    return np.where(names[place] == people, counts[place], 0)
