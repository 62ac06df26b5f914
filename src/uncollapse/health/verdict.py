"""What is known about an embedding's health: its figures, and the verdict they give."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from uncollapse._base.check import check_bool, check_kind, check_number, percent
from uncollapse._base.files import read_toml
from uncollapse._base.result import Card, Shown
from uncollapse.geometry import Thickness

__all__ = ["VERDICTS", "ClassHealth", "Health", "Histogram", "Reference", "Thresholds", "judge"]

NO_DRIFT = 0.02  # drifts up to this do not shrink: that of a healthy batch varies by as much
DANGEROUS = 0.25  # drift above which, without a probe, runs are expected to collapse
PULLS_DIRECTIONS = 0.05  # direction drift above which a loss is said to pull directions together
_LEARNT = 0.5  # above chance: classes that are apart
FEW_EQUAL = 5  # so many copies of a row are nothing yet
_WIDER = 3  # times the spread: by so much a few rows hide all others
_DISTINCT = 0.1  # above chance: fine labels that neighbours share a little more often


@dataclass(frozen=True)
class Norms:
    """Lengths of the embeddings as given, before the centre is removed."""

    smallest: float
    mean: float
    largest: float

    @property
    def are_one(self) -> bool:
        """Whether all rows have length 1, to a percent."""
        return abs(self.smallest - 1) < 1e-2 and abs(self.largest - 1) < 1e-2


@dataclass(frozen=True)
class Histogram:
    """How many distances fall between one edge and the next."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Cosines:
    """Cosines between two rows as given, not centred: mean, 10 % quantile, median, 90 % quantile.

    A row of zeros has cosine 0 with all others.
    """

    mean: float
    low: float
    median: float
    high: float


@dataclass(frozen=True)
class NearestLabels:
    """How often a row's nearest neighbour has its label; neighbours that tie share the vote.

    `chance` and `deviation` are mean and standard deviation of `share` for shuffled labels. `rows`
    are counted: those of classes with two members or more.
    """

    share: float
    chance: float
    deviation: float
    rows: int


@dataclass(frozen=True)
class ClassHealth:
    """One class. `ratio`: its diameter over that of all.

    `tightness`: the distance that three quarters of its pairs stay below, over the median distance
    between classes; a few mislabelled members do not change it. NaN for a single member, or where
    the class was not sampled; so `modes` is None.
    """

    label: object
    count: int
    diameter: float
    ratio: float
    tightness: float
    modes: int | None = None


@dataclass(frozen=True)
class Reference:
    """The scale an embedding had when it was healthy, and how variable its classes were.

    `fine_agreement` and `fine_chance` are those of `Health`, where fine labels were known.
    """

    diameter: float
    spread: float = math.nan
    cdnv: float = math.nan
    fine_agreement: float = math.nan
    fine_chance: float = math.nan

    @classmethod
    def of(cls, given: Health | Reference | float | None) -> Reference | None:
        """What a user may call a reference: a state, its scale, or its diameter alone."""
        if isinstance(given, Health):
            known = (getattr(given.robust or given, field.name) for field in fields(cls))
            return cls(*(math.nan if value is None else value for value in known))
        if given is None or isinstance(given, Reference):
            return given
        return cls(check_number("reference", given, 0.0))


@dataclass(frozen=True, repr=False)
class Health(Shown):
    """Figures of an embedding, the verdict they give, and why.

    Scale: `diameter` (of all rows; exact, or where pairs are too many the largest distance found,
    and `diameter_most` what it is at most), `spread` (root mean square distance of two rows),
    `centre_norm`, `norms`, `resolution` (the largest rounding error of a distance in the dtype
    given), `relative_diameter` (over the reference's; None without one).
    Classes: `classes`, `separation` and `hard_mined_loss` (HNM (5), (4)), `agreement` (share of
    rows nearer to their class than to any other; ties count against) and `chance`, what it would be
    for shuffled labels; `nc1` (Papyan et al. 2020), `cdnv` (Galanti et al. 2022), `within_share`
    (of the variance). None without labels.
    Inside classes: `fine_agreement` (how often a row's nearest neighbour of its class shares its
    fine label), `fine_chance` and `fine_rows`, where fine labels were given; `fine_kept`, what is
    above chance over that of the reference; `modes_kept`, what is left of the neighbourhoods of the
    start (`figures.modes_kept`), where the same rows of the start were given.
    Dimensions: `effective_rank` (RankMe of the centred rows), `axes` (principal axes that hold 99 %
    of the variance), `room` (axes there could be), `thickness` (a bracket, HNM (9a)).
    Directions: `cosines` of pairs of rows (None for a single row); `nearest`, how often nearest
    neighbours share a label, beside chance (None without labels).
    Distances: histograms `within` and `between` classes; without labels all are `between`.
    `sampled` rows were used for all but n, scale, class diameters and the thickness bracket.
    Spoiled rows (`metrics.find_spoiled`), of all that were given: `invalid_rows`, which were left
    out; `zero_rows`; `equal_rows`, how often the most frequent other row stands there. `robust` are
    the figures without zero rows, those and at most 2 % that are far from all others, if there are
    any (`left_out` names them): the verdict is from these.
    """

    n: int
    dim: int
    diameter: float
    spread: float
    centre_norm: float
    norms: Norms
    resolution: float
    effective_rank: float
    axes: int
    room: int
    thickness: Thickness
    between: Histogram
    sampled: int
    classes: tuple[ClassHealth, ...] = ()
    separation: float | None = None
    hard_mined_loss: float | None = None
    agreement: float | None = None
    chance: float | None = None
    nc1: float | None = None
    cdnv: float | None = None
    within_share: float | None = None
    within: Histogram | None = None
    cosines: Cosines | None = None
    nearest: NearestLabels | None = None
    relative_diameter: float | None = None
    fine_agreement: float | None = None
    fine_chance: float | None = None
    fine_rows: int | None = None
    fine_kept: float | None = None
    modes_kept: float | None = None
    invalid_rows: int = 0
    zero_rows: int = 0
    equal_rows: int = 0
    robust: Health | None = None
    left_out: tuple[str, ...] = ()
    verdict: str = "healthy"
    reasons: tuple[str, ...] = ()
    advice: str = ""
    step: int | None = None
    diameter_most: float | None = None

    @property
    def modes_per_class(self) -> dict[object, int]:
        """Modes of each class that was sampled, by label."""
        return {each.label: each.modes for each in self.classes if each.modes is not None}

    def scalars(self) -> dict[str, float]:
        """The single numbers that are known and finite, by name: what a logger takes."""
        numbers = {name: x for name, x in vars(self).items() if isinstance(x, float)}
        numbers = {name: x for name, x in numbers.items() if name not in _UNLOGGED}
        numbers["axes"] = float(self.axes)
        numbers |= {"mean_norm": self.norms.mean, "thickness": self.thickness.lower}
        if self.cosines is not None:
            numbers["mean_cosine"] = self.cosines.mean
        if tight := [each.tightness for each in self.classes if math.isfinite(each.tightness)]:
            numbers["tightness"] = float(np.median(tight))
        numbers["verdict"] = float(list(VERDICTS).index(self.verdict))
        if self.robust is not None:
            robust = self.robust.scalars()
            numbers |= {f"robust_{name}": robust[name] for name in _ROBUST if name in robust}
        return {name: value for name, value in numbers.items() if math.isfinite(value)}

    def to_dict(self) -> dict[str, Any]:
        """Everything, in plain numbers, strings, lists and dicts; `from_dict` reads it back."""
        plain: dict[str, Any] = _plain(self)
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Health:
        """The health that `to_dict` wrote, also after a detour through JSON."""
        values = _with_tuples(plain)
        direction = np.asarray(values["thickness"]["direction"], np.float64)
        values["thickness"] = Thickness(**{**values["thickness"], "direction": direction})
        values["classes"] = tuple(ClassHealth(**each) for each in values["classes"])
        for name, kind in _PARTS.items():
            if values.get(name):  # earlier versions wrote others
                known = {field.name: values[name][field.name] for field in fields(kind)}
                values[name] = kind(**_with_tuples(known))
        if values.get("robust"):
            values["robust"] = cls.from_dict(values["robust"])
        return cls(**values)

    def card(self) -> Card:
        """The verdict, why, and the figures and distances that say so."""
        known = {"rows": self.n, "columns": self.dim} | self.scalars()
        figures = {name.replace("_", " "): known[name] for name in _SHOWN if name in known}
        others = "between classes" if self.within else "distances"
        drawn = {"distances within classes": self.within, others: self.between}
        counts = {name: histogram.counts for name, histogram in drawn.items() if histogram}
        curves = {name: [n / max(sum(seen), 1) for n in seen] for name, seen in counts.items()}
        verdict, lines = VERDICTS[self.verdict], [*self.reasons, *filter(None, [self.advice])]
        return Card(verdict.headline, lines, verdict.tone, figures, curves=curves)

    def __str__(self) -> str:
        return "\n  ".join([self.verdict, *self.reasons, *filter(None, [self.advice])])


_UNLOGGED = ("resolution", "chance", "fine_chance")
_SHOWN = ("rows", "columns", "diameter", "spread", "mean_cosine", "effective_rank", "agreement")
_ROBUST = ("diameter", "spread", "mean_norm", "mean_cosine", "effective_rank", "axes")
_PARTS = {"norms": Norms, "cosines": Cosines, "nearest": NearestLabels}
_PARTS |= {"within": Histogram, "between": Histogram}


def _plain(value: Any) -> Any:
    """As `asdict`, which copies every number of every tuple: a guard keeps such states often."""
    if is_dataclass(value):
        return {name: _plain(each) for name, each in vars(value).items()}
    if isinstance(value, tuple) and value and is_dataclass(value[0]):
        return tuple(map(_plain, value))
    return value.tolist() if isinstance(value, np.ndarray) else value


def _with_tuples(plain: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(x) if isinstance(x, list) else x for name, x in plain.items()}


@dataclass(frozen=True)
class Thresholds:
    """When a figure is bad. All are ratios, so none depends on the embedding's units.

    Args:
        collapse_ratio: network-collapse below this share of the reference's diameter or spread.
        shrink_ratio: shrinking below this share,
        structure_gain, structure_floor: unless the classes' variability (CDNV) fell to this share
            as well: structure is then learned faster than the scale shrinks, as with batch
            normalisation. Below `structure_floor` of the scale that is no excuse.
        diverge_ratio: diverging above this multiple. Healthy runs grow a hundredfold where the
            margin is large beside the first diameter.
        offset_ratio: network-collapse when the diameter is below this share of the distance from
            the origin to the centre: all rows then agree to four digits.
        lost_ratio: the same, where labels are given and neighbours no longer tell them apart.
        unit_diameter: network-collapse of embeddings of length 1 below this diameter (of 2).
        rounding: network-collapse when the diameter is below this many rounding errors of a
            distance in the dtype given.
        margin: the margin of a loss that measures in the embedding's own units, where known.
        margin_ratio: network-collapse below this share of `margin`. From 1 down no triplet can
            reach the margin; the default leaves room for runs that start small and grow.
        tightness: a class has collapsed when three quarters of its pairs are nearer than this share
            of the median distance between classes.
        class_share: class-collapse when at least this share of the classes has.
        fine_kept: class-collapse when less than this share is left of how far above chance
            neighbours inside a class shared fine labels at the start, by more than three standard
            errors. Runs that keep their modes keep nine tenths of it and more.
        modes_kept: the same without fine labels: less than this share of the neighbourhoods of the
            start is left (`figures.modes_kept`).
        axes_share, axes_most: dimensional-collapse when 99 % of the variance lies on at most
            1 + axes_share · (room − 1) axes and on at most `axes_most`, and the classes do not
            explain it (see `judge`).
        cone_median, cone_low: cone when half of all cosines are at least `cone_median` and nine
            tenths at least `cone_low`; quantiles, so that a few outlying rows do not hide it.
            From 0.99 on every fifth nearest neighbour changes when cosines are kept in float16;
            features that no class is lost in, non-negative ones and raw pixels among them, stay
            below 0.96.
        zero_share, equal_share: spoiled-rows when more than the first share of the rows (and more
            than one) is zero, or at least the second (and five) are one and the same row.
        chance_deviations: uninformative when nearest neighbours share a label no more often than
            chance plus this many standard deviations, both for shuffled labels. 2.5 % of the
            embeddings that know nothing of the labels pass.
        chance_room, chance_rows: only where these deviations are at most the share `chance_room`
            of the range above chance, and with at least `chance_rows` rows: with fewer, a useful
            embedding could look the same.

    >>> Thresholds(collapse_ratio=0.05).collapse_ratio
    0.05
    """

    collapse_ratio: float = 0.01
    shrink_ratio: float = 0.25
    structure_gain: float = 0.6
    structure_floor: float = 0.05
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
    zero_share: float = 0.001
    equal_share: float = 0.02
    chance_deviations: float = 1.96
    chance_room: float = 0.15
    chance_rows: int = 100

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                check_number(field.name, value, 0.0)
        check_number("shrink_ratio", self.shrink_ratio, self.collapse_ratio)

    @classmethod
    def of(cls, given: Thresholds | None) -> Thresholds:
        """What a user may pass: thresholds, or None for these."""
        given = cls() if given is None else given
        return check_kind("thresholds", given, Thresholds, "Thresholds(...), or None")

    def easier(self, factor: float) -> Thresholds:
        """Thresholds that call more states bad, by `factor`: these withdraw a bad verdict."""
        larger = (
            *("collapse_ratio", "shrink_ratio", "offset_ratio", "lost_ratio", "unit_diameter"),
            *("margin_ratio", "tightness", "fine_kept", "modes_kept"),
        )
        smaller = ("structure_gain", "diverge_ratio", "class_share")
        changed: dict[str, Any] = {name: getattr(self, name) * factor for name in larger}
        changed |= {name: getattr(self, name) / factor for name in smaller}
        changed |= {name: min(changed[name], 1.0) for name in ("fine_kept", "modes_kept")}
        for name in ("cone_median", "cone_low"):
            changed[name] = 1 - (1 - getattr(self, name)) * factor
        return replace(self, **changed)


def judge(
    health: Health,
    thresholds: Thresholds | None = None,
    reference: Health | Reference | float | None = None,
    *,
    cosine: bool = True,
    ignore: Collection[str] = (),
) -> Health:
    """The same figures with a verdict and all reasons, the deciding one first.

    Where several verdicts hold, the order is: not finite, network-collapse, diverging,
    class-collapse, shrinking, dimensional-collapse, cone, spoiled-rows, uninformative; but a fall
    in scale that the loss of axes explains (by sqrt(axes / room)) comes after the loss of axes. The
    last three only say what an embedding is like, the others how it was lost.
    For rows of length 1 a fall in scale says less than the cone it has led to, which comes before.
    Where there are figures without spoiled rows (`Health.robust`), these decide; spoiled-rows is
    then said where with those rows something else was wrong.
    Verdicts in `ignore` are not given. `cosine` as for `measure`.

    **Dimensional collapse and classes.** C classes that are nearly points lie on C − 1 axes however
    healthy they are. So few axes are not held against an embedding whose class means take up all
    they can (min(C − 1, dim)) and whose classes hold under a tenth of the variance.

    >>> import torch
    >>> from uncollapse.health import measure
    >>> health = measure(torch.randn(50, 4, generator=torch.Generator().manual_seed(0)))
    >>> judge(health, reference=Reference(1e4 * health.diameter)).verdict
    'network-collapse'
    """
    check_kind("health", health, Health, "a Health, as measure gives")
    limits, unit = Thresholds.of(thresholds), health.norms.are_one
    if health.robust is not None:
        again = partial(judge, reference=reference, cosine=cosine, ignore=ignore)
        plain = again(replace(health, robust=None), limits)
        return _robustly(plain, again(health.robust, limits), limits)
    reference = Reference.of(reference)
    known = reference is not None and reference.diameter > 0
    relative = health.diameter / reference.diameter if reference and known else None
    health = replace(health, relative_diameter=relative, fine_kept=_fine_kept(health, reference))
    reasons = {
        name: [why for rule in rules if (why := rule(health, limits, reference))]
        for name, rules in _RULES.items()
        if name not in ignore and (name != "cone" or check_bool("cosine", cosine) or unit)
    }
    held = [name for name, why in reasons.items() if why]
    if not held:
        held, reasons["healthy"] = ["healthy"], _healthy(health, limits, reference)
    if held[0] == "network-collapse":
        held = held[:1]  # what is inside a point is rounding
    if "shrinking" in held:
        explained = limits.shrink_ratio * math.sqrt(health.axes / max(health.room, 1))
        fewer_axes = "dimensional-collapse" in held and scale_ratio(health, reference) > explained
        better = "dimensional-collapse" if fewer_axes else "cone" * unit
        if better in held:
            held.remove(better)
            held.insert(held.index("shrinking"), better)
    every = tuple(why for name in held for why in reasons[name])
    return replace(health, verdict=held[0], reasons=(*every, *_left_out(health)))


def _robustly(plain: Health, robust: Health, limits: Thresholds) -> Health:
    """The verdict of the figures without spoiled rows; where that is good, the rows may be one."""
    verdict, reasons = robust.verdict, robust.reasons
    bad = plain.verdict not in ("healthy", verdict) or plain.spread > _WIDER * robust.spread
    if bad and verdict in ("healthy", "uninformative"):
        hidden = f"a few rows hide all others: with them the verdict would be {plain.verdict}"
        hidden += f", the spread {plain.spread / robust.spread:.3g} times as large"
        reasons = (_spoiled(plain, limits, None) or hidden, *reasons * (verdict != "healthy"))
        verdict = "spoiled-rows"
    reasons = (*reasons, *plain.left_out, *_left_out(plain))
    return replace(plain, verdict=verdict, reasons=reasons, robust=robust)


def scale_ratio(health: Health, reference: Reference | None) -> float:
    """The smaller of diameter and spread over the reference's; NaN without a reference."""
    if reference is None:
        return math.nan
    pairs = (health.diameter, reference.diameter), (health.spread, reference.spread)
    return min((now / then for now, then in pairs if then > 0), default=math.nan)


def cosine_text(value: float) -> str:
    """A cosine with as many digits as tell it from 1.

    >>> cosine_text(0.0876), cosine_text(0.99612), cosine_text(0.999951)
    ('0.088', '0.9961', '0.999951')
    """
    gap = 1 - value
    digits = 3 if gap <= 0 else max(3, 1 - math.floor(math.log10(gap)))
    return f"{value:z.{min(digits, 12)}f}"


# The rules of the verdicts: why one holds, in words with the numbers; None where it does not.


def _network(health: Health, limits: Thresholds, reference: Reference | None) -> str | None:
    size, centre = f"diameter {health.diameter:.3g}", health.centre_norm
    ratio, share = scale_ratio(health, reference), percent(health.diameter / (centre or 1.0), 2)
    if health.n < 2 or not math.isfinite(health.diameter):
        return None
    if health.diameter == 0.0:
        return "all embeddings are equal"
    if ratio <= limits.collapse_ratio:
        return f"{size}: the embedding fell to {percent(ratio, 2)} of its reference scale"
    if health.diameter <= limits.rounding * health.resolution:
        return f"{size} is of the order of one rounding error, {health.resolution:.3g}"
    if health.diameter <= limits.offset_ratio * centre:
        return f"{size} is {share} of the distance to the origin"
    if _structure_lost(health) and health.diameter <= limits.lost_ratio * centre:
        chance = f"a label no more often ({percent(health.agreement, 2)}) than chance"
        return f"{size} is {share} of the distance to the origin, and neighbours share {chance}"
    if health.norms.are_one and health.diameter <= limits.unit_diameter:
        return f"{size}: all embeddings of length 1 point the same way"
    if limits.margin and health.diameter <= limits.margin_ratio * limits.margin:
        share = percent(health.diameter / limits.margin, 2)
        return f"{size} is {share} of the margin {limits.margin:g}: no triplet can reach it"
    return None


def _diverging(health: Health, limits: Thresholds, reference: Reference | None) -> str | None:
    if not math.isfinite(health.diameter):
        of = f"{health.invalid_rows:,} of {health.n:,} " if health.invalid_rows else ""
        return f"{of}embeddings are NaN or infinite"
    ratio = scale_ratio(health, reference)
    if not ratio >= limits.diverge_ratio:
        return None
    return f"diameter {health.diameter:.3g}: {ratio:.3g} times its reference scale"


def _classes(health: Health, limits: Thresholds, reference: Reference | None) -> str | None:
    known = [entry for entry in health.classes if not math.isnan(entry.tightness)]
    # A pair may be two views of one sample: it counts where no class has more rows.
    known = [entry for entry in known if entry.count > 2] or known
    collapsed = [entry for entry in known if entry.tightness <= limits.tightness]
    # One class alone has nothing to be tight beside.
    if len(health.classes) < 2 or not collapsed:
        return None
    share = len(collapsed) / len(known)
    if share < limits.class_share:
        return None
    typical = float(np.median([entry.tightness for entry in collapsed]))
    ratio = float(np.median([entry.ratio for entry in collapsed]))
    points = f"{len(collapsed)} of {len(known)} classes ({percent(share, 2)}) are nearly points"
    pairs = f"their pairs lie within {percent(typical, 2)} of the distance between classes"
    return f"{points}: {pairs} (diameter {percent(ratio, 2)} of the whole)"


def _merged_modes(health: Health, limits: Thresholds, reference: Reference | None) -> str | None:
    """Class collapse as EPS §4 has it: the modes of the classes merge, the classes stay apart.

    Fine labels decide where there are some; without, the neighbourhoods of the start do.
    """
    if len(health.classes) > 1 and _structure_lost(health):
        return None  # no classes left whose modes could merge
    now, chance, rows = health.fine_agreement, health.fine_chance, health.fine_rows
    merged = "the modes inside classes have merged"
    if now is None or chance is None or not rows:
        kept = health.modes_kept
        if kept is None or not kept < limits.modes_kept:
            return None
        had = "of the neighbourhoods that rows had in their class at the start is left"
        return f"{merged}: {percent(kept, 2)} {had}"
    then, words = math.nan if reference is None else reference.fine_agreement, _fine_words(health)
    if math.isnan(then):
        # Of a network that has not learnt the classes either, nothing has merged.
        learnt = _above_chance(health.agreement, health.chance) >= _LEARNT
        at_most = _above_chance(now + 2 * _share_error(now, rows), chance)
        if chance >= 0.9 or not learnt or at_most >= _DISTINCT:
            return None
        return f"fine labels cannot be told inside classes: {words}, by chance {percent(chance, 2)}"
    error = math.hypot(_share_error(now, rows), _share_error(then, rows))
    kept = health.fine_kept
    if kept is None or not kept < limits.fine_kept or then - now <= 3 * error:
        return None
    left = f"{percent(kept, 2)} of what was above chance ({percent(chance, 2)}) is left"
    return f"{merged}: {words}, at the start {percent(then, 2)}; {left}"


def _shrinking(health: Health, limits: Thresholds, reference: Reference | None) -> str | None:
    ratio = scale_ratio(health, reference)
    if reference is None or not ratio <= limits.shrink_ratio:
        return None
    tighter = health.cdnv is not None and health.cdnv <= limits.structure_gain * reference.cdnv
    if ratio > limits.structure_floor and tighter:
        return None
    return f"diameter {health.diameter:.3g}: {percent(ratio, 2)} of its reference scale is left"


def _dimensions(health: Health, limits: Thresholds, reference: Reference | None) -> str | None:
    few = min(1 + limits.axes_share * (health.room - 1), limits.axes_most)
    if health.room < 2 or health.axes > few:
        return None
    apart = len(health.classes) > 1 and health.axes >= min(len(health.classes) - 1, health.room)
    if apart and health.within_share is not None and health.within_share < 0.1:
        return None  # the classes explain it
    hold = "axis holds" if health.axes == 1 else "axes hold"
    axes = f"{health.axes} of {health.room} possible {hold} 99 % of the variance"
    return f"{axes} (effective rank {health.effective_rank:.3g})"


def cone_reason(health: Health, limits: Thresholds, reference: Reference | None) -> str | None:
    cosines = health.cosines
    if cosines is None or cosines.median < limits.cone_median or cosines.low < limits.cone_low:
        return None
    mean, low, high = (cosine_text(x) for x in (cosines.mean, cosines.low, cosines.high))
    return f"cosines between rows: mean {mean}, 80 % in {low} to {high}: nearly one direction"


def _uninformative(health: Health, limits: Thresholds, reference: Reference | None) -> str | None:
    nearest = health.nearest
    if nearest is None or nearest.rows < limits.chance_rows:
        return None
    chance, slack = nearest.chance, limits.chance_deviations * nearest.deviation
    if nearest.share > chance + slack or slack > limits.chance_room * (1 - chance):
        return None
    low, high = percent(max(0.0, chance - slack), 2), percent(min(1.0, chance + slack), 2)
    shuffled = f"shuffled labels give {percent(chance, 2)} ({low} to {high})"
    share = f"{percent(nearest.share, 2)} of {nearest.rows:,} rows"
    return f"nearest neighbours share a label for {share}; {shuffled}"


def _spoiled(health: Health, limits: Thresholds, reference: Reference | None) -> str | None:
    n, words = health.n, []
    if health.zero_rows > max(1, limits.zero_share * n):  # one may be there by right
        words.append(f"{health.zero_rows:,} of {n:,} rows are zero")
    if health.equal_rows >= max(FEW_EQUAL, limits.equal_share * n):
        words.append(f"{health.equal_rows:,} of {n:,} rows are one and the same")
    return f"{' and '.join(words)}: searches find these instead of others" if words else None


def _healthy(health: Health, limits: Thresholds, reference: Reference | None) -> list[str]:
    scale, ratio = f"diameter {health.diameter:.3g}", scale_ratio(health, reference)
    if reference is None:
        scale += " (we cannot tell whether this is small: pass --reference)"
    else:
        scale += f", {percent(ratio, 2)} of its reference scale"
        if ratio <= limits.shrink_ratio and reference.cdnv > 0.0:
            fell = percent((health.cdnv or 0.0) / reference.cdnv, 2)
            scale += f"; that is no shrinking, for the classes' variability fell to {fell}"
    reasons = [scale, f"{health.axes} of {health.room} possible axes hold 99 % of the variance"]
    tight = [entry.tightness for entry in health.classes if not math.isnan(entry.tightness)]
    if tight and len(health.classes) > 1:
        spans = f"{percent(min(tight), 2)} of the distance between classes"
        reasons.append(f"the tightest of {len(tight)} classes spans {spans}")
    if health.fine_agreement is not None:
        start = math.nan if reference is None else reference.fine_agreement
        then = "" if math.isnan(start) else f", at the start {percent(start, 2)}"
        reasons.append(f"{_fine_words(health)}{then}, by chance {percent(health.fine_chance, 2)}")
    elif health.modes_kept is not None:
        kept = percent(health.modes_kept, 2)
        reasons.append(f"{kept} of the neighbourhoods inside classes at the start is left")
    return reasons


def _left_out(health: Health) -> tuple[str, ...]:
    lost, every = health.invalid_rows, health.n + health.invalid_rows
    if not lost or not math.isfinite(health.diameter):
        return ()
    return (f"{lost:,} of {every:,} rows NaN or infinite, left out",)


def _fine_words(health: Health) -> str:
    now = percent(health.fine_agreement, 2)
    return f"a row's nearest neighbour of its class shares its fine label in {now}"


def _fine_kept(health: Health, reference: Reference | None) -> float | None:
    """What fine labels tell of neighbours above chance, over what they did; None if not known."""
    if reference is None:
        return None
    now = _above_chance(health.fine_agreement, health.fine_chance)
    then = _above_chance(reference.fine_agreement, reference.fine_chance)
    return max(now, 0.0) / then if then > 0 and not math.isnan(now) else None


def _structure_lost(health: Health) -> bool:
    tells = health.chance is not None and health.chance < 0.9
    return tells and _above_chance(health.agreement, health.chance) < 0.05


def _above_chance(share: float | None, chance: float | None) -> float:
    """0 for chance, 1 for all; NaN where it is not known."""
    if share is None or chance is None or not chance < 1:
        return math.nan
    return (share - chance) / (1 - chance)


def _share_error(share: float, rows: int) -> float:
    """Standard error of a share of so many rows; not 0 where it is none or all of few."""
    near = (share * rows + 1) / (rows + 2)
    return math.sqrt(near * (1 - near) / rows)


class Verdict(NamedTuple):
    """How a page presents a verdict, how bad it is, and when it holds; what to do, see `advice`.

    `tone` is `good`, `warn` or `bad`; `good`, `bad` and `act` say it to someone who knows nothing
    of embeddings. A rule gives the reason, or None where it does not hold.
    """

    rules: tuple[Callable[[Health, Thresholds, Reference | None], str | None], ...]
    headline: str
    meaning: str = ""
    tone: str = "bad"
    good: str = ""
    bad: str = ""
    act: str = ""


# The first that holds decides; `judge` has the exceptions.
_RULES = {
    "network-collapse": (_network,),
    "diverging": (_diverging,),
    "class-collapse": (_classes, _merged_modes),
    "shrinking": (_shrinking,),
    "dimensional-collapse": (_dimensions,),
    "cone": (cone_reason,),
    "spoiled-rows": (_spoiled,),
    "uninformative": (_uninformative,),
}
# In words, by name, in the order of the numbers that loggers get.
_WORDS = read_toml(Path(__file__).with_name("verdicts.toml"))
VERDICTS = {name: Verdict(_RULES.get(name, ()), **words) for name, words in _WORDS.items()}
