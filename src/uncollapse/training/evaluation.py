"""Embed a dataset and judge it: EPS §5 and what re-identification reports, in one flat dict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from uncollapse._base.arrays import ArrayLike, points
from uncollapse._base.progress import ProgressOption
from uncollapse.data import LabelledImages
from uncollapse.metrics import ReRanking, clustering
from uncollapse.training.config import Config
from uncollapse.training.distributed import ALONE, Ranks, gather, shared_retrieval
from uncollapse.training.gallery_search import SHARE, GallerySearch
from uncollapse.training.pair_check import PairCheck
from uncollapse.training.run_sections import EvaluateConfig
from uncollapse.training.sample_transforms import evaluation_transform

__all__ = [
    "Evaluated",
    "NotFiniteError",
    "as_evaluated",
    "embed",
    "evaluate",
    "evaluate_splits",
    "evenly_spaced",
]


class NotFiniteError(ValueError):
    """A network that has diverged: its embeddings are no numbers to judge."""

    def __init__(self, lost: int, count: int) -> None:
        super().__init__(
            f"the network has diverged: {lost} of {count} embeddings are NaN or infinite. Train "
            "again with a lower optimiser.lr, with optimiser.clip = 1.0 or guard.action = 'rescue'"
        )


@dataclass(frozen=True, eq=False)
class Evaluated:
    """Splits through one network: what `evaluate` gives for each, and the embeddings it judged."""

    scores: Mapping[str, Mapping[str, float]]
    embeddings: Mapping[str, Tensor]

    def flat(self) -> dict[str, float]:
        """The scores by `split/name`: what is logged."""
        return {
            f"{split}/{name}": value
            for split, found in self.scores.items()
            for name, value in found.items()
        }


def as_evaluated(data: LabelledImages, config: Config) -> LabelledImages:
    """A split as it is evaluated: the middle crop where training crops at random, mean and std."""
    transform = evaluation_transform(config.data)
    return data if transform is None else replace(data, transform=transform)


def evaluate_splits(
    model: nn.Module,
    splits: Mapping[str, LabelledImages],
    settings: EvaluateConfig | None = None,
    *,
    searches: Mapping[str, GallerySearch] | None = None,
    checks: Mapping[str, PairCheck] | None = None,
    whole: bool = True,
    ranks: Ranks = ALONE,
    rerank: ReRanking | None = None,
    progress: ProgressOption = False,
) -> Evaluated:
    """Embed and `evaluate` splits (`as_evaluated`); only the samples that are judged are embedded.

    The queries of `searches` are judged by re-identification in their gallery: `recall@k`, `mAP`
    and `mINP`, and `share/recall@1`, ... of the share of identities that is looked at during
    training; without `whole` of that share alone. The pairs of `checks` are verified as well:
    `verification/eer`, ...; their samples are embedded whatever `max_samples`. Several ranks share
    the work, and each gets the whole. With `rerank`, whose `progress` is told, whole searches have
    `reranked/recall@1`, ... as well.
    """
    settings = settings or EvaluateConfig()
    scores: dict[str, dict[str, float]] = {}
    embeddings: dict[str, Tensor] = {}
    for name, data in splits.items():
        if searches is not None and name in searches:
            again = (
                None
                if rerank is None
                else partial(searches[name].scores, rerank=rerank, progress=progress)
            )
            found = _search(model, searches[name], settings, whole, ranks, again)
            scores[name], embeddings[name] = found
            continue
        rows = taken = evenly_spaced(len(data), settings.max_samples)
        check = (checks or {}).get(name)
        if check is not None:
            taken = torch.unique(torch.cat([rows, check.needed]))
        z = embed(model, data.subset(taken), batch=settings.batch, ranks=ranks)
        embeddings[name] = z[torch.searchsorted(taken, rows)]
        scores[name] = evaluate(embeddings[name], data.subset(rows), settings, ranks=ranks)
        if check is not None:
            _check_finite(z)
            scores[name] |= ranks.on_first(partial(check.scores, z, taken))
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


def evaluate(
    embeddings: ArrayLike,
    data: LabelledImages,
    settings: EvaluateConfig | None = None,
    *,
    ranks: Ranks = ALONE,
) -> dict[str, float]:
    """Recall@k, MAP@R and, if asked, NMI by labels; with fine labels the same again by those.

    Keys are `recall@1`, `map@r`, `nmi`, ... and `fine/recall@1`, ... for the fine labels. `nmi` is
    of k-means with a cluster for each class; with `multiplier` above 1, `nmi+` is of so many times
    the clusters (EPS Table 2), though at most one for every two samples. Several ranks, each with
    all embeddings, share the retrieval and get its result; NMI is rank 0's work. Raises
    `NotFiniteError` for embeddings of a network that has diverged.
    """
    settings = settings or EvaluateConfig()
    rows = evenly_spaced(len(data), settings.max_samples)
    z = points(embeddings, "embeddings", min_rows=len(data), check_finite=False)[rows]
    _check_finite(z)
    kinds = {"": data.labels[rows]}
    if data.fine_labels is not None:
        kinds["fine/"] = data.fine_labels[rows]
    found: dict[str, float] = {}
    for prefix, labels in kinds.items():
        found |= _retrieved(z, labels, settings, ranks, prefix)
    return found


def evenly_spaced(count: int, most: int | None) -> Tensor:
    """At most `most` rows of `count`, the same ones every time.

    >>> evenly_spaced(10, 4).tolist()
    [0, 3, 6, 9]
    """
    if most is None or count <= most:
        return torch.arange(count)
    return torch.linspace(0, count - 1, most).round().long()


def _search(
    model: nn.Module,
    search: GallerySearch,
    settings: EvaluateConfig,
    whole: bool,
    ranks: Ranks,
    again: Callable[..., dict[str, float]] | None,
) -> tuple[dict[str, float], Tensor]:
    """Figures of a search, those of the share first; and the embeddings of its queries.

    `again` scores the whole once more, in another order.
    """
    every, part = search.plan(settings)
    taken = every if whole or part is None else part
    asked = search.queries.subset(taken.queries)
    z = embed(model, asked, batch=settings.batch, ranks=ranks)
    met = search.gallery.subset(taken.gallery)
    there = embed(model, met, batch=settings.batch, ranks=ranks)
    _check_finite(torch.cat([z, there]))
    found: dict[str, float] = {}
    if part is not None:
        mine = z[torch.searchsorted(taken.queries, part.queries)]
        theirs = there[torch.searchsorted(taken.gallery, part.gallery)]
        named = ranks.on_first(partial(search.scores, mine, theirs, part, settings))
        found |= {SHARE + name: value for name, value in named.items()}
    if taken is every:
        for scores in [search.scores] + ([] if again is None else [again]):
            found |= ranks.on_first(partial(scores, z, there, every, settings))
        found |= _clusters(z, asked.labels, settings, ranks)
        if asked.fine_labels is not None:  # of the queries among themselves
            found |= _retrieved(z, asked.fine_labels, settings, ranks, "fine/")
    return found, z


def _check_finite(z: Tensor) -> None:
    finite = torch.isfinite(z).all(dim=1)
    if not bool(finite.all()):
        raise NotFiniteError(int((~finite).sum()), len(z))


def _retrieved(
    z: Tensor, labels: Tensor, settings: EvaluateConfig, ranks: Ranks, prefix: str
) -> dict[str, float]:
    """Rows among each other by one kind of labels."""
    by_name = shared_retrieval(z, labels, ranks, ks=settings.ks).to_dict()
    ranked = [f"recall@{k}" for k in settings.ks] + ["map@r"]
    found = {name: float(by_name[name]) for name in ranked}
    found |= _clusters(z, labels, settings, ranks)
    return {prefix + name: value for name, value in found.items()}


def _clusters(
    z: Tensor, labels: Tensor, settings: EvaluateConfig, ranks: Ranks
) -> dict[str, float]:
    """`nmi` and, with a multiplier, `nmi+`, if they are asked for."""
    if not settings.clustering:
        return {}
    names = {"nmi": 1} | ({"nmi+": settings.multiplier} if settings.multiplier > 1 else {})
    return {name: ranks.on_first(partial(_nmi, z, labels, times)) for name, times in names.items()}


def _nmi(z: Tensor, labels: Tensor, multiplier: int) -> float:
    # With a cluster for each sample any embedding would look alike.
    most = max(1, len(z) // (2 * len(torch.unique(labels))))
    return float(clustering(z, labels, multiplier=min(multiplier, most)).nmi)
