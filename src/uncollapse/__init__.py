"""uncollapse: train embeddings that don't collapse.

The names below are loaded when first used, so that the command line starts at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from uncollapse._version import __version__

if TYPE_CHECKING:
    from uncollapse.distances import paired_distances, pairwise_distances  # noqa: F401
    from uncollapse.geometry import *  # noqa: F403

_HOMES = {
    "distances": ["paired_distances", "pairwise_distances"],
    "geometry": [
        "Isometry",
        "Separation",
        "Thickness",
        "best_isometry",
        "class_diameters",
        "diameter",
        "hard_mined_loss",
        "hausdorff",
        "hausdorff_like",
        "iap_constant",
        "is_triplet_separated",
        "isometric_error",
        "near_isometry_epsilon",
        "separation",
        "set_distance",
        "sup_displacement",
        "thickness",
    ],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *_HOME_OF]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'uncollapse' has no attribute {name!r}")
    value = getattr(import_module(f"uncollapse.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
