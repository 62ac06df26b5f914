"""What to change when an embedding collapses: the best change first, with its evidence.

Monitor, guard, forecast, `diagnose` and the docs all use it, so that their advice agrees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from uncollapse.health.strategy import GENTLE, RunSettings, Strategy, changed_keys, rank_strategies
from uncollapse.health.verdict import Health

__all__ = ["Advice", "advise", "advise_on"]

_USUAL_LR = 1e-2  # few networks train at more
# Of docs/choosing.md, "Which strategy is best".
_STUDY = "best of six strategies in 12 of 27 settings of the study, within 3 % of the best in 22"


@dataclass(frozen=True)
class Advice:
    """Why it happened (may be empty), one sentence on what to change, and the evidence for it."""

    cause: str
    sentence: str
    evidence: str = ""


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
    advice = advise_on(health.verdict, settings, dim=health.dim, axes=health.axes)
    return "; ".join(filter(None, (advice.cause, *facts, advice.sentence)))


def advise_on(
    verdict: str, settings: RunSettings, *, dim: int | None = None, axes: int | None = None
) -> Advice:
    """What to change in a run with these settings and this verdict, measured or predicted.

    >>> settings = RunSettings("hard", "hard", margin=0.2, scale_free=False)
    >>> advise_on("network-collapse", settings).sentence
    'try positives = inside with scale_free = true, or positives = inside'
    """
    return _ADVICE[verdict](settings, dim, axes)


def lower_rate(lr: float) -> float:
    """The learning rate to try after one that diverged: a tenth of it, at most 0.01.

    >>> lower_rate(0.01), lower_rate(1e18)
    (0.001, 0.01)
    """
    return min(lr / 10, _USUAL_LR)


def _network(settings: RunSettings, dim: int | None, axes: int | None) -> Advice:
    own, cause = settings.strategy, ""
    over = settings.mined_over
    mined = "" if over is None else f" mined over {over} samples"
    shrinks = settings.positives not in (*GENTLE, None) and settings.negatives != "semihard"
    if shrinks:
        cause = f"{settings.positives} positives{mined}"
    if own.positives is None and own.scale_free is None:  # not known, or no miner yet
        usual = "hard positives are the usual cause"
        return Advice(cause, _try(["positives = easy", _slower(settings)]), usual)
    ranked = [each for each in rank_strategies(own, settings) if each.lr_factor == 1.0]
    if not shrinks and settings.positives is not None:  # it is not the positives
        ranked = [each for each in ranked if each.positives == own.positives] or ranked
    words = [_in_words(own, each) for each in ranked[:2]]
    sentence = _try(words if shrinks and words else [*words, _slower(settings)])
    return Advice(cause, sentence, _why(settings, shrinks))


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
    changed = {key.split(".")[1]: value for key, value in changed_keys(own, then).items()}
    changes = [
        f"{key} = {str(value).lower() if value in (True, False) else value}"
        for key, value in changed.items()
    ]
    return " with ".join([changes[0], " and ".join(changes[1:])] if len(changes) > 1 else changes)


def _class(settings: RunSettings, dim: int | None, axes: int | None) -> Advice:
    if settings.positives in GENTLE:
        smaller = f"margin = {settings.margin / 2:g}" if settings.margin else "a smaller margin"
        modes = "augmentation that keeps the modes of a class apart"
        return Advice("", _try(["stopping earlier", smaller, modes]), "opinion")
    cause = f"{settings.positives} positives pull all of a class together"
    proved = "with noisy labels, other positives have their optimum at one point per class (EPS)"
    return Advice(cause * bool(settings.positives), _try(["positives = easy"]), proved)


def _dimensional(settings: RunSettings, dim: int | None, axes: int | None) -> Advice:
    remedies = ["more classes per batch", "a lower weight decay"]
    if dim is None or axes is None:
        return Advice("", _try(remedies), "opinion")
    if dim > 4 * axes:
        remedies.append(f"dim = {max(2, 4 * axes)} if quality does not fall")
    return Advice(f"{dim} dimensions, {axes} in use", _try(remedies), "opinion")


def _diverging(settings: RunSettings, dim: int | None, axes: int | None) -> Advice:
    slower = f"lr = {lower_rate(settings.lr):.1g}" if settings.lr else "a lower learning rate"
    remedies = [slower, "gradient clipping", *["normalize = true"] * (not settings.normalize)]
    return Advice("", _try(remedies), "opinion")


def _cone(settings: RunSettings, dim: int | None, axes: int | None) -> Advice:
    advice = _network(settings, dim, axes)
    return replace(
        advice, sentence=f"{advice.sentence}, and subtract the mean before rows are normalised"
    )


def _uninformative(settings: RunSettings, dim: int | None, axes: int | None) -> Advice:
    checks = ["checking that labels belong to their rows", "training for longer"]
    return Advice("", _try([*checks, _slower(settings)]), "opinion")


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
