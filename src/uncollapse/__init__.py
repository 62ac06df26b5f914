"""uncollapse: train embeddings that don't collapse.

All public names of the packages below are here too (`uc.Miner`, `uc.TripletLoss`, `uc.diameter`).
They are loaded when first used, so that the command line starts at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from uncollapse._version import __version__

if TYPE_CHECKING:
    from uncollapse.data import LabelledImages, load
    from uncollapse.distances import paired_distances, pairwise_distances
    from uncollapse.geometry import *
    from uncollapse.health import *
    from uncollapse.losses import *
    from uncollapse.metrics import *
    from uncollapse.mining import *
    from uncollapse.report import Diagnosis, diagnose
    from uncollapse.samplers import *
    from uncollapse.training import Config, Run, embed, evaluate, load_config, parse_config, train

_WHOLE = ("geometry", "mining", "losses", "samplers", "metrics", "health")
_PARTS = {
    "data": ("LabelledImages", "load"),
    "distances": ("paired_distances", "pairwise_distances"),
    "report": ("Diagnosis", "diagnose"),
    "training": ("Config", "Run", "embed", "evaluate", "load_config", "parse_config", "train"),
}
_MODULES = (*_WHOLE, *_PARTS, "backbones", "noise", "papers")


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"uncollapse.{name}")
    if name == "__all__":
        return __dir__()
    home = next((part for part, names in _PARTS.items() if name in names), None)
    for package in [home] if home else _WHOLE if not name.startswith("_") else ():
        module = import_module(f"uncollapse.{package}")
        if home or name in module.__all__:
            value: object = getattr(module, name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'uncollapse' has no attribute {name!r}")


def __dir__() -> list[str]:
    whole = [name for p in _WHOLE for name in import_module(f"uncollapse.{p}").__all__]
    parts = [name for names in _PARTS.values() for name in names]
    return sorted(["__version__", *whole, *parts])
