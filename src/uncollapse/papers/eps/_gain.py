"""Whether a gain over seeds is beyond chance: a paired test, and what so few pairs can show."""

from __future__ import annotations

from collections.abc import Sequence

from uncollapse.metrics import compare_seeds
from uncollapse.papers._before import spread
from uncollapse.papers._compare import Claim

__all__ = ["gain_claim"]

_LEVEL = 0.05


def gain_claim(what: str, paper: str, mine: Sequence[float], theirs: Sequence[float]) -> Claim:
    """`mine` above `theirs`, pair by pair; not judged where so few pairs cannot be significant.

    >>> gain_claim("EPS", "significant", [3.0, 4.0], [1.0, 1.0]).ours
    '1.0 → 3.5 (+2.5), p = 0.5 (exact sign-flip; 2 pairs cannot give less than 0.5)'
    """
    what = f"{what}: gain in R@1"
    if len(mine) < 2:
        return Claim(what, paper, "one seed only", None)
    result = compare_seeds(mine, theirs)
    least = 2.0 ** (1 - len(mine))  # what so many pairs can give at all
    few = f"; {len(mine)} pairs cannot give less than {least:.2g}" if least > _LEVEL else ""
    means = f"{spread(theirs)[0]:.1f} → {spread(mine)[0]:.1f} ({result.difference:+.1f})"
    said = f"{means}, p = {result.p_value:.2g} ({result.test}{few})"
    holds = None if few else result.p_value < _LEVEL and result.difference > 0
    return Claim(what, paper, said, holds)
