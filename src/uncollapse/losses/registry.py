"""The losses a config can name: one line each; everything else is declared beside the loss."""

import inspect
import math
import re
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
    for kind in (
        TripletLoss,
        MarginLoss,
        ContrastiveLoss,
        MultiSimilarityLoss,
        ProxyNCALoss,
        NPairLoss,
        SupConLoss,
        ProxyAnchorLoss,
        CircleLoss,
        NTXentLoss,
        ArcFaceLoss,
        CosFaceLoss,
        SoftTripleLoss,
        SmoothAPLoss,
        SpreadLoss,
    )
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


# What losses declare as `resting`, and `health/resting.toml` for others.

Level = tuple[float, str]  # a value of a loss, and its formula for a reader
_FUNCTIONS = {name: getattr(math, name) for name in ("exp", "sin", "cos", "acos", "nan")}
_FUNCTIONS |= {"ln": math.log, "__builtins__": {}}


def names_in(formula: str) -> set[str]:
    """The settings and sizes that a formula names."""
    return set(compile(formula, "formula", "eval").co_names) - set(_FUNCTIONS)


def evaluate(formula: str, names: Mapping[str, Any]) -> tuple[float, str]:
    """The value of one of our own formulas, and how it is written for a reader.

    >>> evaluate("ln(rows - 1) * temperature / 0.07", {"rows": 128, "temperature": 0.1})
    (6.9202..., 'ln 127 · 0.1/0.07')
    >>> evaluate("ln(2) if soft else margin", {"soft": False, "margin": 0.2})
    (0.2, 'margin')
    """
    known = _FUNCTIONS | dict(names)
    if choice := re.fullmatch("(.+) if (.+) else (.+)", formula):
        formula = choice[1] if eval(choice[2], known) else choice[3]
    value = float(eval(formula, known))  # our own text, and no builtins
    if formula.isidentifier():
        return value, formula
    shown = {name: f"{v:g}" for name, v in names.items() if isinstance(v, int | float)}
    text = re.sub("[a-z_]+", lambda name: shown.get(name[0], name[0]), formula)
    text = re.sub(r" ?\((\d+( [-+*] \d+)*)\)", lambda m: f" {eval(m[1])}", text)
    return value, text.replace(" / ", "/").replace("**2", "²").replace("*", "·")
