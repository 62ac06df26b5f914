"""One run of the study and what became of it, or what a forecast says of it."""

from __future__ import annotations

import math
from dataclasses import asdict
from statistics import fmean
from typing import Any

import torch

from _study import Setting
from _study_data import splits
from _study_loops import Loop
from uncollapse.data import LabelledImages
from uncollapse.geometry import diameter
from uncollapse.health.figures import spread
from uncollapse.health.forecasts import embedded_batches, forecast
from uncollapse.losses import TripletLoss
from uncollapse.metrics import retrieval
from uncollapse.training.assemble import build_loss
from uncollapse.training.evaluation import embed
from uncollapse.training.predictions import stepping_of
from uncollapse.training.session import Session, first_network

__all__ = ["one_run", "recall", "started"]

SEEN = ("scales", "relative_losses", "drifts")  # of a probe
PROBE, BATCHES, OTHER_BATCHES = 40, 4, 1000  # the forecast sees other batches than the run
LOOKS, ROWS = 10, 170  # at the scale of a run, by so many rows of unseen classes


def one_run(setting: Setting) -> dict[str, Any]:
    """What happened to a run: R@1, scale and directions of unseen classes, and what the guard did.

    A setting whose guard is "forecast" is not trained: what a forecast says of it.
    """
    train, test = splits(setting.data)
    if setting.guard == "forecast":
        return _forecast(setting, train)
    run = started(setting, train)
    before, path = recall(run.model, test), [_scale(setting, run.model, test)]
    while run.step < setting.steps:
        lost = _train(run, min(max(1, setting.steps // LOOKS), setting.steps - run.step))
        path.append(_scale(setting, run.model, test))
        if lost:
            break
    guard = run.guard
    assert guard is not None
    health = guard.monitor.health
    result = {
        "verdict": guard.monitor.verdict,
        "changes": guard.monitor.changes,
        "events": [[event.step, event.kind, event.text] for event in guard.events],
        "final_strategy": str(guard.strategy),
        "scale": None if health is None else health.relative_diameter,
        "steps": run.step,
        "recall_before": before,
        "recall": recall(run.model, test),
        "chance": 1.0 / len(test.classes),
        "path": path,
    }
    if setting.guard == "warn" and setting.loss == "triplet":
        result["diameter_after"] = _diameter(run.model, train, setting)
    return result


def started(setting: Setting, train: LabelledImages) -> Session | Loop:
    """The run before its first step."""
    if setting.loop != "engine":
        return Loop(setting, train)
    return Session(setting.config(), train)


def _scale(setting: Setting, model: torch.nn.Module, test: LabelledImages) -> list[float]:
    """Spread of unseen rows, of their directions on the sphere, and the mean cosine of two."""
    some = torch.arange(len(test)) % max(1, len(test) // ROWS) == 0
    z = embed(model, test.subset(some))
    if not bool(torch.isfinite(z).all()):
        return [math.nan, math.nan]
    unit = torch.nn.functional.normalize(z.double(), dim=1)
    n = len(z)
    cosine = (float(unit.sum(0).square().sum()) - n) / (n * (n - 1))
    return [float(f"{v:.4g}") for v in (spread(unit if setting.on_sphere else z), cosine)]


def recall(model: torch.nn.Module, test: LabelledImages) -> float:
    """R@1 of the network as it is; ties count against it, and one that diverged finds nothing."""
    z = embed(model, test)
    if not bool(torch.isfinite(z).all()):
        return 0.0
    return float(retrieval(z, test.labels, ks=(1,), progress=False).recall[1])


def _train(run: Session | Loop, steps: int) -> bool:
    """So many steps, or those until it is lost for good; returns whether it is."""
    for _ in range(steps):
        values = run.advance()
        if ("loss" in values and not math.isfinite(values["loss"])) or run.stopped:
            return True
    return False


def _forecast(setting: Setting, train: LabelledImages) -> dict[str, Any]:
    config = setting.config()
    model, loss = first_network(config, train), build_loss(config, train)
    assert isinstance(loss, TripletLoss)
    said = forecast(
        model,
        train,
        [setting.p],
        [setting.k],
        loss_fn=loss,
        batches=BATCHES,
        probe_steps=PROBE,
        stepping=stepping_of(config),
        seed=setting.seed + OTHER_BATCHES,
    )
    (cell,) = said.cells
    assert cell.probe is not None
    return {
        "drift": cell.drift,
        "spread": cell.spread,
        "diameter": cell.diameter,
        "loss": cell.loss,
        "bound": cell.bound,
        "risk": cell.risk,
        "recommended": asdict(said.recommended.strategy),
        "probe": {name: [float(f"{v:.5g}") for v in getattr(cell.probe, name)] for name in SEEN},
    }


def _diameter(model: torch.nn.Module, train: LabelledImages, setting: Setting) -> float:
    """Of the batches that the forecast sees."""
    seed = setting.seed + OTHER_BATCHES
    batches = embedded_batches(model, train, setting.p, setting.k, BATCHES, seed)
    return fmean(diameter(z) for z, _ in batches)
