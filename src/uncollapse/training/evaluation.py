"""Embed a dataset and judge it: EPS §5 and what re-identification and verification report."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from uncollapse._base.arrays import Array, ArrayLike, points
from uncollapse._base.check import InputError
from uncollapse.data import DataError, LabelledImages, describe
from uncollapse.data.images import FileSource
from uncollapse.data.listing import ImageRef, is_image
from uncollapse.data.loading import decoding
from uncollapse.data.pair_lists import match_pairs, read_pairs
from uncollapse.data.registry import find_pairs, list_split
from uncollapse.data.sources import Source
from uncollapse.metrics import ReRanking, cluster_rows, evaluate_rows, verification
from uncollapse.metrics.re_identification import searching_rows
from uncollapse.training.assemble import evaluation_transform, load_eval_data, size_pair
from uncollapse.training.config import Config
from uncollapse.training.distributed import ALONE, Ranks, gather
from uncollapse.training.run import Run
from uncollapse.training.sections import EvaluateConfig

RERANKED = "reranked/"  # before the names of figures after re-ranking
VERIFICATION = "verification/"  # before the names of figures that are of pairs
_KS = (1, 5, 10)
_RATES = (1e-2, 1e-3)


class NotFiniteError(ValueError):
    """The network has diverged: some embeddings are NaN or infinite."""


@dataclass(frozen=True, eq=False)
class Evaluated:
    """Scores and embeddings of each split for one network."""

    scores: Mapping[str, Mapping[str, float]]
    embeddings: Mapping[str, Tensor]


def evaluate_splits(
    model: nn.Module,
    splits: Mapping[str, LabelledImages],
    settings: EvaluateConfig,
    *,
    judges: Mapping[str, GallerySearch | PairCheck] | None = None,
    ranks: Ranks = ALONE,
    rerank: ReRanking | None = None,
) -> Evaluated:
    """Embed and `evaluate` splits (`as_evaluated`); only the samples that are judged are embedded.

    `judges` are those of `find_judges`. The queries of a search are judged by re-identification in
    their gallery: `recall@k`, `mAP` and `mINP`. The pairs of a check are verified beside the usual
    figures: `verification/eer`, ...; their samples are embedded whatever `max_samples`. Several
    ranks share the embedding, and each gets the whole. With `rerank`, searches have
    `reranked/recall@1`, ... as well.
    """
    scores: dict[str, dict[str, float]] = {}
    embeddings: dict[str, Tensor] = {}
    embedded = partial(embed, model, batch=settings.batch, ranks=ranks)
    for name, data in splits.items():
        judge = (judges or {}).get(name)
        if isinstance(judge, GallerySearch):
            z = embeddings[name] = embedded(judge.queries.subset(judge.sides.queries))
            ref_z = embedded(judge.gallery.subset(judge.sides.gallery))
            _check_finite(torch.cat([z, ref_z]))
            scores[name] = ranks.on_first(partial(judge.scores, z, ref_z, settings, rerank))
            continue
        rows = taken = evenly_spaced(len(data), settings.max_samples)
        if judge is not None:
            taken = torch.unique(torch.cat([rows, torch.from_numpy(judge.rows.ravel())]))
        z = embedded(data.subset(taken))
        _check_finite(z)
        embeddings[name] = z[torch.searchsorted(taken, rows)]
        judged = data.subset(rows)
        scores[name] = ranks.on_first(partial(evaluate, embeddings[name], judged, settings))
        if judge is not None:
            scores[name] |= ranks.on_first(partial(judge.scores, z, taken))
    return Evaluated(scores, embeddings)


@torch.no_grad()
def embed(
    model: nn.Module,
    data: LabelledImages,
    *,
    batch: int = 256,
    progress: Callable[[int, int], None] | None = None,
    ranks: Ranks = ALONE,
) -> Tensor:
    """Embeddings `[N, dim]` of all samples, on the CPU, with the network in evaluation mode.

    The network's mode is restored. `progress(done, total)` is called after each batch. On several
    ranks each embeds some of the batches, the same batches as one process, and all get the whole.
    """
    parameter = next(model.parameters(), torch.empty(0))
    modes = {module: module.training for module in model.modules()}
    model.eval()
    starts = range(0, len(data), batch)
    if len(starts) < ranks.size:  # too little to share out
        ranks = ALONE
    parts = []
    try:
        for start in starts[ranks.share(len(starts))]:
            images, _ = data[start : start + batch]
            parts.append(model(images.to(parameter.device)).float().cpu())
            if progress is not None:
                progress(min(start + batch, len(data)), len(data))
    finally:
        for module, training in modes.items():
            module.training = training
    return gather(torch.cat(parts), ranks)


def scores_of(
    embeddings: ArrayLike,
    labels: ArrayLike,
    fine_labels: ArrayLike | None = None,
    *,
    ks: Sequence[int] = (1, 2, 4, 8),
    clusters: Sequence[int] = (),
) -> dict[str, float]:
    """Each row against all others: Recall@k, MAP@R and, if asked, NMI; by fine labels as well.

    Keys are `recall@1`, `map@r`, `nmi`, ... and `fine/recall@1`, ... for the fine labels, from the
    one evaluator, `metrics.evaluate_rows`. `clusters` are how many k-means gets per class: 1 for
    `nmi`, more for `nmi+` (EPS Table 2), though at most one for every two samples. Raises
    `NotFiniteError` if the network has diverged.

    >>> scores_of([[0.0], [1.0], [5.0], [6.0]], [0, 0, 1, 1], ks=[1])
    {'recall@1': 1.0, 'map@r': 1.0}
    """
    z = points(embeddings, "embeddings", check_finite=False)
    _check_finite(z)
    scores: dict[str, float] = {}
    for prefix, kind in {"": labels, "fine/": fine_labels}.items():
        if kind is None:
            continue
        ids = torch.as_tensor(kind)
        values = evaluate_rows(z, ids, ks=ks, clusters=clusters, progress=False).values
        known = ("recall@", "map@r", "nmi")
        scores |= {prefix + name: v for name, v in values.items() if name.startswith(known)}
    return scores


def evaluate(
    embeddings: ArrayLike, data: LabelledImages, settings: EvaluateConfig | None = None
) -> dict[str, float]:
    """`scores_of` the samples of a dataset, at most `max_samples` of them."""
    settings = settings or EvaluateConfig()
    rows = evenly_spaced(len(data), settings.max_samples)
    z = points(embeddings, "embeddings", min_rows=len(data), check_finite=False)[rows]
    fine = None if data.fine_labels is None else data.fine_labels[rows]
    return scores_of(z, data.labels[rows], fine, ks=settings.ks, clusters=settings.clusters)


def evenly_spaced(count: int, most: int | None) -> Tensor:
    """At most `most` rows of `count`, the same ones every time.

    >>> evenly_spaced(10, 4).tolist()
    [0, 3, 6, 9]
    """
    if most is None or count <= most:
        return torch.arange(count)
    return torch.linspace(0, count - 1, most).round().long()


def _check_finite(z: Tensor) -> None:
    finite = torch.isfinite(z).all(dim=1)
    if not bool(finite.all()):
        raise NotFiniteError(
            f"the network has diverged: {int((~finite).sum())} of {len(z)} embeddings are NaN or "
            "infinite. Train again with a lower optimizer.lr, with optimizer.clip = 1.0 or "
            "guard.action = 'rescue'"
        )


def images_of_files(paths: Iterable[str | Path], run: Run) -> LabelledImages:
    """Image files, or the images in folders, decoded as the run's evaluation images are.

    Their labels are unknown and set to 0.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise DataError(f"{path}: no such image file or folder")
        inside = sorted(path.rglob("*")) if path.is_dir() else []
        files += [path] if path.is_file() else [p for p in inside if is_image(p.name)]
    if not files:
        raise DataError(f"no image files in {', '.join(map(str, paths))}")
    config = run.config.data
    info = describe(config.name)
    channels, *size = run.sample_shape
    side = size_pair(config.size) or info.size or (size[0], size[1])
    how = decoding(info, side, config.channels or channels, config.fit, config.middle)
    refs = [ImageRef(file) for file in files]
    return LabelledImages(
        FileSource(refs, how),
        torch.zeros(len(refs), dtype=torch.long),
        name="files",
        transform=evaluation_transform(config),
        files=tuple(map(str, refs)),
    )


# Queries that search a gallery: re-identification, as Market-1501 has it.


class Sides(NamedTuple):
    """Rows of the queries that search, and of the gallery they search in; both ascending."""

    queries: Tensor
    gallery: Tensor


@dataclass(frozen=True, eq=False)
class GallerySearch:
    """The queries of a split and their gallery, both with cameras; at most `max_samples` of each.

    Identity -1 is junk: neither a query nor in the gallery. Identity 0 is a distractor, a wrong
    match for every query, unless it has a class name of its own.
    """

    queries: LabelledImages
    gallery: LabelledImages
    max_samples: int | None = None

    @cached_property
    def sides(self) -> Sides:
        """All rows, or as many whole identities as fit into `max_samples` rows on either side.

        The choice is always the same. Distractors are taken in proportion.
        """
        ids, _, there, _ = self._columns
        people = np.random.default_rng(0).permutation(np.unique(ids[searching_rows(ids)]))
        others = np.flatnonzero((there != -1) & ~np.isin(there, people))
        count = len(people)
        if self.max_samples is not None:
            asked = np.cumsum([np.count_nonzero(ids == person) for person in people])
            met = np.cumsum([np.count_nonzero(there == person) for person in people])
            met = met + np.arange(1, len(people) + 1) * len(others) / len(people)
            fitting = int((np.maximum(asked, met) <= self.max_samples).sum())
            count = min(count, max(fitting, min(2, len(people))))
        kept = people[:count]
        strangers = np.random.default_rng(1).permutation(others)
        strangers = strangers[: round(len(others) * count / len(people))]
        gallery = np.union1d(np.flatnonzero(np.isin(there, kept)), strangers)
        queries = np.flatnonzero(np.isin(ids, kept))
        return Sides(torch.from_numpy(queries), torch.from_numpy(gallery))

    def scores(
        self, z: Tensor, ref_z: Tensor, settings: EvaluateConfig, rerank: ReRanking | None
    ) -> dict[str, float]:
        """`recall@k` (CMC), `mAP` and `mINP` of the `sides`, whose embeddings are given.

        A figure without a query that has a match is left out. With `rerank` there are those of the
        re-ranked order too, and their names begin with `reranked/`. NMI, if asked for, and figures
        by fine labels are of the queries among themselves.
        """
        queries = self.queries.subset(self.sides.queries)
        asked, met = self.sides.queries.numpy(), self.sides.gallery.numpy()
        ids, cameras, there, cameras_there = self._columns
        sides, both = (z, ids[asked], ref_z, there[met]), (cameras[asked], cameras_there[met])
        ks = sorted({*_KS, *settings.ks})
        orders = {"": None} if rerank is None else {"": None, RERANKED: rerank}
        scores: dict[str, float] = {}
        for prefix, order in orders.items():
            values = evaluate_rows(*sides, cameras=both, ks=ks, rerank=order).values
            for name in sorted(values, key=lambda name: name.startswith("cmc@"), reverse=True):
                if math.isfinite(values[name]):  # recall comes first
                    scores[prefix + name.replace("cmc@", "recall@")] = values[name]
        clustered = cluster_rows(z, queries.labels, settings.clusters)
        scores |= {name: result.nmi for name, result in clustered.items()}
        if queries.fine_labels is not None:
            fine = scores_of(z, queries.fine_labels, ks=settings.ks, clusters=settings.clusters)
            scores |= {f"fine/{name}": value for name, value in fine.items()}
        return scores

    def describe(self) -> str:
        """What is searched, in a sentence."""
        (ids, _, there, _), sides = self._columns, self.sides
        people = len(np.unique(ids[sides.queries.numpy()]))
        strangers = int((~np.isin(there[sides.gallery.numpy()], ids)).sum())
        return (
            f"re-identification: {len(sides.queries):,} queries of {people:,} identities "
            f"in a gallery of {len(sides.gallery):,}, {strangers:,} distractors in it; same "
            f"identity and camera and {(there == -1).sum():,} junk images left out"
        )

    def matched(self) -> bool:
        """Whether any query has a match under another camera."""
        ids, cameras, there, cameras_there = self._columns
        rows = searching_rows(ids)
        return any(
            bool(((there == identity) & (cameras_there != camera)).any())
            for identity, camera in zip(ids[rows], cameras[rows], strict=True)
        )

    @cached_property
    def _columns(self) -> tuple[Array, Array, Array, Array]:
        """Identities and cameras of the queries, then those of the gallery.

        Names are numbered from 0, which is the number of distractors: they are moved up by one.
        """
        q, g = self.queries, self.gallery
        ids, there = q.labels.numpy(), g.labels.numpy()
        if {**g.class_names, **q.class_names}.get(0, "0") not in ("0", "distractor"):
            ids, there = (np.where(each >= 0, each + 1, each) for each in (ids, there))
        return ids, np.asarray(q.cameras), there, np.asarray(g.cameras)


def _find_search(
    config: Config, split: str, data: LabelledImages, warnings: list[str]
) -> GallerySearch | None:
    """The search of a split `query` in the dataset's `gallery`, where both have cameras."""
    c, info = config.data, describe(config.data.name)
    is_query = info.aliases.get(split, split) == "query" and "gallery" in info.splits
    if not is_query or data.cameras is None:
        return None
    why = "no query has a match under another camera of the gallery"
    try:
        list_split(c.name, c.root, "gallery")
        gallery = load_eval_data(config, "gallery")
        search = GallerySearch(data, gallery, config.evaluate.max_samples)
        if gallery.cameras is not None and search.matched():
            return search
    except DataError as error:
        why = f"its gallery is not there ({str(error).splitlines()[0]})"
    warnings.append(f"{split} is searched in itself: {why}")
    return None


# Pairs of a split, the same or not: verification, as LFW has it.


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

    def scores(self, z: Tensor, taken: Tensor) -> dict[str, float]:
        """`verification/eer`, ... of embeddings `z` of the rows `taken`, which are ascending.

        `auc`, `eer`, `fold_accuracy` with its `fold_standard_error` (without folds `accuracy`, at
        the best threshold of these pairs), and `tar@0.01`, `tar@0.001` where there are different
        pairs enough. A pair is compared by Euclidean distance, as neighbours are.
        """
        rows = np.searchsorted(taken.numpy(), self.rows)
        result = verification(z, pairs=rows, same=self.same, folds=self.folds, far=_RATES)
        by_name = result.to_dict()
        names = ["fold_accuracy", "fold_standard_error"] if result.folds else ["accuracy"]
        names += ["auc", "eer", *(f"tar@{rate:g}" for rate in _RATES)]
        known = {name: by_name[name] for name in names if by_name[name] is not None}
        return {VERIFICATION + name: float(v) for name, v in known.items() if math.isfinite(v)}

    def describe(self) -> str:
        """What is verified, in a sentence."""
        some = f" of the {self.listed:,}" * (len(self.rows) < self.listed)
        folds = "" if self.folds is None else f", in {len(np.unique(self.folds))} folds"
        same = f"{int(self.same.sum()):,} the same"
        return f"verification: {len(self.rows):,}{some} pairs of {self.source}, {same}{folds}"


def find_judges(
    config: Config, splits: Mapping[str, LabelledImages]
) -> tuple[dict[str, GallerySearch | PairCheck], list[str]]:
    """The gallery search or pair check of each split that has one, and warnings.

    A split with a gallery search has no pair check. Pairs are those of `data.pairs`, or of
    the list that the dataset comes with; `DataError` for a list that cannot be read.
    """
    judges: dict[str, GallerySearch | PairCheck] = {}
    warnings: list[str] = []
    for split, data in splits.items():
        search = _find_search(config, split, data, warnings)
        judge = search or _find_check(config, split, data, warnings)
        if judge is not None:
            judges[split] = judge
    return judges, warnings


def _find_check(
    config: Config, split: str, data: LabelledImages, warnings: list[str]
) -> PairCheck | None:
    """The check of a split that has both samples of some pairs."""
    c = config.data
    source = Path(c.pairs).expanduser() if c.pairs is not None else find_pairs(c.name, c.root)
    check = None if source is None else _pairs_in(data, source)
    if check is None or (c.pairs is None and not len(check.rows)):
        return None
    try:
        verification(scores=np.zeros(len(check.same)), same=check.same, folds=check.folds)
    except InputError as error:
        warnings.append(f"{split} is not verified by {source}: {error}")
        return None
    trained = _trained_on(config, data, check)
    if trained:
        why = f"{trained:,} of {len(check.rows):,} pairs have someone of the training split"
        warnings.append(f"{split}: {why}; their figures are not of unseen classes")
    return check


def _pairs_in(data: LabelledImages, source: Path) -> PairCheck:
    """The pairs of a file whose samples are both in the split."""
    pairs = read_pairs(source)
    names = None if data.files is None else np.array(data.files)
    labels = data.labels.numpy()
    known = Source(np.empty((len(data), 0)), labels=labels, names=names)
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
