"""The numbered statements of HNM, checked on given points: Thm 3.2, 3.3, Cor. 3.4, (16), (17)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from uncollapse._base.arrays import Array, ArrayLike, ClassLayout, points64
from uncollapse._base.check import check_number, check_paired
from uncollapse.geometry.diameters import diameter, diameter_lower_bound, thickness
from uncollapse.geometry.nearest import NearestSeparated, nearest_separated
from uncollapse.geometry.triplet_separation import hard_mined_loss, is_triplet_separated

__all__ = ["Claim", "check_claims"]

_TOLERANCE = 1e-7  # relative: what the solvers' answers may be off
Bracket = tuple[float, float]


@dataclass(frozen=True)
class Claim:
    """One statement "left <= right" of the paper, on one set of points.

    Each side is a bracket (low, high), its ends equal where the value is known exactly. `status` is
    "holds", "violated", "vacuous" (the statement says nothing here) or "undecided" (the brackets
    overlap); only certified brackets decide. `lhs` and `rhs` are the values of the points found.
    """

    name: str
    statement: str
    left: Bracket
    right: Bracket
    status: str
    sentence: str

    @property
    def lhs(self) -> float:
        """The left side, as measured."""
        return self.left[1]

    @property
    def rhs(self) -> float:
        """The right side, as measured."""
        return self.right[1]

    @property
    def ratio(self) -> float:
        """lhs / rhs; NaN for 0 / 0."""
        if self.rhs == 0.0:
            return math.nan if self.lhs == 0.0 else math.copysign(math.inf, self.lhs)
        return self.lhs / self.rhs


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

    `c` is the constant of (17). `end` is where training took the points; without it (16) and (17)
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
    claims = [*_equivalences(_exactly(loss), _bracket(iso), _bracket(haus), c)]
    claims.insert(1, _thick(raw, _bracket(iso), _bracket(haus)))
    return claims + _diameters(raw, ids, alpha, loss, haus, c, final)


def _equivalences(loss: Bracket, iso: Bracket, haus: Bracket, c: float) -> list[Claim]:
    always = "It is proved for every margin."
    return [
        _claim("Thm 3.2, lower", "d_iso <= 2 d_haus", iso, _times(2.0, haus), always),
        _claim("Thm 3.3, lower", "L <= 2 d_iso", loss, _times(2.0, iso), always),
        _claim("Thm 3.3, upper", "d_iso <= 2 L", iso, _times(2.0, loss)),
        _claim("Cor. 3.4, lower", "L <= 4 d_haus", loss, _times(4.0, haus), always),
        # (16) and (17) together say d_haus <= (c/2) L.
        _claim("Cor. 3.4, upper", f"d_haus <= {c / 2:g} L", haus, _times(c / 2, loss)),
    ]


def _thick(x: ArrayLike, iso: Bracket, haus: Bracket) -> Claim:
    """d_haus <= c d_iso with c = c_n diam/θ, of which c_n is not explicit: tried with c_n = 1."""
    name, statement = "Thm 3.2, upper", "d_haus <= (diam/θ) d_iso"
    width, extent = thickness(x), diameter(x)
    if width.upper == 0.0:
        flat = "The points are flat (thickness 0): the theorem's constant is infinite."
        return Claim(name, statement, haus, (math.inf, math.inf), "vacuous", flat)
    high = extent / width.lower * iso[1] if width.lower > 0.0 else math.inf
    claim = _claim(name, statement, haus, (extent / width.upper * iso[0], high))
    if claim.status == "violated":
        unknown = "False with c_n = 1; c_n is some larger constant that is not explicit."
        return Claim(name, statement, claim.left, claim.right, "undecided", unknown)
    return claim


def _diameters(
    x: ArrayLike,
    ids: ArrayLike,
    alpha: float,
    loss: float,
    haus: NearestSeparated,
    c: float,
    final: Array | None,
) -> list[Claim]:
    """(16) and (17): how far the diameter can change until the points are separated."""
    change, floor = "|diam(f_TS) - diam(f)| <= 2 d_haus", f"diam(f) - {c:g} L <= diam(f_TS)"
    before = diameter(x)
    bound = diameter_lower_bound(before, loss, c)
    if final is None:
        after = diameter(haus.points)
        # |diam - diam'| <= 2 d_H for any two sets, so here the measured distance belongs right.
        moved = _claim("(16)", change, _exactly(abs(after - before)), _exactly(2.0 * haus.value))
    else:
        after = diameter(final)
        moved = _claim("(16)", change, _exactly(abs(after - before)), _times(2.0, _bracket(haus)))
        if not is_triplet_separated(final, ids, alpha):
            why = "Training did not end triplet-separated, which the statement assumes."
            sides = _exactly(bound), _exactly(after)
            return [
                Claim("(16)", change, moved.left, moved.right, "vacuous", why),
                Claim("(17)", floor, *sides, "vacuous", why),
            ]
    low = _claim("(17)", floor, _exactly(bound), _exactly(after))
    if bound <= 0.0:
        empty = f"The bound {bound:.4g} is not above 0: any diameter satisfies it."
        low = Claim("(17)", floor, low.left, low.right, "vacuous", empty)
    elif final is None and low.status == "violated" and not _tight(haus):
        open_ = "False for the separated points found; nearer ones may exist."
        low = Claim("(17)", floor, low.left, low.right, "undecided", open_)
    return [moved, low]


def _claim(name: str, statement: str, left: Bracket, right: Bracket, proved: str = "") -> Claim:
    slack = _TOLERANCE * max(abs(left[1]), abs(right[1]))
    if left[1] <= right[0] + slack:
        status, verdict = "holds", "Holds"
    elif left[0] > right[1] + slack:
        status, verdict = "violated", "Does not hold"
    elif proved:
        status, verdict = "holds", "Holds"
    else:
        status, verdict = "undecided", "The brackets overlap"
    sentence = f"{verdict}: {_text(left)} against {_text(right)}. {proved}".rstrip()
    return Claim(name, statement, left, right, status, sentence)


def _bracket(found: NearestSeparated) -> Bracket:
    return found.lower_bound, found.value


def _tight(found: NearestSeparated) -> bool:
    return found.value - found.lower_bound <= 1e-6 * found.value


def _exactly(value: float) -> Bracket:
    return value, value


def _times(factor: float, bracket: Bracket) -> Bracket:
    return factor * bracket[0], factor * bracket[1]


def _text(bracket: Bracket) -> str:
    low, high = bracket
    return f"{high:.4g}" if high - low <= 1e-6 * abs(high) else f"[{low:.4g}, {high:.4g}]"
