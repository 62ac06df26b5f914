"""Three longer cases on Market-1501: two sessions of 800 steps, and a plain loop of one's own."""

from __future__ import annotations

import inspect
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

import uncollapse as uc
from _study_grid import BASES, BY_HAND
from _study_run import recall
from uncollapse.data import LabelledImages, load
from uncollapse.losses import TripletLoss
from uncollapse.mining import Miner
from uncollapse.samplers import PKSampler
from uncollapse.training import parse_config
from uncollapse.training.session import Session

__all__ = ["one_run", "runs", "table"]

P, K, DIM, BAR = 18, 8, 128, 0.97  # BAR: what a rescue shall reach of the best by hand
SESSION_STEPS, LOOP_STEPS, PEOPLE = 800, 200, 150
TITLES = {
    "margin 0.2": "Market-1501, 32 x 32, conv2, Adam 3e-4, 800 steps, margin 0.2",
    "margin 0": "the same with margin 0",
    "plain loop": "150 people, 64 x 32, three convolutions, Adam 1e-3, 200 steps, a plain loop",
}


@dataclass(frozen=True)
class CaseRun:
    """One run: which case, which strategy, and whether it is rescued. By hand the margin is 0.2."""

    case: str
    positives: str
    negatives: str
    scale_free: bool = False
    margin: float = 0.2
    guard: str = "warn"
    seed: int = 0

    @property
    def strategy(self) -> str:
        """In words."""
        return f"{self.positives} x {self.negatives}" + ", scale-free" * self.scale_free


def runs() -> list[CaseRun]:
    """In random order; margin 0 has the runs by hand of margin 0.2, which are the same."""
    found = []
    for case in TITLES:
        base = BASES[1] if case == "margin 0" else BASES[0]
        found += [CaseRun(case, **base, guard=guard) for guard in ("warn", "rescue")]
        if case != "margin 0":
            found += [CaseRun(case, **choice) for choice in BY_HAND]
    random.Random(0).shuffle(found)
    return found


def one_run(run: CaseRun) -> dict[str, Any]:
    """R@1 at the end, the verdict, the strategy it ended with, and what the guard did."""
    guard, score = _plain_loop(run) if run.case == "plain loop" else _session(run)
    return {
        "recall": score,
        "verdict": guard.monitor.verdict,
        "changes": guard.monitor.changes,
        "events": [[event.step, event.kind, event.text] for event in guard.events],
        "final_strategy": str(guard.strategy),
    }


def table(found: Mapping[CaseRun, Mapping[str, Any]]) -> str:
    """One line for each run, in per cent, beside the best by hand, as Markdown."""
    lines = [
        "| case | run | R@1 | of the best by hand | verdict | goes on with |",
        "|---" * 6 + "|",
    ]
    for case, title in TITLES.items():
        shared = "margin 0.2" if case == "margin 0" else case
        hand = [r for r in found if r.case == shared and _is_by_hand(r)]
        best = max((found[r]["recall"] for r in hand), default=float("nan"))
        mine = [r for r in found if r.case == case and not _is_by_hand(r)]
        for run in sorted(mine, key=lambda r: r.guard, reverse=True) + hand:
            result, rescued = found[run], run.guard == "rescue"
            name = run.strategy if run in hand else "rescued" if rescued else "no guard"
            share = result["recall"] / best
            met = f" (asked: {BAR})" if rescued else ""
            end = result["final_strategy"] if rescued else ""
            lines.append(
                f"| {title} | {name} | {100 * result['recall']:.1f} | {share:.3f}{met} | "
                f"{result['verdict']} | {end} |"
            )
            title = ""
    return "\n".join(lines)


def _is_by_hand(run: CaseRun) -> bool:
    return run.scale_free or (run.positives, run.negatives) != ("hard", "hard")


def _session(run: CaseRun) -> tuple[uc.Guard, float]:
    train, query = (load("market1501", split=s, size=(32, 32)) for s in ("train", "query"))
    config = parse_config(
        {
            "seed": run.seed,
            "data": {"name": "market1501"},
            "model": {"backbone": "conv2", "dim": DIM},
            "batch": {"p": P, "k": K},
            "mining": {"positives": run.positives, "negatives": run.negatives},
            "loss": {"margin": run.margin, "scale_free": run.scale_free},
            "guard": {"action": run.guard},
            "optimizer": {"lr": 3e-4},
            "train": {"steps": SESSION_STEPS},
        }
    )
    session = Session(config, train)
    for _ in range(SESSION_STEPS):
        session.advance()
    assert session.guard is not None
    return session.guard, recall(session.model, query)


def _plain_loop(run: CaseRun) -> tuple[uc.Guard, float]:
    """As one writes it without a session: a third of each person's pictures is held out."""
    train, held_out = _people()
    torch.manual_seed(run.seed)
    model = _convnet()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    miner = Miner(run.positives, run.negatives, margin=run.margin)
    loss_fn = TripletLoss(margin=run.margin, miner=miner, scale_free=run.scale_free)
    known = inspect.signature(uc.Guard).parameters
    options: dict[str, Any] = {"steps": LOOP_STEPS} if "steps" in known else {}
    guard = uc.Guard(model, optimiser, loss_fn, action=run.guard, **options)
    sampler, step = PKSampler(train.labels, P, K, run.seed), 0
    while step < LOOP_STEPS:
        for rows in sampler:
            if step == LOOP_STEPS:
                break
            images, labels = train[rows]
            z: Tensor = model(images)
            loss = loss_fn(z, labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            guard.after_step(z, labels, loss)
            step += 1
    return guard, recall(model, held_out)


@cache
def _people() -> tuple[LabelledImages, LabelledImages]:
    data = load("market1501", split="train", size=(64, 32))
    data = data.subset(data.label_index < PEOPLE)
    place = torch.zeros(len(data), dtype=torch.long)
    for person in data.classes:
        rows = torch.nonzero(data.labels == person).flatten()
        place[rows] = torch.arange(len(rows))
    return data.subset(place % 3 != 2), data.subset(place % 3 == 2)


def _convnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 128, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d((4, 2)),
        nn.Flatten(),
        nn.Linear(128 * 8, DIM),
    )
