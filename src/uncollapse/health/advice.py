"""The one adviser: what to change in a situation, best first, with the evidence for it.

Monitor, guard, forecast, `diagnose` and the docs all ask here, so that they say the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from uncollapse.health.records import Health
from uncollapse.health.strategy import Strategy, changed_keys
from uncollapse.losses import IdentityLoss, MultipleLosses

__all__ = [
    "Advice",
    "RunSettings",
    "advise",
    "advise_on",
    "contenders",
    "lower_rate",
    "rank_strategies",
]

# What the miners of pytorch-metric-learning choose, in our two words.
_PML_MINERS = {
    "BatchHardMiner": ("hard", "hard"),
    "BatchEasyHardMiner": ("easy", "hard"),
    "DistanceWeightedMiner": ("all", "distance"),
    "MultiSimilarityMiner": ("multi_similarity", "multi_similarity"),
}
_GENTLE = ("inside", "easy")
_USUAL_LR = 1e-2  # above it few networks train
_SLOWER = 1.0 / 3.0
_MARGIN = 0.2


@dataclass(frozen=True)
class RunSettings:
    """What is known of a run: None where it is not. `margin` only for losses in distances.

    `k` is the samples of a class in a batch, `several_modes` whether classes have several modes,
    `summed` whether other losses are added to this one.

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
    k: int | None = None
    several_modes: bool | None = None
    summed: bool | None = None

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
            summed=isinstance(loss, IdentityLoss | MultipleLosses) or None,
        )

    def known(self, other: RunSettings) -> RunSettings:
        """These settings, and the other's where these are unknown."""
        filled = {k: v for k, v in vars(other).items() if getattr(self, k) is None}
        return replace(self, **filled)

    @property
    def strategy(self) -> Strategy:
        """The part of them that a guard may change."""
        mined = Strategy(self.positives, self.negatives, self.pool)
        if self.scale_free is None:
            return mined
        return replace(mined, scale_free=self.scale_free, margin=self.margin, soft=self.soft)

    @property
    def collapsed_loss(self) -> tuple[float, str] | None:
        """What a triplet loss is when all embeddings coincide, and what that value is called."""
        if self.margin is None or self.summed:  # what else is added has its own value there
            return None
        if self.soft:
            value = math.log1p(math.exp(self.margin))
            return value, f"softplus({self.margin:g}) ="
        return (self.margin, "the margin") if self.margin > 0 else None


@dataclass(frozen=True)
class Advice:
    """Why it happened, in a few words or none, and the one sentence that says what to change."""

    cause: str
    sentence: str


def rank_strategies(own: Strategy, settings: RunSettings | None = None) -> list[Strategy]:
    """The alternatives to a strategy that shrinks the embedding, best first.

    The order is that of the study on real data (docs/choosing.md). A loss without margin, or a soft
    one, gets the margin 0.2 as well: it charges nothing, or everything, once classes are apart.
    Last comes the same strategy at a third of the learning rate.

    >>> first = Strategy("hard", "hard", scale_free=False, margin=0.0, soft=False)
    >>> [str(one) for one in rank_strategies(first)][:3]
    ['inside x hard, scale-free', 'easy x hard, scale-free', 'inside x hard']
    """
    known = settings or RunSettings()
    slower = replace(own, lr_factor=own.lr_factor * _SLOWER)
    base = own if own.scale_free is None else _with_margin(own)
    free = [] if own.scale_free is None else [replace(base, scale_free=True)]
    if own.positives is None:
        return [one for one in (*free, slower) if one != own]
    # With two samples of a class there is one positive, whatever it is called.
    gentle = list(_GENTLE) if known.k != 2 else []
    if own.scale_free is None:
        gentle = gentle[-1:]  # other packages have no inside positives
    elif known.several_modes:
        gentle = gentle[::-1]
    by_positive = [[replace(one, positives=p) for one in (*free, base)] for p in gentle]
    if known.several_modes:  # modes come first: both forms of easy positives
        found = [one for forms in by_positive for one in forms]
    else:
        found = [one for forms in zip(*by_positive, strict=True) for one in forms]
    calm = [own.positives, *["easy"] * ("easy" in gentle)]
    found += [replace(base, positives=p, negatives="semihard") for p in calm]
    return [one for one in dict.fromkeys([*found, *free, slower]) if one != own]


def contenders(own: Strategy, ranked: Sequence[Strategy]) -> list[Strategy]:
    """Of ranked strategies those that a short race may choose from: other positives, no more.

    Semi-hard negatives, and hard positives made scale-free, can look best after a few steps and end
    far behind; they are for runs that have nothing else.

    >>> first = Strategy("hard", "hard", scale_free=False, margin=0.2, soft=False)
    >>> len(contenders(first, rank_strategies(first)))
    4
    """
    plain = [one for one in ranked if one.lr_factor == own.lr_factor]
    mined = [one for one in plain if one.positives != own.positives]
    return [one for one in mined if one.negatives == own.negatives] or plain


def advise(health: Health, settings: RunSettings, facts: tuple[str, ...] = ()) -> str:
    """Causes, what was seen, and what to try; empty for a healthy embedding.

    >>> import torch
    >>> from uncollapse.health import measure
    >>> settings = RunSettings(positives="hard", negatives="hard", batch_size=144, margin=0.2)
    >>> advise(measure(torch.ones(4, 2)), settings, ("diameter fell to 0.3 % of its start",))
    'hard positives mined over 144 samples; diameter fell to 0.3 % of its start; try positives =
    easy or negatives = semihard'
    """
    if health.verdict == "healthy":
        return ""
    if health.fine_agreement is not None:  # fine labels that divide a class are its modes
        settings = settings.known(RunSettings(several_modes=True))
    found = advise_on(health.verdict, settings, dim=health.dim, axes=health.axes)
    return "; ".join(filter(None, (found.cause, *facts, found.sentence)))


def advise_on(
    verdict: str, settings: RunSettings, *, dim: int | None = None, axes: int | None = None
) -> Advice:
    """What to change in a run of these settings under this verdict, seen or predicted.

    >>> settings = RunSettings("hard", "hard", margin=0.2, scale_free=False)
    >>> advise_on("network-collapse", settings).sentence
    'try positives = inside with scale_free = true, or positives = easy with scale_free = true'
    """
    return _ADVICE[verdict](settings, dim, axes)


def lower_rate(lr: float) -> float:
    """A learning rate to try after one that diverged: a tenth, and no more than usual ones.

    >>> lower_rate(0.01), lower_rate(1e18)
    (0.001, 0.01)
    """
    return min(lr / 10, _USUAL_LR)


def _with_margin(own: Strategy) -> Strategy:
    return replace(own, margin=_MARGIN, soft=False) if own.soft or own.margin == 0 else own


def _network(settings: RunSettings, dim: int | None, axes: int | None) -> Advice:
    own, cause = settings.strategy, ""
    over = min(settings.pool or math.inf, settings.batch_size or math.inf)
    mined = f" mined over {over:.0f} samples" if math.isfinite(over) else ""
    shrinks = settings.positives not in (*_GENTLE, None) and settings.negatives != "semihard"
    if shrinks:
        cause = f"{settings.positives} positives{mined}"
    if own.positives is None and own.scale_free is None:  # not known, or no miner yet
        return Advice(cause, _try(["positives = easy", _slower(settings)]))
    ranked = [one for one in rank_strategies(own, settings) if one.lr_factor == 1.0]
    if not shrinks and settings.positives is not None:  # it is not the positives
        ranked = [one for one in ranked if one.positives == own.positives] or ranked
    words = [_in_words(own, one) for one in ranked[:2]]
    return Advice(cause, _try(words if shrinks and words else [*words, _slower(settings)]))


def _in_words(own: Strategy, then: Strategy) -> str:
    changed = {key.split(".")[1]: value for key, value in changed_keys(own, then).items()}
    said = [
        f"{key} = {str(value).lower() if value in (True, False) else value}"
        for key, value in changed.items()
    ]
    return " with ".join([said[0], " and ".join(said[1:])] if len(said) > 1 else said)


def _class(settings: RunSettings, dim: int | None, axes: int | None) -> Advice:
    if settings.positives in _GENTLE:
        smaller = f"margin = {settings.margin / 2:g}" if settings.margin else "a smaller margin"
        modes = "augmentation that keeps the modes of a class apart"
        return Advice("", _try(["stopping earlier", smaller, modes]))
    cause = f"{settings.positives} positives pull all of a class together"
    return Advice(cause * bool(settings.positives), _try(["positives = easy"]))


def _dimensional(settings: RunSettings, dim: int | None, axes: int | None) -> Advice:
    remedies = ["more classes per batch", "a lower weight decay"]
    if dim is None or axes is None:
        return Advice("", _try(remedies))
    if dim > 4 * axes:
        remedies.append(f"dim = {max(2, 4 * axes)} if quality does not fall")
    return Advice(f"{dim} dimensions, {axes} in use", _try(remedies))


def _diverging(settings: RunSettings, dim: int | None, axes: int | None) -> Advice:
    slower = f"lr = {lower_rate(settings.lr):.1g}" if settings.lr else "a lower learning rate"
    remedies = [slower, "gradient clipping", *["normalize = true"] * (not settings.normalize)]
    return Advice("", _try(remedies))


def _cone(settings: RunSettings, dim: int | None, axes: int | None) -> Advice:
    found = _network(settings, dim, axes)
    return replace(
        found, sentence=f"{found.sentence}, and subtract the mean before rows are normalised"
    )


def _uninformative(settings: RunSettings, dim: int | None, axes: int | None) -> Advice:
    checks = ["checking that labels belong to their rows", "training for longer"]
    return Advice("", _try([*checks, _slower(settings)]))


_ADVICE: dict[str, Callable[[RunSettings, int | None, int | None], Advice]] = {
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


def _try(words: list[str]) -> str:
    comma = "," * (len(words) > 2 or " with " in "".join(words))
    return "try " + (f"{', '.join(words[:-1])}{comma} or " if words[1:] else "") + words[-1]


def _number(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return None
