"""The grid of the study: cases, each a run that may collapse and the runs by hand beside it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from _study import Setting
from _study_data import plain

__all__ = ["AXES", "BASES", "BY_HAND", "FAR_TOO_HIGH", "FIXED_ON", "Planned", "forecasts", "grid"]

# Rules of the guard may be fixed on these; on all others they are judged.
FIXED_ON = ("letters", "objects", "ten objects")
AXES = ("mining", "losses", "rates", "optimizers", "loops")

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
HARD, CALM = BASES[0], BY_HAND[1]
SPHERE = ("sup-con", "arcface", "proxy-anchor", "multi-similarity", "nt-xent")
LOOPS = ({"loop": "watch"}, {"loop": "pml", "unit": True}, {"loop": "own"})
RATES_BY_HAND = (1.0, 0.3, 0.1)  # of a loss on the sphere
FAR_TOO_HIGH = 1.0  # learning rates from here on are meant to diverge: nothing to forecast
SGD = 30.0  # usual rate of SGD with momentum over Adam's


class Planned(NamedTuple):
    """A run that may collapse, its axis of the study, and the runs by hand at its place."""

    axis: str
    setting: Setting
    hand: list[Setting]


@dataclass(frozen=True)
class Places:
    """Batch shapes and dims of one network on one dataset; `lr` is the usual rate there."""

    data: str
    backbone: str
    shapes: tuple[tuple[int, int, int], ...]  # P, K, dim
    units: tuple[bool, ...] = (False,)
    seeds: int = 2
    lr: float = 1e-3
    steps: int = 200
    bases: tuple[dict[str, Any], ...] = BASES
    hand: tuple[dict[str, Any], ...] = BY_HAND
    axis: str = "mining"

    def planned(self) -> Iterator[list[Planned]]:
        """The cases of each place."""
        for p, k, dim in self.shapes:
            for unit in self.units:
                for seed in range(self.seeds):
                    rest = {"unit": unit, "lr": self.lr, "steps": self.steps, "seed": seed}
                    place = Setting(self.data, self.backbone, p, k, dim, "", "", **rest)
                    bases = [replace(place, **base) for base in self.bases]
                    yield [Planned(self.axis, base, self._by_hand(base, place)) for base in bases]

    def _by_hand(self, base: Setting, place: Setting) -> list[Setting]:
        """The loss at other rates; of a triplet loss other mining at the optimizer's usual rate."""
        if base.loss != "triplet":
            return [replace(base, lr=float(f"{base.lr * f:.3g}")) for f in RATES_BY_HAND]
        usual = place.lr * (SGD if base.optimizer == "sgd" else 1.0)
        first = replace(place, lr=usual, optimizer=base.optimizer, unit=base.unit)
        return [replace(first, **choice) for choice in self.hand]


def _axes(data: str, backbone: str, p: int, k: int, high: float, **rest: Any) -> list[Places]:
    """Losses, rates, optimizers and loops at one place; `high` is a rate that is far too high."""
    lr, both = rest.pop("lr", 1e-3), (HARD, CALM)
    near, far = (float(f"{lr * f:.3g}") for f in (0.1, 10.0))
    sphere = [{"loss": name} for name in SPHERE] + [{"loss": "nt-xent", "loop": "views"}]
    rates = [
        {"optimizer": name, "lr": float(f"{factor * lr * usual:.3g}")}
        for name, usual in (("sgd", SGD), ("adamw", 1.0))
        for factor in (1.0, 10.0)
    ]
    bases = {
        "losses": [one | {"lr": rate} for one in sphere for rate in (lr, high)],
        "rates": [one | {"lr": rate} for one in both for rate in (near, lr, far)],
        "optimizers": [one | rate for rate in rates for one in (*both, *sphere[:2])],
        "loops": [HARD | one for one in LOOPS],
    }
    rest = {"shapes": ((p, k, 64),), "lr": lr, "seeds": 1} | rest
    return [
        Places(data, backbone, bases=tuple(some), axis=axis, **rest) for axis, some in bases.items()
    ]


FREE, UNIT, BOTH = (False,), (True,), (False, True)
PLACES: tuple[Places, ...] = (
    *_axes("letters", "mlp", 16, 4, 3e-2, seeds=2),
    *_axes("ten objects", "resnet", 8, 8, 3e-2, seeds=2),
    *_axes("ten objects", "mlp", 8, 8, 3e-2, seeds=2)[:1],
    *_axes("letters", "conv2", 16, 4, 1e-2)[:1],
    *_axes("objects", "resnet", 16, 4, 3e-2)[:1],
    *_axes("intents", "mlp", 16, 4, 3e-2, seeds=2),
    *_axes("people", "resnet", 16, 4, 3e-2, seeds=2),
    *_axes("faces", "conv2", 16, 4, 3e-3, lr=3e-4)[:1],
    *_axes("digits", "mlp", 8, 8, 3e-2, seeds=2)[:1],
    Places("people", "conv2", ((18, 8, 128),), seeds=1, lr=3e-4, steps=800, bases=BASES[:2]),
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


def grid(names: Sequence[str], axes: Sequence[str] = AXES) -> list[Planned]:
    """All cases, a place at a time, the places in random order.

    So a study cut short is a sample of the whole, and its places are complete.
    """
    chosen = [group for group in PLACES if plain(group.data) in names and group.axis in axes]
    places = [place for group in chosen for place in group.planned()]
    random.Random(0).shuffle(places)
    return [case for place in places for case in place]


def forecasts(setting: Setting) -> list[Setting]:
    """The forecast of a run, where there is one: of a triplet loss in the engine."""
    known = (setting.loss, setting.loop) == ("triplet", "engine") and setting.lr < FAR_TOO_HIGH
    return [replace(setting, guard="forecast")] if known else []
