"""Drift and mode drift of every loss with every miner of the library on one batch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch

from uncollapse._base.arrays import ArrayLike, class_ids, points
from uncollapse._base.check import check_int
from uncollapse.health.loss_pull import LossFn, pull
from uncollapse.health.modal_drift import ModeDrift, mode_rates
from uncollapse.health.radial_drift import Drift, radial_of
from uncollapse.losses import (
    ArcFaceLoss,
    CircleLoss,
    ContrastiveLoss,
    CosFaceLoss,
    MarginLoss,
    MultiSimilarityLoss,
    NPairLoss,
    NTXentLoss,
    ProxyAnchorLoss,
    ProxyNCALoss,
    SmoothAPLoss,
    SoftTripleLoss,
    SpreadLoss,
    SupConLoss,
    TripletLoss,
)
from uncollapse.mining import Miner, NoTripletsWarning
from uncollapse.mining.negatives import NEGATIVES
from uncollapse.mining.positives import POSITIVES

__all__ = ["LOSSES", "DriftRow", "drift_table"]


class Maker(NamedTuple):
    """Makes a loss of (miner, classes, dim); `normalized` for a loss that lives on the sphere."""

    make: Callable[[Miner | None, int, int], LossFn]
    normalized: bool = False


LOSSES: Mapping[str, Maker] = {
    "triplet, margin 0.2": Maker(lambda miner, c, d: TripletLoss(margin=0.2, miner=miner)),
    "triplet, margin 0": Maker(lambda miner, c, d: TripletLoss(margin=0.0, miner=miner)),
    "triplet, soft": Maker(lambda miner, c, d: TripletLoss(margin=0.0, miner=miner, soft=True)),
    "triplet, scale-free": Maker(
        lambda miner, c, d: TripletLoss(margin=0.2, miner=miner, scale_free=True)
    ),
    "triplet, normalised": Maker(lambda miner, c, d: TripletLoss(margin=0.2, miner=miner), True),
    "contrastive": Maker(lambda miner, c, d: ContrastiveLoss(margin=1.0, miner=miner)),
    "N-pair": Maker(lambda miner, c, d: NPairLoss(miner=miner)),
    "margin, normalised": Maker(lambda miner, c, d: MarginLoss(miner=miner), True),
    "multi-similarity": Maker(lambda miner, c, d: MultiSimilarityLoss(miner=miner), True),
    "SupCon": Maker(lambda miner, c, d: SupConLoss(miner=miner), True),
    "ProxyNCA": Maker(
        lambda miner, c, d: ProxyNCALoss(
            num_classes=c, dim=d, miner=miner, generator=torch.Generator().manual_seed(0)
        ),
        True,
    ),
    "ProxyAnchor": Maker(
        lambda miner, c, d: ProxyAnchorLoss(
            num_classes=c, dim=d, miner=miner, generator=torch.Generator().manual_seed(0)
        ),
        True,
    ),
    "circle": Maker(lambda miner, c, d: CircleLoss(miner=miner), True),
    "NT-Xent": Maker(lambda miner, c, d: NTXentLoss(miner=miner), True),
    "ArcFace": Maker(
        lambda miner, c, d: ArcFaceLoss(
            num_classes=c, dim=d, miner=miner, generator=torch.Generator().manual_seed(0)
        ),
        True,
    ),
    "CosFace": Maker(
        lambda miner, c, d: CosFaceLoss(
            num_classes=c, dim=d, miner=miner, generator=torch.Generator().manual_seed(0)
        ),
        True,
    ),
    "SoftTriple": Maker(
        lambda miner, c, d: SoftTripleLoss(
            num_classes=c, dim=d, miner=miner, generator=torch.Generator().manual_seed(0)
        ),
        True,
    ),
    "SmoothAP": Maker(lambda miner, c, d: SmoothAPLoss(miner=miner), True),
    "spread": Maker(lambda miner, c, d: SpreadLoss(miner=miner), True),
    "spread, from itself": Maker(
        lambda miner, c, d: SpreadLoss(miner=miner, stand_in="self"), True
    ),
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

    >>> z = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
    >>> labels, some = torch.arange(12) % 3, {"positives": ["easy", "hard"], "negatives": ["hard"]}
    >>> rows = drift_table(z, labels, **some, k=1)[:3]
    >>> [(r.positives, r.drift.value > 0, r.modes.value > 0) for r in rows]
    [(None, True, True), ('easy', True, False), ('hard', True, True)]
    """
    check_int("k", k)
    z = points(embeddings, "embeddings", min_rows=2)
    ids = torch.from_numpy(class_ids(labels, len(z))[0])
    choices: list[tuple[str | None, str | None]] = [(None, None)]
    choices += [(p, n) for p in positives for n in negatives]
    rows = []
    for name, maker in losses.items():
        for p, n in choices:
            generator = torch.Generator().manual_seed(seed)
            miner = None if p is None or n is None else Miner(p, n, generator=generator)
            loss_fn = maker.make(miner, int(ids.max()) + 1, z.shape[1])
            with warnings.catch_warnings():
                # A strict window may be empty: the drift is then 0, which the table shows.
                warnings.simplefilter("ignore", NoTripletsWarning)
                found = pull(loss_fn, z, ids, maker.normalized)
            value, relative, _ = radial_of(found)
            merging, exact, inside = mode_rates(found, ids, k)
            modes = ModeDrift(merging, math.nan, exact, inside)
            rows.append(DriftRow(name, p, n, Drift(value, math.nan, relative), modes))
    return rows
