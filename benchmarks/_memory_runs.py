"""One run of the study of memories: drift with a full one, training, what became of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from _study import Setting
from _study_data import splits
from _study_run import recall
from uncollapse.data import LabelledImages
from uncollapse.health import drift
from uncollapse.health.drifts import filled_memories
from uncollapse.health.figures import spread
from uncollapse.health.forecasts import embedded_batches, other_batches
from uncollapse.losses.memory import memories
from uncollapse.training import Config
from uncollapse.training.assemble import build_loss
from uncollapse.training.evaluation import embed
from uncollapse.training.session import Session, first_network

__all__ = ["SIZES", "STRATEGIES", "MemorySetting", "first_drift", "grid", "one_run"]

Embedded = tuple[Tensor, Tensor]

SIZES = (0, 256, 1024, 4096, 16384)
STRATEGIES: dict[str, dict[str, Any]] = {
    "hard x hard": {"positives": "hard", "negatives": "hard"},
    "easy x hard": {"positives": "easy", "negatives": "hard"},
    "hard x hard, scale-free": {"positives": "hard", "negatives": "hard", "scale_free": True},
}
FIXED = ("hard x hard", "easy x hard")  # strategies whose runs are made with fixed references too
RATES = {"letters": 1e-3, "people": 3e-4}  # as in the study of forecast and rescue
STEPS, P, K, DIM, SEEDS = 300, 16, 4, 64, 2
SMALL = (4, 4)  # P and K of a batch that batch-hard mining survives
BATCHES, OTHER_BATCHES = 4, 1000  # of the drift, which sees other batches than the run
LOOK = 75  # steps after which the age of the memory is measured
LOOKED_AT = 512  # rows of it


@dataclass(frozen=True)
class MemorySetting(Setting):
    """A run with a memory of so many rows; 0 for none."""

    memory: int = 0
    references: str = "moving"

    def config(self) -> Config:
        """The same as a run's config."""
        memory = {"memory": {"size": self.memory, "references": self.references}}
        return super().config().with_changes({"loss": memory if self.memory else {}})


def grid(names: Sequence[str]) -> list[MemorySetting]:
    """All runs, those with fixed references or of a small batch with the first seed alone."""
    found = [
        _setting(name, strategy, size, seed)
        for seed in range(SEEDS)
        for name in names
        for strategy in STRATEGIES
        for size in SIZES
    ]
    fixed = [
        replace(_setting(name, strategy, size, 0), references="fixed")
        for name in names
        for strategy in FIXED
        for size in (P * K, *SIZES[1:])  # as many as the batch: no row is old
    ]
    small = [
        replace(_setting("letters", "hard x hard", size, 0), p=SMALL[0], k=SMALL[1])
        for size in SIZES[:3]
        if "letters" in names
    ]
    return found + fixed + small


def _setting(name: str, strategy: str, size: int, seed: int) -> MemorySetting:
    more = {"lr": RATES[name], "steps": STEPS, "seed": seed, "memory": size}
    return MemorySetting(name, "conv2", P, K, DIM, **STRATEGIES[strategy], **more)


def one_run(setting: MemorySetting) -> dict[str, Any]:
    """Drift before, and verdict, scale and R@1 after; how old the memory's rows were meanwhile."""
    train, test = splits(setting.data)
    session = Session(setting.config(), train)
    first = first_drift(setting)["drift"]
    before, start = recall(session.model, test), _scale(session, test)
    stale = None
    for step in range(1, setting.steps + 1):
        session.advance()
        if setting.memory and step == LOOK:
            stale = _staleness(session, train)
    assert session.guard is not None
    return {
        "drift": first,
        "verdict": session.guard.monitor.verdict,
        "scale": _scale(session, test) / start,
        "recall_before": before,
        "recall": recall(session.model, test),
        "staleness": stale,
    }


def first_drift(setting: MemorySetting) -> dict[str, Any]:
    """Of the untrained network's batches, against a memory that is full of other samples."""
    batches, others = _untrained(replace(setting.place, memory=0, references=""))
    loss = build_loss(setting.config(), splits(setting.data)[0])
    with filled_memories(loss, others):
        return {"drift": drift(loss, batches).value}


@lru_cache(maxsize=1)
def _untrained(place: MemorySetting) -> tuple[list[Embedded], list[Embedded]]:
    """Batches through the untrained network, and all other samples: those of every strategy."""
    train, _ = splits(place.data)
    config = replace(place, positives="hard", negatives="hard", guard="off").config()
    network = first_network(config, train, train.shape)
    shape = (place.p, place.k, BATCHES, place.seed + OTHER_BATCHES)
    return (
        list(embedded_batches(network, train, *shape)),
        list(other_batches(network, train, *shape)),
    )


def _scale(session: Session, test: LabelledImages) -> float:
    """Mean distance of rows of unseen classes."""
    some = torch.arange(0, len(test), max(1, len(test) // 500))
    return spread(embed(session.model, test.subset(some)))


def _staleness(session: Session, train: LabelledImages) -> float:
    """How far the memory's rows are from what the network makes of them now, in mean distances."""
    (memory,) = memories(session.loss)
    some = torch.randperm(len(memory.memory), generator=torch.Generator().manual_seed(0))
    some = some[:LOOKED_AT]
    then = memory.memory[some]
    now = embed(session.model, train.subset(memory.memory_ids[some]))
    scale = spread(now)
    return float((then - now).norm(dim=1).mean()) / scale if scale else math.inf
