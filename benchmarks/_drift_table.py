"""A table of every loss with every miner: drift and mode drift on one batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import torch

from uncollapse._base.arrays import ArrayLike, class_ids, points
from uncollapse.health.drifts import (
    Drift,
    LossFn,
    ModeDrift,
    batch_gradient,
    mode_rates,
    radial_drift,
)
from uncollapse.losses import TupleLoss, registry
from uncollapse.losses.registry import always_normalizes, make_loss
from uncollapse.mining import Miner, NoTripletsWarning
from uncollapse.mining.miner import NEGATIVES, POSITIVES


class Maker(NamedTuple):
    """Makes a loss of (miner, classes, dim); `normalize` for a loss that lives on the sphere."""

    make: Callable[[Miner | None, int, int], LossFn]
    normalize: bool = False


def _maker(kind: type[TupleLoss], settings: Mapping[str, Any]) -> Maker:
    own = {name: value for name, value in settings.items() if name != "normalize"}

    def make(miner: Miner | None, classes: int, dim: int) -> LossFn:
        seeded = torch.Generator().manual_seed(0)
        return make_loss(kind, own, num_classes=classes, dim=dim, miner=miner, generator=seeded)

    return Maker(make, settings.get("normalize", always_normalizes(kind)))


LOSSES: Mapping[str, Maker] = {
    title: _maker(kind, settings)
    for kind in registry.LOSSES.values()
    for title, settings in kind.info.cases.items()
}


class DriftRow(NamedTuple):
    """One line: `positives` and `negatives` are None for the loss without a miner.

    `modes` has NaN where no class of the batch has more than k + 1 rows.
    """

    loss: str
    positives: str | None
    negatives: str | None
    drift: Drift
    modes: ModeDrift


def drift_table(
    embeddings: ArrayLike,
    labels: ArrayLike,
    *,
    losses: Mapping[str, Maker] = LOSSES,
    positives: Sequence[str] = POSITIVES,
    negatives: Sequence[str] = NEGATIVES,
    k: int = 3,
    seed: int = 0,
) -> list[DriftRow]:
    """Drift and mode drift of each loss without a miner, and with each choice of tuples.

    Losses on the sphere are measured there, by tangent gradients. `k` is the number of neighbours
    of the mode drift. Both drifts are of the same triplets; miners draw from `seed`.
    """
    z = points(embeddings, "embeddings", min_rows=2)
    ids = torch.from_numpy(class_ids(labels, len(z))[0])
    rows = []
    for name, maker in losses.items():
        for p, n in [(None, None), *product(positives, negatives)]:
            generator = torch.Generator().manual_seed(seed)
            miner = Miner(p, n, generator=generator) if p and n else None
            loss_fn = maker.make(miner, int(ids.max()) + 1, z.shape[1])
            with warnings.catch_warnings():
                # A strict window may be empty: the drift is then 0, which the table shows.
                warnings.simplefilter("ignore", NoTripletsWarning)
                at = batch_gradient(loss_fn, z, ids, maker.normalize)
            rows.append(DriftRow(name, p, n, radial_drift(at), mode_rates(at, ids, k)))
    return rows
