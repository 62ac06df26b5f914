"""What is known about an embedding's health: figures, verdict, and the reasons for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.check import check_number
from uncollapse.geometry import Thickness

__all__ = [
    "VERDICTS",
    "ClassHealth",
    "Cosines",
    "Health",
    "Histogram",
    "NearestLabels",
    "Norms",
    "Reference",
]

VERDICTS = (
    "healthy",
    "shrinking",
    "network-collapse",
    "class-collapse",
    "dimensional-collapse",
    "diverging",
    "cone",
    "uninformative",
)


@dataclass(frozen=True)
class Norms:
    """Lengths of the embeddings as given, before the centre is removed."""

    smallest: float
    mean: float
    largest: float
    deviation: float

    @classmethod
    def of(cls, norms: Tensor) -> Norms:
        """Of the rows' lengths."""
        largest = norms.max()
        unit = torch.where(largest > 0, largest, torch.ones_like(largest))  # squares stay in range
        deviation = (norms / unit).std(correction=0) * unit
        values = norms.min(), norms.mean(), largest, deviation
        return cls(*torch.stack(values).tolist())

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
            known = (given.cdnv, given.fine_agreement, given.fine_chance)
            numbers = (math.nan if one is None else one for one in known)
            return cls(given.diameter, given.spread, *numbers)
        if given is None or isinstance(given, Reference):
            return given
        return cls(check_number("reference", given, 0.0))


@dataclass(frozen=True)
class Health:
    """Figures of an embedding, the verdict they give, and why.

    Scale: `diameter` (exact, of all rows), `spread` (root mean square distance of two rows),
    `centre_norm`, `norms`, `resolution` (the largest rounding error of a distance in the dtype
    given), `relative_diameter` (over the reference's; None without one).
    Classes: `classes`, `separation` and `hard_mined_loss` (HNM (5), (4)), `agreement` (share of
    rows nearer to their class than to any other; ties count against) and `chance`, what it would be
    for shuffled labels; `nc1` (Papyan et al. 2020), `cdnv` (Galanti et al. 2022), `within_share`
    (of the variance). None without labels.
    Inside classes: `fine_agreement` (how often a row's nearest neighbour of its class shares its
    fine label), `fine_chance` and `fine_rows`, where fine labels were given; `fine_kept`, what is
    above chance over that of the reference; `modes_kept`, what is left of the neighbourhoods of the
    start (`inner_structure.modes_kept`), where the same rows of the start were given.
    Dimensions: `effective_rank` (RankMe of the centred rows), `axes` (principal axes that hold 99 %
    of the variance), `room` (axes there could be), `thickness` (a bracket, HNM (9a)).
    Directions: `cosines` of pairs of rows (None for a single row); `nearest`, how often nearest
    neighbours share a label, beside chance (None without labels).
    Distances: histograms `within` and `between` classes; without labels all are `between`.
    `sampled` rows were used for all but n, scale, class diameters and the thickness bracket.
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
    verdict: str = "healthy"
    reasons: tuple[str, ...] = ()
    advice: str = ""
    step: int | None = None

    @property
    def class_diameters(self) -> dict[object, float]:
        """Diameter of each class, by label."""
        return {one.label: one.diameter for one in self.classes}

    @property
    def modes_per_class(self) -> dict[object, int]:
        """Modes of each class that was sampled, by label."""
        return {one.label: one.modes for one in self.classes if one.modes is not None}

    def scalars(self) -> dict[str, float]:
        """The single numbers that are known and finite, by name: what a logger takes."""
        tight = [one.tightness for one in self.classes if math.isfinite(one.tightness)]
        numbers: dict[str, float | None] = {
            name: getattr(self, name)
            for name in (
                "diameter",
                "relative_diameter",
                "spread",
                "centre_norm",
                "effective_rank",
                "axes",
                "separation",
                "hard_mined_loss",
                "agreement",
                "nc1",
                "cdnv",
                "within_share",
                "fine_agreement",
                "fine_kept",
                "modes_kept",
            )
        }
        numbers |= {"mean_norm": self.norms.mean, "thickness": self.thickness.lower}
        numbers["mean_cosine"] = None if self.cosines is None else self.cosines.mean
        numbers["tightness"] = float(np.median(tight)) if tight else None
        numbers["verdict"] = float(VERDICTS.index(self.verdict))
        return {k: float(v) for k, v in numbers.items() if v is not None and math.isfinite(v)}

    def to_dict(self) -> dict[str, Any]:
        """Everything, in plain numbers, strings, lists and dicts; `from_dict` reads it back."""
        plain = asdict(self)
        plain["thickness"]["direction"] = self.thickness.direction.tolist()
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Health:
        """The health that `to_dict` wrote, also after a detour through JSON."""
        values = dict(plain)
        direction = np.asarray(values["thickness"]["direction"], np.float64)
        values["thickness"] = Thickness(**{**values["thickness"], "direction": direction})
        values["norms"] = Norms(**values["norms"])
        for name in ("within", "between"):
            if values[name] is not None:
                both = {key: tuple(row) for key, row in values[name].items()}
                values[name] = Histogram(**both)
        for name, kind in (("cosines", Cosines), ("nearest", NearestLabels)):
            if values.get(name) is not None:  # earlier versions did not write them
                values[name] = kind(**values[name])
        values["classes"] = tuple(ClassHealth(**one) for one in values["classes"])
        values["reasons"] = tuple(values["reasons"])
        return cls(**values)

    def __str__(self) -> str:
        lines = [self.verdict, *(f"  {reason}" for reason in self.reasons)]
        return "\n".join(lines + [f"  {self.advice}"] * bool(self.advice))
