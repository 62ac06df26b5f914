"""The losses a config can name: one line each; everything else is declared beside the loss."""

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Generator, nn

from uncollapse.losses.base import TupleLoss
from uncollapse.losses.circle import CircleLoss as CircleLoss
from uncollapse.losses.contrastive import ContrastiveLoss as ContrastiveLoss
from uncollapse.losses.face_margins import ArcFaceLoss as ArcFaceLoss
from uncollapse.losses.face_margins import CosFaceLoss as CosFaceLoss
from uncollapse.losses.margin import MarginLoss as MarginLoss
from uncollapse.losses.multi_similarity import MultiSimilarityLoss as MultiSimilarityLoss
from uncollapse.losses.n_pair import NPairLoss as NPairLoss
from uncollapse.losses.nt_xent import NTXentLoss as NTXentLoss
from uncollapse.losses.proxy_anchor import ProxyAnchorLoss as ProxyAnchorLoss
from uncollapse.losses.proxy_nca import ProxyNCALoss as ProxyNCALoss
from uncollapse.losses.smooth_ap import SmoothAPLoss as SmoothAPLoss
from uncollapse.losses.soft_triple import SoftTripleLoss as SoftTripleLoss
from uncollapse.losses.spread import SpreadLoss as SpreadLoss
from uncollapse.losses.sup_con import SupConLoss as SupConLoss
from uncollapse.losses.triplet import TripletLoss as TripletLoss

LOSSES: Mapping[str, type[TupleLoss]] = {
    kind.info.name: kind
    for kind in list(globals().values())
    if isinstance(kind, type) and issubclass(kind, TupleLoss) and kind is not TupleLoss
}
_GIVEN = ("miner", "num_classes", "dim", "size", "generator")  # set by model, data and mining


def loss_settings(kind: type[TupleLoss]) -> dict[str, inspect.Parameter]:
    """The arguments of a loss that a config sets, in their order, with their types and defaults.

    >>> {name: argument.default for name, argument in loss_settings(ArcFaceLoss).items()}
    {'margin': 0.5, 'scale': 64.0, 'sub_centers': 1}
    """
    arguments = inspect.signature(kind, eval_str=True).parameters
    return {
        name: argument.replace(default=getattr(kind, f"usual_{name}", argument.default))
        for name, argument in arguments.items()
        if name not in _GIVEN
    }


def always_normalizes(kind: type[TupleLoss]) -> bool:
    """Whether a loss sees directions alone, whatever its settings.

    >>> always_normalizes(SupConLoss), always_normalizes(TripletLoss)
    (True, False)
    """
    return "normalize" not in inspect.signature(kind).parameters


def make_loss(
    kind: type[TupleLoss],
    settings: Mapping[str, Any],
    *,
    num_classes: int,
    dim: int,
    samples: int | None = None,
    miner: nn.Module | None = None,
    generator: Generator | None = None,
) -> TupleLoss:
    """Make a loss, passing the sizes of the training data that it takes.

    >>> make_loss(CosFaceLoss, {"sub_centers": 2}, num_classes=5, dim=3).proxies.shape
    torch.Size([5, 2, 3])
    """
    sizes = {"class": num_classes, "sample": samples}
    given: dict[str, Any] = {
        "miner": miner,
        "num_classes": num_classes,
        "dim": dim,
        "size": sizes.get(settings.get("beta_per", "global")),
        "generator": generator,
    }
    wanted = inspect.signature(kind).parameters
    return kind(**settings, **{name: given[name] for name in given if name in wanted})
