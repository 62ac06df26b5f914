"""What to change, in words, from a run's own settings and what was seen in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from uncollapse.health.records import Health

__all__ = ["RunSettings", "advise", "lower_rate"]

# What the miners of pytorch-metric-learning choose, in our two words.
_PML_MINERS = {
    "BatchHardMiner": ("hard", "hard"),
    "BatchEasyHardMiner": ("easy", "hard"),
    "DistanceWeightedMiner": ("all", "distance"),
    "MultiSimilarityMiner": ("multi_similarity", "multi_similarity"),
}
_GENTLE = ("easy", "inside")
_USUAL_LR = 1e-2  # above it few networks train


@dataclass(frozen=True)
class RunSettings:
    """What is known of a run: None where it is not. `margin` only for losses in distances.

    >>> from uncollapse.losses import TripletLoss
    >>> from uncollapse.mining import Miner
    >>> RunSettings.of(TripletLoss(margin=0.2, miner=Miner("hard", "hard"))).positives
    'hard'
    """

    positives: str | None = None
    negatives: str | None = None
    pool: int | None = None
    margin: float | None = None
    soft: bool | None = None
    scale_free: bool | None = None
    normalize: bool | None = None
    batch_size: int | None = None
    lr: float | None = None

    @classmethod
    def of(cls, loss_fn: object, miner: object | None = None) -> RunSettings:
        """What can be read off a loss (ours or pytorch-metric-learning's) and its miner."""
        loss = loss_fn
        chooser = miner if miner is not None else getattr(loss, "miner", None)
        kind = type(chooser).__name__
        positives, negatives = _PML_MINERS.get(kind, (None, None))
        if kind == "TripletMarginMiner":
            positives, negatives = "all", getattr(chooser, "type_of_triplets", None)
        if kind == "BatchEasyHardMiner":
            positives = getattr(chooser, "pos_strategy", positives)
            negatives = getattr(chooser, "neg_strategy", negatives)
        if chooser is None and hasattr(loss, "margin"):
            positives, negatives = "all", "all"
        distance = getattr(loss, "distance", None)
        return cls(
            positives=getattr(chooser, "positives", positives),
            negatives=getattr(chooser, "negatives", negatives),
            pool=getattr(chooser, "pool", None),
            # With a learned boundary (MarginLoss) a collapsed batch is not charged the margin.
            margin=None if hasattr(loss, "beta") else _number(getattr(loss, "margin", None)),
            soft=getattr(loss, "soft", getattr(loss, "smooth_loss", None)),
            scale_free=getattr(loss, "scale_free", None),
            normalize=getattr(loss, "normalize", getattr(distance, "normalize_embeddings", None)),
        )

    def known(self, other: RunSettings) -> RunSettings:
        """These settings, and the other's where these are unknown."""
        filled = {k: v for k, v in vars(other).items() if getattr(self, k) is None}
        return replace(self, **filled)

    @property
    def collapsed_loss(self) -> tuple[float, str] | None:
        """What a triplet loss is when all embeddings coincide, and what that value is called."""
        if self.margin is None:
            return None
        if self.soft:
            value = math.log1p(math.exp(self.margin))
            return value, f"softplus({self.margin:g}) ="
        return (self.margin, "the margin") if self.margin > 0 else None


def advise(health: Health, settings: RunSettings, facts: tuple[str, ...] = ()) -> str:
    """Causes, what was seen, and what to try; empty for a healthy embedding.

    >>> import torch
    >>> from uncollapse.health import measure
    >>> settings = RunSettings(positives="hard", negatives="hard", batch_size=144, margin=0.2)
    >>> advise(measure(torch.ones(4, 2)), settings, ("diameter fell to 0.3 % of its start",))
    'hard positives mined over 144 samples; diameter fell to 0.3 % of its start; try positives =
    easy, scale_free = true, or pool = 16'
    """
    if health.verdict == "healthy":
        return ""
    cause, remedies = _ADVICE[health.verdict](settings, health)
    return "; ".join([*filter(None, (cause, *facts)), f"try {_either(remedies)}"])


def lower_rate(lr: float) -> float:
    """A learning rate to try after one that diverged: a tenth, and no more than usual ones.

    >>> lower_rate(0.01), lower_rate(1e18)
    (0.001, 0.01)
    """
    return min(lr / 10, _USUAL_LR)


def _network(settings: RunSettings, health: Health) -> tuple[str, list[str]]:
    cause, remedies = "", []
    over = min(settings.pool or math.inf, settings.batch_size or math.inf)
    mined = f" mined over {over:.0f} samples" if math.isfinite(over) else ""
    mining = settings.positives is not None
    if mining and settings.positives not in _GENTLE and settings.negatives != "semihard":
        cause = f"{settings.positives} positives{mined}"
    if settings.positives not in _GENTLE:
        remedies.append("positives = easy")
    elif settings.negatives not in ("semihard", None):
        remedies.append("negatives = semihard")
    if not settings.scale_free:
        remedies.append("scale_free = true")
    if over > 16:
        remedies.append("pool = 16")
    if not remedies or (settings.positives in _GENTLE and settings.lr):
        remedies.append(_slower(settings))
    return cause, remedies


def _class(settings: RunSettings, health: Health) -> tuple[str, list[str]]:
    if settings.positives in _GENTLE:
        smaller = f"margin = {settings.margin / 2:g}" if settings.margin else "a smaller margin"
        return "", [
            "stopping earlier",
            smaller,
            "augmentation that keeps the modes of a class apart",
        ]
    cause = f"{settings.positives} positives pull all of a class together" * bool(
        settings.positives
    )
    return cause, ["positives = easy"]


def _dimensional(settings: RunSettings, health: Health) -> tuple[str, list[str]]:
    remedies = ["more classes per batch", "a lower weight decay"]
    if health.dim > 4 * health.axes:
        remedies.append(f"dim = {max(2, 4 * health.axes)} if quality does not fall")
    return f"{health.dim} dimensions, {health.axes} in use", remedies


def _diverging(settings: RunSettings, health: Health) -> tuple[str, list[str]]:
    slower = f"lr = {lower_rate(settings.lr):.1g}" if settings.lr else "a lower learning rate"
    remedies = [slower, "gradient clipping"]
    if not settings.normalize:
        remedies.append("normalize = true")
    return "", remedies


def _cone(settings: RunSettings, health: Health) -> tuple[str, list[str]]:
    cause, remedies = _network(settings, health)
    return cause, [*remedies, "subtracting the mean before rows are normalised"]


def _uninformative(settings: RunSettings, health: Health) -> tuple[str, list[str]]:
    return "", [
        "checking that labels belong to their rows",
        "training for longer",
        _slower(settings),
    ]


_ADVICE: dict[str, Callable[[RunSettings, Health], tuple[str, list[str]]]] = {
    "network-collapse": _network,
    "shrinking": _network,
    "class-collapse": _class,
    "dimensional-collapse": _dimensional,
    "diverging": _diverging,
    "cone": _cone,
    "uninformative": _uninformative,
}


def _slower(settings: RunSettings) -> str:
    return f"lr = {settings.lr / 3:.1g}" if settings.lr else "a lower learning rate"


def _either(words: list[str]) -> str:
    if len(words) < 2:
        return "".join(words)
    comma = "," if len(words) > 2 else ""
    return f"{', '.join(words[:-1])}{comma} or {words[-1]}"


def _number(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return None
