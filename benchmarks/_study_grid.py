"""The grid of the study: places, strategies that may collapse there, and those chosen by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from _study import Setting

__all__ = ["BASES", "BY_HAND", "by_hand", "grid"]

BASES: tuple[dict[str, Any], ...] = (
    {"positives": "hard", "negatives": "hard"},
    {"positives": "hard", "negatives": "hard", "margin": 0.0},
    {"positives": "hard", "negatives": "hard", "soft": True},
)
BY_HAND: tuple[dict[str, Any], ...] = (
    {"positives": "easy", "negatives": "hard"},
    {"positives": "easy", "negatives": "semihard"},
    {"positives": "inside", "negatives": "hard"},
    {"positives": "hard", "negatives": "hard", "scale_free": True},
    {"positives": "easy", "negatives": "hard", "scale_free": True},
    {"positives": "inside", "negatives": "hard", "scale_free": True},
)


@dataclass(frozen=True)
class Places:
    """Batch shapes and dims of one network on one dataset."""

    data: str
    backbone: str
    shapes: tuple[tuple[int, int, int], ...]  # P, K, dim
    units: tuple[bool, ...] = (False,)
    seeds: int = 2
    lr: float = 1e-3
    steps: int = 200
    bases: tuple[dict[str, Any], ...] = BASES
    hand: tuple[dict[str, Any], ...] = BY_HAND


FREE, UNIT, BOTH = (False,), (True,), (False, True)
PLACES: tuple[Places, ...] = (
    Places("people", "conv2", ((18, 8, 64),), BOTH, lr=3e-4),
    Places("people", "conv2", ((4, 4, 64),), FREE, seeds=1, lr=3e-4),
    Places("people", "resnet", ((18, 8, 64),), BOTH, steps=300),
    Places("faces", "conv2", ((18, 8, 64),), FREE, lr=3e-4),
    Places("faces", "resnet", ((18, 8, 64),), UNIT, steps=300),
    Places("letters", "conv2", ((18, 8, 64), (36, 4, 8)), FREE),
    Places("letters", "conv2", ((4, 4, 64),), FREE, seeds=1),
    Places("letters", "resnet", ((18, 8, 64),), UNIT, seeds=1),
    Places("letters", "resnet", ((4, 4, 64),), FREE, seeds=1),
    Places("noisy letters", "resnet", ((18, 8, 64),), BOTH),
    Places("cars", "linear", ((18, 8, 64),), BOTH),
    Places("cars", "mlp", ((18, 8, 128),), BOTH, lr=3e-4),
    Places("intents", "mlp", ((18, 8, 64),), FREE, seeds=1),
    Places("noisy intents", "mlp", ((18, 8, 64),), BOTH),
    Places("noisy intents", "mlp", ((4, 4, 64),), FREE, seeds=1),
    # A learning rate far too high: what is lost here is not lost to mining.
    Places("letters", "conv2", ((18, 8, 64),), FREE, lr=3.0, bases=BASES[:1], hand=()),
    Places("intents", "mlp", ((18, 8, 64),), FREE, lr=10.0, bases=BASES[:1], hand=()),
)


def grid(names: Sequence[str]) -> list[Setting]:
    """All runs, a place at a time, the places in random order.

    So a study cut short is a sample of the whole, and its places are complete.
    """
    places = [place for group in PLACES if _plain(group.data) in names for place in _runs(group)]
    shuffle = random.Random(0).shuffle
    shuffle(places)
    for place in places:
        shuffle(place)
    return [one for place in places for one in place]


def by_hand(setting: Setting) -> list[Setting]:
    """The runs by hand at the place of a run that may collapse."""
    group = next((g for g in PLACES if _holds(g, setting)), None)
    return [] if group is None else [_changed(setting, choice) for choice in group.hand]


def _runs(group: Places) -> list[list[Setting]]:
    found = []
    for (p, k, dim), unit, seed in (
        (shape, unit, seed)
        for shape in group.shapes
        for unit in group.units
        for seed in range(group.seeds)
    ):
        place = Setting(
            group.data,
            group.backbone,
            p,
            k,
            dim,
            "hard",
            "hard",
            unit=unit,
            lr=group.lr,
            steps=group.steps,
            seed=seed,
        )
        bases = [_changed(place, base) for base in group.bases]
        saved = [replace(base, guard="rescue") for base in bases]
        found.append([*bases, *saved, *(_changed(place, choice) for choice in group.hand)])
    return found


def _changed(setting: Setting, strategy: dict[str, Any]) -> Setting:
    """Another strategy at the same place, without a rescue."""
    first = {"scale_free": False, "margin": 0.2, "soft": False, "guard": "warn"}
    return replace(setting, **(first | strategy))


def _holds(group: Places, s: Setting) -> bool:
    network = (group.data, group.backbone, group.lr) == (s.data, s.backbone, s.lr)
    return network and (s.p, s.k, s.dim) in group.shapes and s.unit in group.units


def _plain(name: str) -> str:
    return name.removeprefix("noisy ")
