"""What to change when an embedding collapses: the best change first, with its evidence.

Monitor, guard, forecast, `diagnose` and the docs all use it, so that their advice agrees. It knows
plain values only, no loss (`health.strategy` reads them off one), so that a page can use it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from uncollapse.health.verdict import NO_DRIFT, PULLS_DIRECTIONS, Health

__all__ = ["Advice", "RunSettings", "Strategy", "advise", "advise_on", "rank_strategies"]

DriftOf = Callable[["Strategy"], float]  # of a strategy, on a run's rows; NaN where unknown

GENTLE = ("inside", "easy")  # positives that do not pull to a point, best first
MINED, FORM = ("positives", "negatives", "pool"), ("scale_free", "margin", "soft")
# Where a config has each field of a strategy.
_KEYS = {name: f"mining.{name}" for name in MINED}
_KEYS |= {name: f"loss.{name}" for name in FORM}
# What to do about a loss that sits at a resting value, by the state of the rows there.
_STILL = "not learning: check learning rate, temperature or scale, labels, optimiser's parameters"
_COMPARE = "are the rows equal (uncollapse diagnose FILE says)? Then it has collapsed. Else it"
NEXT_CHECKS = dict.fromkeys(("point", "equal"), f"{_COMPARE} is {_STILL}")
NEXT_CHECKS |= {"aligned": f"{_COMPARE} has learned"}
NEXT_CHECKS |= {"random": f"normal at the start of training; if it stays, {_STILL}"}
_MEASURE = (
    "uc.drift(loss, embeddings, labels): above 0.02 it is the loss (positives = easy), else the "
    "learning rate"
)
_MARGIN = 0.2
RATES = (1 / 10, 1 / 3)  # what a learning rate that is too high is multiplied by, best first
_LEAST_RATE = 1e-3  # of the first one
_USUAL_LR = 1e-2  # few networks train at more
# Of docs/results/label-free.
_DIRECTION_STUDY = "27 of 32 losses with their optimum at a point are above 0.1, and 0 of 64 others"
# Of docs/results/rescue/strategies.md.
_STUDY = "best of six strategies in 12 of 27 settings of the study, within 3 % of the best in 22"


@dataclass(frozen=True)
class RunSettings:
    """What is known of a run: None where it is not. `margin` only for losses in distances.

    `k` is the samples of a class in a batch, `several_modes` whether classes have several modes,
    `summed` whether other losses are added to this one, `memory` the rows of a cross-batch memory.
    `labels` is False for a run without labels (SimCLR, SimSiam, BYOL, VICReg), `direction_drift`
    what `health.direction_drift` last gave. `loss` says whose the loss is: "tuples" for ours that
    compares samples, "proxies" for one that compares them with vectors it learns, "foreign" for
    another package's, a function, or one of your own that lists no tuples.

    >>> RunSettings(lr=0.1).known(RunSettings(lr=0.2, k=4)).k
    4
    """

    positives: str | None = None
    negatives: str | None = None
    pool: int | None = None
    margin: float | None = None
    soft: bool | None = None
    scale_free: bool | str | None = None
    normalize: bool | None = None
    batch_size: int | None = None
    lr: float | None = None
    k: int | None = None
    several_modes: bool | None = None
    summed: bool | None = None
    memory: int | None = None
    labels: bool | None = None
    direction_drift: float | None = None
    loss: str | None = None

    def known(self, other: RunSettings) -> RunSettings:
        """These settings, and the other's where these are unknown."""
        return replace(self, **{k: v for k, v in vars(other).items() if getattr(self, k) is None})

    @property
    def mined_over(self) -> int | None:
        """How many rows an anchor mines among: the batch's or the memory's, at most the pool."""
        rows = [size for size in (self.batch_size, self.memory) if size is not None]
        most = [size for size in (self.pool, max(rows, default=None)) if size is not None]
        return min(most, default=None)

    @property
    def strategy(self) -> Strategy:
        """The part of them that a guard may change."""
        names = MINED if self.scale_free is None else (*MINED, *FORM)
        return Strategy(**{name: getattr(self, name) for name in names})


@dataclass(frozen=True)
class Strategy:
    """Mining, its pool, the form of a triplet loss, and a factor on the learning rate.

    None means that the loss has no such choice.
    """

    positives: str | None = None
    negatives: str | None = None
    pool: int | None = None
    scale_free: bool | str | None = None
    margin: float | None = None
    soft: bool | None = None
    lr_factor: float = 1.0

    def __str__(self) -> str:
        words = [f"{self.positives} x {self.negatives}"] if self.positives else ["same tuples"]
        words += ["scale-free"] if self.scale_free is True else []
        words += [f"scale-free ({self.scale_free})"] if isinstance(self.scale_free, str) else []
        words += ["soft"] if self.soft else []
        words += ["margin 0"] if self.margin == 0 and not self.soft else []
        words += [f"pool {self.pool}"] if self.pool else []
        words += [f"lr x {self.lr_factor:.2g}"] if self.lr_factor != 1.0 else []
        return ", ".join(words)


@dataclass(frozen=True)
class Advice:
    """Why it happened (may be empty), one sentence on what to change, and the evidence for it."""

    cause: str
    sentence: str
    evidence: str = ""


def advise(
    health: Health,
    settings: RunSettings,
    facts: Sequence[str] = (),
    rest: str = "",
    drift_of: DriftOf | None = None,
) -> str:
    """Causes, what was seen, and what to try; empty for a healthy embedding that learns.

    `rest` is the state that a loss stands for which has sat at a resting value for long, and which
    the last of the facts is about: see `health.resting`. `drift_of` measures strategies on the
    run's rows: what shrinks them is not advised.

    >>> import torch
    >>> from uncollapse.health import measure
    >>> settings = RunSettings(positives="hard", negatives="hard", batch_size=144, margin=0.2)
    >>> advise(measure(torch.ones(4, 2)), settings, ("diameter fell to 0.3 % of its start",))
    'hard positives mined over 144 samples; diameter fell to 0.3 % of its start; try positives =
    easy or negatives = semihard'
    """
    if health.verdict == "healthy":
        spread = NEXT_CHECKS[rest] if rest == "random" else f"but the rows differ: {_STILL}"
        return f"{facts[-1]}, {spread}" if rest else ""
    if health.fine_agreement is not None:  # fine labels that divide a class are its modes
        settings = settings.known(RunSettings(several_modes=True))
    advice = _advice(health.verdict, _Known(settings, health.dim, health.axes, drift_of))
    return "; ".join(filter(None, (advice.cause, *facts, advice.sentence)))


def advise_on(verdict: str, settings: RunSettings, drift_of: DriftOf | None = None) -> Advice:
    """What to change in a run with these settings and this verdict, measured or predicted.

    >>> settings = RunSettings("hard", "hard", margin=0.2, scale_free=False)
    >>> advise_on("network-collapse", settings).sentence
    'try positives = inside with scale_free = true, or positives = inside'
    """
    return _advice(verdict, _Known(settings, drift_of=drift_of))


@dataclass(frozen=True)
class _Known:
    """What advice is given by."""

    settings: RunSettings
    dim: int | None = None
    axes: int | None = None
    drift_of: DriftOf | None = None

    def drift(self, strategy: Strategy) -> float:
        """NaN where it was not measured."""
        return math.nan if self.drift_of is None else self.drift_of(strategy)

    def safe(self, strategies: Sequence[Strategy]) -> list[Strategy]:
        """Those that are not known to shrink the rows."""
        return [each for each in strategies if not self.drift(each) > NO_DRIFT]


def _advice(verdict: str, known: _Known) -> Advice:
    # Who mines has labels, also where the monitor is not given them.
    without = known.settings.labels is False and known.settings.positives is None
    by_verdict = _ADVICE | (_WITHOUT_LABELS if without else {})
    return by_verdict[verdict](known)


def lower_rate(lr: float) -> float:
    """The learning rate to try next: a tenth; of one above 1, which no network trains at, 0.01.

    >>> lower_rate(0.01), lower_rate(1e18)
    (0.001, 0.01)
    """
    return lr / 10 if lr <= 1 else _USUAL_LR


def _network(known: _Known) -> Advice:
    settings = known.settings
    own, cause = settings.strategy, ""
    slower, drift = _slower(settings), known.drift(own)
    if drift <= NO_DRIFT:
        cause = f"the loss does not shrink these rows (drift {drift:+.3f}): its steps are too long"
        return Advice(cause, _try([slower]), "drift is what a loss does, for any rate")
    if settings.loss == "proxies":
        return Advice(cause, _try([slower, "warm-up"]), "it has no tuples to choose")
    mined = f" mined over {settings.mined_over} samples" if settings.mined_over else ""
    shrinks = settings.positives not in (*GENTLE, None) and settings.negatives != "semihard"
    if shrinks:
        cause = f"{settings.positives} positives{mined}"
    if settings.loss == "foreign" and (settings.positives or drift > NO_DRIFT):
        usual = Strategy("hard", "hard", scale_free=False, margin=settings.margin or _MARGIN)
        safe = known.safe(rank_strategies(usual, settings))
        words = [f"{code(each)} in place of this loss" for each in safe[:1]]
        return Advice(cause, _try(words or [slower]), _STUDY)
    if own.positives is None and own.scale_free is None:  # not known, or no miner yet
        if drift > NO_DRIFT:
            gentle = known.drift(Strategy("easy", "all")) <= NO_DRIFT
            change = "positives = easy" if gentle else slower
            return Advice(cause, _try([change]), "measured on these rows")
        return Advice(cause, _try([_MEASURE]), "positive drift shrinks, whatever the learning rate")
    ranked = rank_strategies(own, settings)
    if not shrinks and settings.positives is not None:  # it is not the positives
        ranked = [each for each in ranked if each.positives == own.positives]
    words = [_in_words(own, each) for each in known.safe(ranked)[:2]]
    return Advice(cause, _try(words or [slower]), _why(settings, shrinks))


def code(strategy: Strategy) -> str:
    """The line that makes a triplet loss of a strategy.

    >>> code(Strategy("inside", "hard", scale_free=True, margin=0.2))
    'uc.TripletLoss(margin=0.2, miner=uc.Miner("inside", "hard"), scale_free=True)'
    """
    mined = f'uc.Miner("{strategy.positives}", "{strategy.negatives}")'
    free = ", scale_free=True" if strategy.scale_free else ""
    return f"uc.TripletLoss(margin={strategy.margin or _MARGIN:g}, miner={mined}{free})"


def _why(settings: RunSettings, shrinks: bool) -> str:
    if not shrinks:
        return "a scale-free loss has drift 0, and with semi-hard negatives it is never positive"
    if settings.k == 2:
        return "two samples of a class have one positive, whatever it is called"
    if settings.scale_free is None:
        return "easy positives pull less than any other, and semi-hard negatives never to a point"
    if settings.several_modes:
        return "easy positives keep the modes of a class apart: their mode drift is not positive"
    return _STUDY


def _in_words(own: Strategy, then: Strategy) -> str:
    changed = changed_keys(own, then).items()
    changes = [f"{key.split('.')[1]} = {str(value).lower()}" for key, value in changed]
    return " with ".join([changes[0], " and ".join(changes[1:])] if len(changes) > 1 else changes)


def _class(known: _Known) -> Advice:
    settings = known.settings
    if settings.positives in GENTLE:
        smaller = f"margin = {settings.margin / 2:g}" if settings.margin else "a smaller margin"
        modes = "augmentation that keeps the modes of a class apart"
        return Advice("", _try(["stopping earlier", smaller, modes]), "opinion")
    cause = f"{settings.positives} positives pull all of a class together"
    proved = "with noisy labels, other positives have their optimum at one point per class (EPS)"
    return Advice(cause * bool(settings.positives), _try(["positives = easy"]), proved)


def _dimensional(known: _Known) -> Advice:
    dim, axes = known.dim, known.axes
    remedies = ["more classes per batch", "a lower weight decay"]
    if dim is None or axes is None:
        return Advice("", _try(remedies), "opinion")
    if dim > 4 * axes:
        remedies.append(f"dim = {max(2, 4 * axes)} if quality does not fall")
    return Advice(f"{dim} dimensions, {axes} in use", _try(remedies), "opinion")


def _diverging(known: _Known) -> Advice:
    remedies = [_slower(known.settings), "gradient clipping"]
    remedies += ["normalize = true"] * (not known.settings.normalize)
    return Advice("", _try(remedies), "opinion")


def _cone(known: _Known) -> Advice:
    advice, centre = _network(known), "subtract the mean before rows are normalised"
    return replace(advice, sentence=f"{advice.sentence}, and {centre}")


def _uninformative(known: _Known) -> Advice:
    checks = ["checking that labels belong to their rows", "training for longer"]
    return Advice("", _try([*checks, _slower(known.settings)]), "opinion")


def _spoiled(known: _Known) -> Advice:
    without = "leaving these rows out (--drop zero,duplicates,far,hubs)"
    return Advice("", _try([without, "embedding their samples again"]), "opinion")


_ADVICE: dict[str, Callable[[_Known], Advice]] = {
    "network-collapse": _network,
    "shrinking": _network,
    "class-collapse": _class,
    "dimensional-collapse": _dimensional,
    "diverging": _diverging,
    "cone": _cone,
    "uninformative": _uninformative,
    "spoiled-rows": _spoiled,
}


# Without labels: what such methods have.


def _directions(known: _Known) -> Advice:
    """By what the loss does to the directions, where that is known."""
    settings = known.settings
    slower, pull = _slower(settings), settings.direction_drift
    batch_norm = "batch norm in the projector"
    if pull is None or math.isnan(pull):
        checks = ["checking predictor, stop-gradient and EMA", "a larger variance term"]
        return Advice("", _try([*checks, batch_norm, slower]), "opinion")
    if pull > PULLS_DIRECTIONS:
        cause = f"the loss pulls directions together (direction drift {pull:+.2g})"
        against = ["a predictor with a stop-gradient or an EMA target", "a larger variance term"]
        return Advice(cause, _try(against), _DIRECTION_STUDY)
    cause = f"the loss does not pull directions together (direction drift {pull:+.2g})"
    return Advice(cause, _try([slower, batch_norm, "another temperature"]), "opinion")


def _few_dimensions(known: _Known) -> Advice:
    advice = _dimensional(known)
    remedies = ["a larger covariance or redundancy term", "batch norm in the projector"]
    return replace(advice, sentence=_try([*remedies, "stronger augmentation"]))


_LOST = ("network-collapse", "shrinking", "class-collapse", "cone")
_WITHOUT_LABELS = dict.fromkeys(_LOST, _directions) | {"dimensional-collapse": _few_dimensions}


def _slower(settings: RunSettings) -> str:
    return f"lr = {lower_rate(settings.lr):.1g}" if settings.lr else "a tenth of the learning rate"


def _try(words: list[str]) -> str:
    comma = "," * (len(words) > 2 or " with " in "".join(words))
    return "try " + (f"{', '.join(words[:-1])}{comma} or " if words[1:] else "") + words[-1]


# The order in which strategies are tried.


def rank_strategies(own: Strategy, settings: RunSettings | None = None) -> list[Strategy]:
    """The alternatives to a strategy that shrinks the embedding, best first.

    The order is that of the study on real data (docs/results/rescue). A loss without margin, or a
    soft one, gets the margin 0.2 as well: once classes are apart, none of its triplets counts, or
    all.

    >>> first = Strategy("hard", "hard", scale_free=False, margin=0.0, soft=False)
    >>> [str(strategy) for strategy in rank_strategies(first)][:3]
    ['inside x hard, scale-free', 'inside x hard', 'easy x hard, scale-free']
    """
    known = settings or RunSettings()
    is_triplet_loss = own.scale_free is not None
    base = own
    if is_triplet_loss and (own.soft or own.margin == 0):
        base = replace(own, margin=_MARGIN, soft=False)
    free = [replace(base, scale_free=base.scale_free or True)] if is_triplet_loss else []
    ranked: list[Strategy] = []
    if own.positives is not None:
        # With two samples of a class there is one positive, whatever it is called.
        gentle = list(GENTLE) if known.k != 2 else []
        if not is_triplet_loss:
            gentle = gentle[-1:]  # other packages have no inside positives
        elif known.several_modes:
            gentle = gentle[::-1]
        ranked += [replace(form, positives=p) for p in gentle for form in (*free, base)]
        calm = [own.positives, *["easy"] * ("easy" in gentle)]
        ranked += [replace(base, positives=p, negatives="semihard") for p in calm]
    return [strategy for strategy in dict.fromkeys([*ranked, *free]) if strategy != own]


def contenders(own: Strategy, ranked: Sequence[Strategy]) -> list[Strategy]:
    """Of ranked strategies those that a short race may choose from: other positives, no more.

    Semi-hard negatives, and hard positives made scale-free, can look best after a few steps and end
    far behind; they are for runs that have nothing else.

    >>> first = Strategy("hard", "hard", scale_free=False, margin=0.2, soft=False)
    >>> len(contenders(first, rank_strategies(first)))
    4
    """
    mined = [strategy for strategy in ranked if strategy.positives != own.positives]
    return [strategy for strategy in mined if strategy.negatives == own.negatives] or list(ranked)


def at_lower_rates(strategies: Sequence[Strategy], rate: float) -> list[Strategy]:
    """Each strategy at a tenth and a third of a rate; those too slow to train are left out.

    >>> [str(strategy) for strategy in at_lower_rates([Strategy("easy", "hard")], 1.0)]
    ['easy x hard, lr x 0.1', 'easy x hard, lr x 0.33']
    """
    rates = [rate * share for share in RATES if rate * share >= _LEAST_RATE]
    return [replace(strategy, lr_factor=each) for strategy in strategies for each in rates]


def changed_keys(first: Strategy, then: Strategy) -> dict[str, Any]:
    """The keys of a config in which two strategies differ, with the second's values.

    >>> changed_keys(Strategy("hard", "hard", None, False), Strategy("easy", "hard", None, True))
    {'mining.positives': 'easy', 'loss.scale_free': True}
    """
    values = {key: (getattr(first, name), getattr(then, name)) for name, key in _KEYS.items()}
    return {key: new for key, (old, new) in values.items() if new != old}
