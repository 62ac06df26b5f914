"""What watching and a rescue cost: CPU time over runs without a guard, run in turn.

python benchmarks/rescue_time.py             rescued runs in four places of the study
python benchmarks/rescue_time.py --places    by place: the engine, a plain loop, PML's losses

Data in UNCOLLAPSE_DATA. Each figure is the smallest of a few turns, on one thread.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from _study import Setting, quiet
from _study_data import available, splits
from uncollapse.backbones.networks import Conv2
from uncollapse.health import CollapseMonitor, Guard
from uncollapse.losses import TripletLoss
from uncollapse.mining import Miner
from uncollapse.training.session import Session

TURNS = 2
PLACES = (
    Setting("noisy intents", "mlp", 18, 8, 64, "hard", "hard"),
    Setting("noisy letters", "resnet", 18, 8, 64, "hard", "hard"),
    Setting("letters", "conv2", 18, 8, 64, "hard", "hard"),
    Setting("people", "resnet", 18, 8, 64, "hard", "hard", unit=True, steps=300),
)
ENGINE = tuple(
    Setting("letters", name, 18, 8, 64, "hard", "hard", steps=steps)
    for name, steps in (("conv2", 200), ("resnet", 200), ("mlp", 600), ("linear", 600))
)
STEPS = 400  # of a loop written by hand


def seconds(setting: Setting) -> float:
    session = Session(setting.config(), splits(setting.data)[0])
    begun = time.process_time()
    for _ in range(setting.steps):
        session.advance()
    return time.process_time() - begun


def quickest(calls: dict[str, Callable[[], float]], turns: int = 3) -> dict[str, float]:
    """The smallest time of each, called in turn."""
    every = [{name: call() for name, call in calls.items()} for _ in range(turns)]
    return {name: min(turn[name] for turn in every) for name in calls}


def by_place() -> None:
    """A line per place: a step's time, and what watching it, or rescuing it, adds."""
    for hard in ENGINE:
        easy = replace(hard, positives="easy")
        cured = replace(hard, positives="inside", scale_free=True)
        runs = {"easy": easy, "hard": hard, "cured": cured}
        runs = {name: replace(setting, guard="off") for name, setting in runs.items()}
        runs |= {"warned": replace(easy, guard="warn"), "guarded": replace(easy, guard="rescue")}
        runs["rescued"] = replace(hard, guard="rescue")
        took = quickest({name: lambda s=setting: seconds(s) for name, setting in runs.items()})
        both = (took["hard"] + took["cured"]) / 2
        print(
            f"engine, {hard.backbone}, {hard.steps} steps: "
            f"{_milliseconds(took['easy'], hard.steps)}; "
            f"healthy: warn {took['warned'] / took['easy'] - 1:+.1%}, "
            f"rescue {took['guarded'] / took['easy'] - 1:+.1%}; "
            f"collapsing, rescued {took['rescued'] / both - 1:+.1%}",
            flush=True,
        )
    batches = _batches()
    for name, make in (("ours", _our_loss), ("PML's batch-hard", _pml_loss)):
        ways = {how: lambda h=how, m=make: _loop(batches, m, h) for how in ("", "monitor", "guard")}
        took = quickest(ways)
        print(
            f"plain loop, conv2, loss: {name}, {STEPS} steps: {_milliseconds(took[''], STEPS)}; "
            f"monitor {took['monitor'] / took[''] - 1:+.1%}, "
            f"guard {took['guard'] / took[''] - 1:+.1%}",
            flush=True,
        )


def _batches() -> list[tuple[Tensor, Tensor]]:
    data, generator = splits("letters")[0], torch.Generator().manual_seed(0)
    rows = [torch.nonzero(data.label_index == c).flatten() for c in range(200)]
    drawn = [torch.randperm(200, generator=generator)[:18].tolist() for _ in range(50)]
    every = [torch.cat([rows[c][:8] for c in classes]) for classes in drawn]
    return [(data[some][0], data.label_index[some]) for some in every]


def _our_loss() -> nn.Module:
    return TripletLoss(margin=0.2, miner=Miner("easy", "hard"))


def _pml_loss() -> nn.Module:
    from pytorch_metric_learning import losses, miners

    class BatchHard(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.loss, self.miner = losses.TripletMarginLoss(0.2), miners.BatchHardMiner()

        def forward(self, z: Tensor, labels: Tensor) -> Tensor:
            return self.loss(z, labels, self.miner(z, labels))  # type: ignore[no-any-return]

    return BatchHard()


def _loop(batches: list[tuple[Tensor, Tensor]], make: Callable[[], Any], how: str) -> float:
    torch.manual_seed(0)
    model, loss_fn = nn.Sequential(Conv2(1), nn.Linear(Conv2.features, 64)), make()
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    monitor = CollapseMonitor(loss_fn) if how == "monitor" else None
    guard = Guard(model, optimizer, loss_fn, steps=STEPS) if how == "guard" else None
    begun = time.process_time()
    for step in range(STEPS):
        images, labels = batches[step % len(batches)]
        z = model(images)
        loss = loss_fn(z, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if monitor is not None:
            monitor.update(z, labels, loss)
        if guard is not None:
            guard.after_step(z, labels, loss)
    return time.process_time() - begun


def _milliseconds(took: float, steps: int) -> str:
    return f"{took / steps * 1e3:.1f} ms a step"


def main() -> int:
    quiet()
    if "--places" in sys.argv:
        by_place()
        return 0
    there = available(["intents", "letters", "people"])
    alone, saved = [], []
    for place in (one for one in PLACES if one.data.removeprefix("noisy ") in there):
        cured = replace(place, positives="inside", scale_free=True)
        rescued = replace(place, guard="rescue")
        turns = [[seconds(one) for one in (place, rescued, cured)] for _ in range(TURNS)]
        alone.append(fmean((hard + inside) / 2 for hard, _, inside in turns))
        saved.append(fmean(middle for _, middle, _ in turns))
        ratio = saved[-1] / alone[-1] - 1
        print(
            f"{place.data}, {place.backbone}: {alone[-1]:.2f} s, rescued {ratio:+.1%}", flush=True
        )
    if saved:
        print(f"all together: {sum(saved) / sum(alone) - 1:+.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
