"""The numbered statements of HNM, checked on given points: Thm 3.2, 3.3, Cor. 3.4, (16), (17)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from uncollapse._base.arrays import Array, ArrayLike, ClassLayout, points64
from uncollapse._base.check import check_number, check_paired
from uncollapse.geometry.diameters import diameter, diameter_lower_bound, thickness
from uncollapse.geometry.nearest import NearestSeparated, nearest_separated
from uncollapse.geometry.triplet_separation import hard_mined_loss, is_triplet_separated

_TOLERANCE = 1e-7  # relative: what the solvers' answers may be off
Bracket = tuple[float, float]


@dataclass(frozen=True)
class Claim:
    """One statement "left <= right" of the paper, on one set of points.

    Each side is a bracket (low, high), its ends equal where the value is known exactly. `status` is
    "holds", "violated", "vacuous" (the statement says nothing here) or "undecided" (the brackets
    overlap); only certified brackets decide. The high ends are the values of the points found.
    """

    name: str
    statement: str
    left: Bracket
    right: Bracket
    status: str
    sentence: str

    @property
    def ratio(self) -> float:
        """Left side over right side, by their high ends; NaN for 0 / 0."""
        left, right = self.left[1], self.right[1]
        if right == 0.0:
            return math.nan if left == 0.0 else math.copysign(math.inf, left)
        return left / right


def check_claims(
    x: ArrayLike,
    labels: ArrayLike,
    alpha: float = 0.0,
    *,
    c: float = 2.0,
    end: ArrayLike | None = None,
    starts: int | None = None,
    seed: int = 0,
) -> list[Claim]:
    """Every numbered statement of the paper on the points `x`, decided where it can be.

    `c` is the constant of (17). `end` are the points after training; without it (16) and (17)
    are about the nearest separated points. `starts` and `seed` go to `nearest_separated`.

    >>> for claim in check_claims([[0.0], [3.0], [-1.0]], [0, 0, 1]):
    ...     print(claim.name, claim.status)
    Thm 3.2, lower holds
    Thm 3.2, upper holds
    Thm 3.3, lower holds
    Thm 3.3, upper holds
    Cor. 3.4, lower holds
    Cor. 3.4, upper holds
    (16) holds
    (17) vacuous
    """
    raw = points64(x, min_rows=2)
    ids = ClassLayout.of(labels, len(raw), min_classes=2).ids
    alpha, c = check_number("alpha", alpha, 0.0), check_number("c", c, 0.0)
    final = None if end is None else points64(end, "end")
    if final is not None:
        check_paired(raw, final, ("x", "end"))
    loss = hard_mined_loss(raw, ids, alpha)
    iso = nearest_separated(raw, ids, alpha, "iso", starts=starts, seed=seed)
    haus = nearest_separated(raw, ids, alpha, "haus", starts=starts, seed=seed)
    d_iso, d_haus = (iso.lower_bound, iso.value), (haus.lower_bound, haus.value)
    moved, low = _diameters(raw, final, haus, diameter_lower_bound(diameter(raw), loss, c))
    if final is not None and not is_triplet_separated(final, ids, alpha):
        why = "Training did not end triplet-separated, which the statement assumes."
        moved, low = (replace(claim, status="vacuous", sentence=why) for claim in (moved, low))
    always = "It is proved for every margin."
    return [
        _claim("Thm 3.2, lower", "d_iso <= 2 d_haus", d_iso, 2.0, d_haus, always),
        _thick(raw, d_iso, d_haus),
        _claim("Thm 3.3, lower", "L <= 2 d_iso", (loss, loss), 2.0, d_iso, always),
        _claim("Thm 3.3, upper", "d_iso <= 2 L", d_iso, 2.0, (loss, loss)),
        _claim("Cor. 3.4, lower", "L <= 4 d_haus", (loss, loss), 4.0, d_haus, always),
        # (16) and (17) together say d_haus <= (c/2) L.
        _claim("Cor. 3.4, upper", f"d_haus <= {c / 2:g} L", d_haus, c / 2, (loss, loss)),
        moved,
        replace(low, statement=f"diam(f) - {c:g} L <= diam(f_TS)"),
    ]


def _thick(x: ArrayLike, iso: Bracket, haus: Bracket) -> Claim:
    """d_haus <= c d_iso with c = c_n diam/θ, of which c_n is not explicit: tried with c_n = 1."""
    width, extent = thickness(x), diameter(x)
    low = extent / width.upper * iso[0] if width.upper > 0.0 else math.inf
    high = extent / width.lower * iso[1] if width.lower > 0.0 else math.inf
    claim = _claim("Thm 3.2, upper", "d_haus <= (diam/θ) d_iso", haus, 1.0, (low, high))
    if width.upper == 0.0:
        flat = "The points are flat (thickness 0): the theorem's constant is infinite."
        return replace(claim, status="vacuous", sentence=flat)
    if claim.status == "violated":
        unknown = "False with c_n = 1; c_n is some larger constant that is not explicit."
        return replace(claim, status="undecided", sentence=unknown)
    return claim


def _diameters(x: Array, end: Array | None, haus: NearestSeparated, bound: float) -> list[Claim]:
    """(16) and (17): how far the diameter can change until the points are separated."""
    before, after = diameter(x), diameter(haus.points if end is None else end)
    # |diam - diam'| <= 2 d_H for any two sets: for the points found it is their own distance.
    nearest = haus.lower_bound, haus.value
    d_haus = (haus.value, haus.value) if end is None else nearest
    change = abs(after - before), abs(after - before)
    moved = _claim("(16)", "|diam(f_TS) - diam(f)| <= 2 d_haus", change, 2.0, d_haus)
    low = _claim("(17)", "", (bound, bound), 1.0, (after, after))
    if bound <= 0.0:
        empty = f"The bound {bound:.4g} is not above 0: any diameter satisfies it."
        low = replace(low, status="vacuous", sentence=empty)
    elif end is None and low.status == "violated" and not _tight(nearest):
        nearer = "False for the separated points found; nearer ones may exist."
        low = replace(low, status="undecided", sentence=nearer)
    return [moved, low]


def _claim(
    name: str, statement: str, left: Bracket, factor: float, right: Bracket, proved: str = ""
) -> Claim:
    """The statement "left <= factor · right", decided as far as the brackets allow."""
    right = factor * right[0], factor * right[1]
    slack = _TOLERANCE * max(abs(left[1]), abs(right[1]))
    status, verdict = "undecided", "The brackets overlap"
    if left[0] > right[1] + slack:
        status, verdict = "violated", "Does not hold"
    elif proved or left[1] <= right[0] + slack:
        status, verdict = "holds", "Holds"
    sentence = f"{verdict}: {_text(left)} against {_text(right)}. {proved}".rstrip()
    return Claim(name, statement, left, right, status, sentence)


def _text(bracket: Bracket) -> str:
    return f"{bracket[1]:.4g}" if _tight(bracket) else f"[{bracket[0]:.4g}, {bracket[1]:.4g}]"


def _tight(bracket: Bracket) -> bool:
    return bracket[1] - bracket[0] <= 1e-6 * abs(bracket[1])
