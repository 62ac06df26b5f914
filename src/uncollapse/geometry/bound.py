"""The paper's forecast of the diameter after training: HNM (17)."""

from __future__ import annotations

from uncollapse._base.check import check_number

__all__ = ["diameter_lower_bound"]


def diameter_lower_bound(diameter_init: float, loss_init: float, c: float = 2.0) -> float:
    """diam(init) - c·L(init), which (17) says the diameter after training is not below.

    At most 0, it says nothing. With the paper's c = 2 it is an empirical statement, not a theorem:
    real training can end below it. Show it beside the outcome.

    >>> diameter_lower_bound(4.0, 0.5)
    3.0
    """
    start = check_number("diameter_init", diameter_init, 0.0)
    return start - check_number("c", c, 0.0) * check_number("loss_init", loss_init, 0.0)
