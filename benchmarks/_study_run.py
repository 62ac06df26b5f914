"""One run of the study: a forecast, then training, then what became of it."""

from __future__ import annotations

import math
import time
from typing import Any

import torch

from _study import Setting
from _study_data import splits
from uncollapse.data import LabelledImages
from uncollapse.geometry import diameter
from uncollapse.health.forecasts import embedded_batches, forecast
from uncollapse.losses import TripletLoss
from uncollapse.metrics import retrieval
from uncollapse.training.assemble import build_loss
from uncollapse.training.evaluation import embed
from uncollapse.training.session import Session, first_network

__all__ = ["FAR_TOO_HIGH", "one_run", "recall"]

SEEN = ("scales", "relative_losses", "drifts")  # of a probe
PROBE, BATCHES, OTHER_BATCHES = 40, 4, 1000  # the forecast sees other batches than the run
FAR_TOO_HIGH = 1.0  # learning rates from here on are meant to diverge: nothing to forecast


def one_run(setting: Setting) -> dict[str, Any]:
    """What the forecast said, unless the run is guarded or meant to diverge, and what happened."""
    train, test = splits(setting.data)
    alone = setting.guard == "warn" and setting.lr < FAR_TOO_HIGH
    said = _forecast(setting, train) if alone else {}
    session = Session(setting.config(), train)
    before = recall(session.model, test)
    # Of the processor, so that two runs at once, or others' work, do not count.
    begun = time.process_time()
    steps = _train(session, setting.steps)
    seconds = time.process_time() - begun
    guard = session.guard
    assert guard is not None
    health = guard.monitor.health
    assert health is not None
    result = said | {
        "verdict": guard.monitor.verdict,
        "changes": guard.monitor.changes,
        "events": [[event.step, event.kind, event.text] for event in guard.events],
        "final_strategy": str(guard.strategy),
        "scale": health.relative_diameter,
        "steps": steps,
        "seconds": seconds,
        "recall_before": before,
        "recall": recall(session.model, test),
        "chance": 1.0 / len(test.classes),
    }
    if alone:
        batches = list(_batches(session.model, train, setting))
        result["diameter_after"] = sum(diameter(z) for z, _ in batches) / BATCHES
    return result


def recall(model: torch.nn.Module, test: LabelledImages) -> float:
    """R@1 of the network as it is; ties count against it, and one that diverged finds nothing."""
    z = embed(model, test)
    if not bool(torch.isfinite(z).all()):
        return 0.0
    return float(retrieval(z, test.labels, ks=(1,), progress=False).recall[1])


def _train(session: Session, steps: int) -> int:
    """All steps, or those until it is lost for good; returns how many."""
    for step in range(1, steps + 1):
        values = session.advance()
        lost = "loss" in values and not math.isfinite(values["loss"])
        if lost or session.stopped:
            return step
    return steps


def _forecast(setting: Setting, train: LabelledImages) -> dict[str, Any]:
    config = setting.config()
    model, loss = first_network(config, train, train.shape), build_loss(config, train)
    assert isinstance(loss, TripletLoss)
    (cell,) = forecast(
        model,
        train,
        [setting.p],
        [setting.k],
        loss_fn=loss,
        alternatives=False,
        batches=BATCHES,
        probe_steps=PROBE,
        probe_lr=setting.lr,
        seed=setting.seed + OTHER_BATCHES,
    ).cells
    assert cell.probe is not None
    return {
        "drift": cell.drift,
        "spread": cell.spread,
        "diameter": cell.diameter,
        "loss": cell.loss,
        "bound": cell.bound,
        "probe": {name: [float(f"{v:.5g}") for v in getattr(cell.probe, name)] for name in SEEN},
    }


def _batches(model: torch.nn.Module, train: LabelledImages, setting: Setting) -> Any:
    seed = setting.seed + OTHER_BATCHES
    return embedded_batches(model, train, setting.p, setting.k, BATCHES, seed)
