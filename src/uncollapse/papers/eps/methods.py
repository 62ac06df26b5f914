"""The methods EPS compares (§5.2.2): each loss with its usual positives, and with easy ones.

The baselines are those of Roth et al., the framework EPS uses. There semi-hard sampling chooses
the positives too, distance sampling takes a random positive, and β is learned for each class.
"""

from __future__ import annotations

from typing import Any

from uncollapse.papers._study import Cells, Sections

__all__ = ["METHODS", "some_methods", "train_section", "with_mining"]

_TRIPLET: dict[str, Any] = {"name": "triplet", "margin": 0.2, "reduction": "mean"}
# EPS §5.2.2: α = 0.2, β starts at 1.2.
_MARGIN: dict[str, Any] = {"name": "margin", "margin": 0.2, "beta": 1.2, "beta_per": "class"}
# EPS §5.2.2: α = 2, λ = 1, β = 50. λ is printed as 1 by Wang et al. too, whose code has 0.5: with 1
# only negatives at cosine 1 are pushed away, and with easy positives nothing is learned.
_MS: dict[str, Any] = {"name": "multi-similarity", "alpha": 2.0, "beta": 50.0, "base": 0.5}


def with_mining(loss: dict[str, Any], positives: str, negatives: str, **more: Any) -> Sections:
    """The sections of a method: a loss, and which positives and negatives it is given."""
    return {"loss": loss | more, "mining": {"positives": positives, "negatives": negatives}}


METHODS: Cells = {
    "Trip. + SH": with_mining(_TRIPLET, "semihard", "semihard"),
    "ProxyNCA": {"loss": {"name": "proxy-nca"}},
    "Dist-Margin": with_mining(_MARGIN, "random", "distance"),
    "MS": with_mining(_MS, "multi_similarity", "multi_similarity"),
    "EPS + Trip. + SH": with_mining(_TRIPLET, "easy", "semihard"),
    "EPS + Dist-Margin": with_mining(_MARGIN, "easy", "distance"),
    "EPS + MS": with_mining(_MS, "easy", "multi_similarity"),
}


def some_methods(*names: str) -> Cells:
    """Some of the methods.

    >>> list(some_methods("MS", "EPS + MS"))
    ['MS', 'EPS + MS']
    """
    return {name: METHODS[name] for name in names}


def train_section(steps: int, evaluations: int = 1) -> dict[str, Any]:
    """`[train]` of a config: so many steps, evaluated so many times, saved as often."""
    often = max(1, steps // evaluations)
    return {
        "steps": steps,
        "evaluate_every": often,
        "checkpoint_every": often,
        "log_every": max(1, often // 5),
        "tensorboard": "off",
    }
