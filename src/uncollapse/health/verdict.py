"""From figures to a verdict: one small rule for each word."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np

from uncollapse._base.check import check_number
from uncollapse.health.records import Health, Reference

__all__ = [
    "Finding",
    "Thresholds",
    "above_chance",
    "cosine_text",
    "fine_kept",
    "judge",
    "merged_modes",
    "modes_left",
    "percent",
    "scale_ratio",
    "share_error",
]


# Shares: above chance, their error, and in words.


def percent(share: float | None) -> str:
    """A share in words: two digits, however small.

    >>> percent(0.00312), percent(0.5), percent(None)
    ('0.31 %', '50 %', '?')
    """
    return (
        "?"
        if share is None
        else f"{100 * share:.2g} %"
        if share < 0.995
        else f"{100 * share:.0f} %"
    )


def above_chance(share: float | None, chance: float | None) -> float:
    """0 for chance, 1 for all; NaN where it is not known.

    >>> above_chance(0.6, 0.2)
    0.49999999999999994
    """
    if share is None or chance is None or not chance < 1:
        return math.nan
    return (share - chance) / (1 - chance)


def share_error(share: float, rows: int) -> float:
    """Standard error of a share of so many rows; not 0 where it is none or all of few.

    >>> share_error(0.5, 100), share_error(1.0, 100) > 0
    (0.05, True)
    """
    near = (share * rows + 1) / (rows + 2)
    return math.sqrt(near * (1 - near) / rows)


# When a figure is bad: every threshold of the verdict, with its default and its reason.


@dataclass(frozen=True)
class Thresholds:
    """When a figure is bad. All are ratios, so none depends on the embedding's units.

    Args:
        collapse_ratio: network-collapse below this share of the reference's diameter or spread.
        shrink_ratio: shrinking below this share,
        structure_gain: unless the classes' variability (CDNV) fell to this share as well: structure
            is then learned faster than the scale shrinks, as with batch normalisation.
        diverge_ratio: diverging above this multiple. Healthy runs grow a hundredfold where the
            margin is large beside the first diameter.
        offset_ratio: network-collapse when the diameter is below this share of the distance from
            the origin to the centre: all rows then agree to four digits.
        lost_ratio: the same, where labels are given and neighbours no longer tell them apart.
        unit_diameter: network-collapse of embeddings of length 1 below this diameter (of 2).
        rounding: network-collapse when the diameter is below this many rounding errors of a
            distance in the dtype given.
        margin: the margin of a loss that measures in the embedding's own units, where known.
        margin_ratio: network-collapse below this share of `margin`: such a loss cannot see it.
        tightness: a class has collapsed when three quarters of its pairs are nearer than this share
            of the median distance between classes.
        class_share: class-collapse when at least this share of the classes has.
        fine_kept: class-collapse when less than this share is left of what neighbours inside a
            class share fine labels above chance at the start, and the loss is beyond three standard
            errors. Runs that keep their modes keep nine tenths of it and more.
        modes_kept: the same without fine labels: less than this share of the neighbourhoods of the
            start is left (`inner_structure.modes_kept`).
        axes_share, axes_most: dimensional-collapse when 99 % of the variance lies on at most
            1 + axes_share · (room − 1) axes and on at most `axes_most`, and the classes do not
            explain it (see `judge`).
        cone_median, cone_low: cone when half of all cosines are at least `cone_median` and nine
            tenths at least `cone_low`; quantiles, so that a few outlying rows do not hide it.
            From 0.99 on every fifth nearest neighbour changes when cosines are kept in float16;
            features that no class is lost in, non-negative ones and raw pixels among them, stay
            below 0.96.
        chance_deviations: uninformative when nearest neighbours share a label no more often than
            chance and so many standard deviations of it, for shuffled labels: 2.5 % of embeddings
            that tell labels apart no better than that are let through.
        chance_room, chance_rows: and only where these deviations are at most the share
            `chance_room` of what is left above chance, and there are so many rows: with fewer,
            an embedding of some use could look the same.

    >>> Thresholds(collapse_ratio=0.05).collapse_ratio
    0.05
    """

    collapse_ratio: float = 0.01
    shrink_ratio: float = 0.25
    structure_gain: float = 0.6
    diverge_ratio: float = 1000.0
    offset_ratio: float = 1e-4
    lost_ratio: float = 0.02
    unit_diameter: float = 0.02
    rounding: float = 2.0
    margin: float | None = None
    margin_ratio: float = 0.01
    tightness: float = 0.05
    class_share: float = 0.1
    fine_kept: float = 0.7
    modes_kept: float = 0.25
    axes_share: float = 0.2
    axes_most: int = 4
    cone_median: float = 0.99
    cone_low: float = 0.98
    chance_deviations: float = 1.96
    chance_room: float = 0.15
    chance_rows: int = 100

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                check_number(field.name, value, 0.0)
        check_number("shrink_ratio", self.shrink_ratio, self.collapse_ratio)

    def easier(self, factor: float) -> Thresholds:
        """Thresholds that call more states bad, by `factor`: what a bad verdict is left by."""
        return replace(
            self,
            collapse_ratio=self.collapse_ratio * factor,
            shrink_ratio=self.shrink_ratio * factor,
            structure_gain=self.structure_gain / factor,
            diverge_ratio=self.diverge_ratio / factor,
            offset_ratio=self.offset_ratio * factor,
            lost_ratio=self.lost_ratio * factor,
            unit_diameter=self.unit_diameter * factor,
            margin_ratio=self.margin_ratio * factor,
            tightness=self.tightness * factor,
            class_share=self.class_share / factor,
            cone_median=1 - (1 - self.cone_median) * factor,
            cone_low=1 - (1 - self.cone_low) * factor,
            fine_kept=min(self.fine_kept * factor, 1.0),
            modes_kept=min(self.modes_kept * factor, 1.0),
        )


# When the modes of classes have merged: the rules for EPS's class collapse, with their words.

_LEARNT = 0.5  # above chance: classes that stay apart
_TOLD = 0.1  # above chance: fine labels that neighbours tell a little of


def merged_modes(health: Health, limits: Thresholds, reference: Reference | None) -> str | None:
    """Why the modes inside classes have merged; None where they have not, or nothing is known.

    Fine labels decide where there are some: they know. Without, the neighbourhoods of the start do.
    """
    if health.fine_agreement is not None:
        start = math.nan if reference is None else reference.fine_agreement
        return _indistinct(health) if math.isnan(start) else _lost(health, limits, start)
    kept = health.modes_kept
    if kept is None or not kept < limits.modes_kept:
        return None
    return (
        f"the modes inside classes have merged: {percent(kept)} of the neighbourhoods that rows "
        "had in their class at the start is left"
    )


def fine_kept(health: Health, reference: Reference | None) -> float | None:
    """What fine labels tell of neighbours above chance, over what they did; None if not known."""
    if reference is None:
        return None
    now = above_chance(health.fine_agreement, health.fine_chance)
    then = above_chance(reference.fine_agreement, reference.fine_chance)
    return max(now, 0.0) / then if then > 0 and not math.isnan(now) else None


def modes_left(health: Health, reference: Reference | None) -> tuple[str, ...]:
    """What a healthy embedding keeps inside its classes, in a sentence; none if not known."""
    if health.fine_agreement is not None:
        start = math.nan if reference is None else reference.fine_agreement
        then = "" if math.isnan(start) else f", at the start {percent(start)}"
        return (f"{_words(health)}{then}, by chance {percent(health.fine_chance)}",)
    if health.modes_kept is not None:
        kept = percent(health.modes_kept)
        return (f"{kept} of the neighbourhoods inside classes at the start is left",)
    return ()


def _lost(health: Health, limits: Thresholds, then: float) -> str | None:
    now, rows, kept = health.fine_agreement, health.fine_rows, health.fine_kept
    if now is None or not rows or kept is None or not kept < limits.fine_kept:
        return None
    if then - now <= 3 * math.hypot(share_error(now, rows), share_error(then, rows)):
        return None
    return (
        f"the modes inside classes have merged: {_words(health)}, at the start {percent(then)}; "
        f"{percent(kept)} of what was above chance ({percent(health.fine_chance)}) is left"
    )


def _indistinct(health: Health) -> str | None:
    """Without a start: fine labels that neighbours tell nothing of, in classes that are apart."""
    now, chance, rows = health.fine_agreement, health.fine_chance, health.fine_rows
    # Of a network that has not learnt the classes either, nothing has merged.
    learnt = above_chance(health.agreement, health.chance) >= _LEARNT
    if now is None or chance is None or not rows or chance >= 0.9 or not learnt:
        return None
    if above_chance(now + 2 * share_error(now, rows), chance) >= _TOLD:
        return None
    return (
        f"fine labels cannot be told inside classes: {_words(health)}, by chance {percent(chance)}"
    )


def _words(health: Health) -> str:
    now = percent(health.fine_agreement)
    return f"a row's nearest neighbour of its class shares its fine label in {now}"


class Finding(NamedTuple):
    """A verdict and the reason for it, in words with the numbers."""

    verdict: str
    reason: str


def judge(
    health: Health,
    thresholds: Thresholds | None = None,
    reference: Reference | None = None,
    *,
    cosine: bool = True,
    ignore: Collection[str] = (),
) -> Health:
    """The same figures with a verdict and all reasons, the deciding one first.

    The order of the words, where several hold: not finite, network-collapse, diverging,
    class-collapse, shrinking, dimensional-collapse, cone, uninformative; but a fall in scale that
    the loss of axes explains (by sqrt(axes / room)) comes after the loss of axes. Cone and
    uninformative are last: the others say how an embedding was lost, these only what it is like.
    Of rows of length 1 a fall in scale says less than the cone it has led to, which comes before.
    Words in `ignore` are not said. `cosine=False`: rows are compared by Euclidean distance, so only
    those of length 1 can be a cone.

    **Dimensional collapse and classes.** C classes that are nearly points lie on C − 1 axes however
    healthy they are. So few axes are not held against an embedding whose class means take up all
    they can (min(C − 1, dim)) and whose classes hold under a tenth of the variance.

    >>> import torch
    >>> from uncollapse.health import measure
    >>> health = measure(torch.randn(50, 4, generator=torch.Generator().manual_seed(0)))
    >>> judge(health, reference=Reference(1e4 * health.diameter)).verdict
    'network-collapse'
    """
    limits = thresholds or Thresholds()
    relative = None
    if reference is not None and reference.diameter > 0:
        relative = health.diameter / reference.diameter
    health = replace(health, fine_kept=fine_kept(health, reference))
    unit = health.norms.are_one
    cone = _cone(health, limits) if cosine or unit else None
    fall = _scale_and_axes(health, limits, reference)
    rules = (
        _not_finite(health),
        _network(health, limits, reference),
        _diverging(health, limits, reference),
        _classes(health, limits),
        _modes(health, limits, reference),
        *([cone, *fall] if unit and _says(fall[0], "shrinking") else [*fall, cone]),
        _uninformative(health, limits),
    )
    found = [rule for rule in rules if rule is not None and rule.verdict not in ignore]
    if len(found) > 1 and found[0].verdict == "network-collapse":
        found = found[:1]  # what is inside a point is rounding
    reasons = tuple(finding.reason for finding in found) or _healthy(health, reference)
    verdict = found[0].verdict if found else "healthy"
    return replace(health, verdict=verdict, reasons=reasons, relative_diameter=relative)


def scale_ratio(health: Health, reference: Reference | None) -> float:
    """The smaller of diameter and spread over the reference's; NaN without a reference."""
    if reference is None:
        return math.nan
    pairs = (health.diameter, reference.diameter), (health.spread, reference.spread)
    return min((now / then for now, then in pairs if then > 0), default=math.nan)


def _not_finite(health: Health) -> Finding | None:
    if math.isfinite(health.diameter):
        return None
    return Finding("diverging", "embeddings are NaN or infinite")


def _network(health: Health, limits: Thresholds, reference: Reference | None) -> Finding | None:
    size = f"diameter {health.diameter:.3g}"
    ratio = scale_ratio(health, reference)
    centre = health.centre_norm
    lost = _structure_lost(health)
    reason = None
    if health.n < 2:
        return None
    if health.diameter == 0.0:
        reason = "all embeddings are equal"
    elif ratio <= limits.collapse_ratio:
        reason = f"{size}: the embedding fell to {percent(ratio)} of its reference scale"
    elif health.diameter <= limits.rounding * health.resolution:
        reason = f"{size} is of the order of one rounding error, {health.resolution:.3g}"
    elif health.diameter <= limits.offset_ratio * centre:
        reason = f"{size} is {percent(health.diameter / centre)} of the distance to the origin"
    elif lost and health.diameter <= limits.lost_ratio * centre:
        reason = (
            f"{size} is {percent(health.diameter / centre)} of the distance to the origin, and "
            f"neighbours share a label no more often ({percent(health.agreement)}) than chance"
        )
    elif health.norms.are_one and health.diameter <= limits.unit_diameter:
        reason = f"{size}: all embeddings of length 1 point the same way"
    elif limits.margin and health.diameter <= limits.margin_ratio * limits.margin:
        share = percent(health.diameter / limits.margin)
        reason = f"{size} is {share} of the margin {limits.margin:g}: the loss cannot see it"
    return None if reason is None else Finding("network-collapse", reason)


def _structure_lost(health: Health) -> bool:
    if health.agreement is None or health.chance is None or health.chance >= 0.9:
        return False
    return above_chance(health.agreement, health.chance) < 0.05


def _diverging(health: Health, limits: Thresholds, reference: Reference | None) -> Finding | None:
    ratio = scale_ratio(health, reference)
    if not ratio >= limits.diverge_ratio:
        return None
    return Finding(
        "diverging", f"diameter {health.diameter:.3g}: {ratio:.3g} times its reference scale"
    )


def _classes(health: Health, limits: Thresholds) -> Finding | None:
    known = [one for one in health.classes if not math.isnan(one.tightness)]
    collapsed = [one for one in known if one.tightness <= limits.tightness]
    # One class alone has nothing to be tight beside.
    if len(health.classes) < 2 or not collapsed:
        return None
    share = len(collapsed) / len(known)
    if share < limits.class_share:
        return None
    typical = float(np.median([one.tightness for one in collapsed]))
    ratio = float(np.median([one.ratio for one in collapsed]))
    return Finding(
        "class-collapse",
        f"{len(collapsed)} of {len(known)} classes ({percent(share)}) are nearly points: their "
        f"pairs lie within {percent(typical)} of the distance between classes "
        f"(diameter {percent(ratio)} of the whole)",
    )


def _modes(health: Health, limits: Thresholds, reference: Reference | None) -> Finding | None:
    """Class collapse as EPS §4 has it: the modes of the classes merge, the classes stay apart."""
    if len(health.classes) > 1 and _structure_lost(health):
        return None  # no classes left whose modes could merge
    reason = merged_modes(health, limits, reference)
    return None if reason is None else Finding("class-collapse", reason)


def _scale_and_axes(
    health: Health, limits: Thresholds, reference: Reference | None
) -> list[Finding | None]:
    scale, axes = _shrinking(health, limits, reference), _dimensions(health, limits)
    explained = math.sqrt(health.axes / max(health.room, 1))
    if axes and scale_ratio(health, reference) > limits.shrink_ratio * explained:
        return [axes, scale]
    return [scale, axes]


def _shrinking(health: Health, limits: Thresholds, reference: Reference | None) -> Finding | None:
    ratio = scale_ratio(health, reference)
    if reference is None or not ratio <= limits.shrink_ratio:
        return None
    if health.cdnv is not None and health.cdnv <= limits.structure_gain * reference.cdnv:
        return None
    reason = f"diameter {health.diameter:.3g}: {percent(ratio)} of its reference scale is left"
    return Finding("shrinking", reason)


def _dimensions(health: Health, limits: Thresholds) -> Finding | None:
    few = min(1 + limits.axes_share * (health.room - 1), limits.axes_most)
    if health.room < 2 or health.axes > few or _explained_by_classes(health):
        return None
    axes = "axis holds" if health.axes == 1 else "axes hold"
    return Finding(
        "dimensional-collapse",
        f"{health.axes} of {health.room} possible {axes} 99 % of the variance "
        f"(effective rank {health.effective_rank:.3g})",
    )


def _explained_by_classes(health: Health) -> bool:
    if health.within_share is None or len(health.classes) < 2:
        return False
    return health.within_share < 0.1 and health.axes >= min(len(health.classes) - 1, health.room)


def _says(finding: Finding | None, verdict: str) -> bool:
    return finding is not None and finding.verdict == verdict


def _cone(health: Health, limits: Thresholds) -> Finding | None:
    found = health.cosines
    if found is None or found.median < limits.cone_median or found.low < limits.cone_low:
        return None
    return Finding(
        "cone",
        f"cosines between rows: mean {cosine_text(found.mean)}, 80 % in {cosine_text(found.low)} "
        f"to {cosine_text(found.high)}: nearly one direction",
    )


def _uninformative(health: Health, limits: Thresholds) -> Finding | None:
    found = health.nearest
    if found is None or found.rows < limits.chance_rows:
        return None
    slack = limits.chance_deviations * found.deviation
    if found.share > found.chance + slack or slack > limits.chance_room * (1 - found.chance):
        return None
    low, high = max(0.0, found.chance - slack), min(1.0, found.chance + slack)
    return Finding(
        "uninformative",
        f"nearest neighbours share a label for {percent(found.share)} of {found.rows:,} rows; "
        f"shuffled labels give {percent(found.chance)} ({percent(low)} to {percent(high)})",
    )


def _healthy(health: Health, reference: Reference | None) -> tuple[str, ...]:
    first = f"diameter {health.diameter:.3g}"
    if reference is None:
        first += " (no reference: whether that is small or large is not decided)"
    else:
        first += f", {percent(scale_ratio(health, reference))} of its reference scale"
    reasons = [first, f"{health.axes} of {health.room} possible axes hold 99 % of the variance"]
    tight = [one.tightness for one in health.classes if not math.isnan(one.tightness)]
    if tight and len(health.classes) > 1:
        reasons.append(
            f"the tightest of {len(tight)} classes spans {percent(min(tight))} of the distance "
            "between classes"
        )
    return (*reasons, *modes_left(health, reference))


def cosine_text(value: float) -> str:
    """A cosine with as many digits as tell it from 1.

    >>> cosine_text(0.0876), cosine_text(0.99612), cosine_text(0.999951)
    ('0.088', '0.9961', '0.999951')
    """
    gap = 1 - value
    digits = 3 if gap <= 0 else max(3, 1 - math.floor(math.log10(gap)))
    return f"{value:.{min(digits, 12)}f}"
