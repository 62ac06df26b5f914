"""The losses a config can name: one line each; everything else is declared beside the loss."""

import inspect
from collections.abc import Mapping
from typing import Any, TypeVar

from torch import Generator, nn

from uncollapse._base.check import InputError
from uncollapse._base.extras import own_part
from uncollapse.losses.base import Loss, TupleLoss
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
_CATCH_ALL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
LossKind = TypeVar("LossKind", bound=Loss)
_GIVEN = ("miner", "num_classes", "dim", "size", "generator")  # set by model, data and mining


def find_loss(name: str) -> type[Loss]:
    """A loss by the name in a config: ours, `module.path:Class`, or one of an installed package.

    >>> find_loss("uncollapse.losses:CodingRateLoss").__name__
    'CodingRateLoss'
    """
    kind = LOSSES.get(name) or own_part("losses", "loss.name", name)
    if not (isinstance(kind, type) and issubclass(kind, Loss)) or inspect.isabstract(kind):
        wanted = "a class that inherits uncollapse.losses.Loss, with its `value` or `listed`"
        raise InputError("loss.name", f"{name!r}, which is {kind!r}", wanted)
    return kind


def loss_settings(kind: type[Loss]) -> dict[str, inspect.Parameter]:
    """The arguments of a loss that a config sets, in their order, with their types and defaults.

    >>> {name: argument.default for name, argument in loss_settings(ArcFaceLoss).items()}
    {'margin': 0.5, 'scale': 64.0, 'sub_centers': 1}
    """
    arguments = inspect.signature(kind, eval_str=True).parameters
    return {
        name: argument.replace(default=getattr(kind, f"usual_{name}", argument.default))
        for name, argument in arguments.items()
        if name not in _GIVEN and argument.kind not in _CATCH_ALL
    }


def always_normalizes(kind: type[Loss]) -> bool:
    """Whether a loss sees directions alone, whatever its settings.

    A loss of your own says so by `normalize = True` in its class.

    >>> always_normalizes(SupConLoss), always_normalizes(TripletLoss)
    (True, False)
    """
    ours = (base for base in kind.__mro__ if base in LOSSES.values())
    return kind.normalize is True or any(
        "normalize" not in inspect.signature(base).parameters for base in ours
    )


def make_loss(
    kind: type[LossKind],
    settings: Mapping[str, Any],
    *,
    num_classes: int,
    dim: int,
    samples: int | None = None,
    miner: nn.Module | None = None,
    generator: Generator | None = None,
) -> LossKind:
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
    if miner is not None and "miner" not in wanted:
        raise InputError.conflict(f"{kind.__name__} takes no miner: leave out [mining]")
    return kind(**settings, **{name: given[name] for name in given if name in wanted})
