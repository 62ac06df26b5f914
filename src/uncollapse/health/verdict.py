"""From figures to a verdict: one small rule for each word."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from uncollapse.health.mode_rules import fine_kept, merged_modes, modes_left
from uncollapse.health.records import Health, Reference
from uncollapse.health.shares import above_chance, percent
from uncollapse.health.thresholds import Thresholds

__all__ = ["Finding", "cosine_text", "judge", "scale_ratio"]


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
