"""Which losses lose the letters of an alphabet: one short training each, on Omniglot alphabets.

python benchmarks/loss_collapse.py                       every loss of the library, unmined
python benchmarks/loss_collapse.py circle "SoftTriple"   some of them
python benchmarks/loss_collapse.py --mining easy all     with a miner
python benchmarks/loss_collapse.py --finished            table of the runs made so far

Labels are alphabets; letters are hidden, and those of the score are of alphabets that training has
not seen. Needs Omniglot in UNCOLLAPSE_DATA; 15 s per loss and seed, kept in out/loss_collapse.
For losses of your own: `table(runs({"name": Maker(...)}, seeds=1))`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from _drift_table import LOSSES, Maker
from _mode_sets import CoarseSet, Rows, omniglot
from _study import cached, quiet
from mode_study import Sphere, adam, batches, embedded, recalls, settled, step_on
from uncollapse.health import measure
from uncollapse.mining import Miner

CACHE = Path("out/loss_collapse/runs.jsonl")
STEPS = 300
EVERY = 7  # letter with all its drawings: of those trained on for the verdict, of others for R@1


@dataclass(frozen=True)
class LossRun:
    """One run: the loss by its name, mining if any, seed."""

    loss: str
    positives: str | None = None
    negatives: str | None = None
    seed: int = 0


def runs(
    losses: Mapping[str, Maker],
    *,
    seeds: int = 2,
    mining: tuple[str, str] | tuple[None, None] = (None, None),
    kept_in: Path = CACHE,
    jobs: int = 1,
) -> list[tuple[LossRun, dict[str, Any]]]:
    """Train each loss by its name, or take it from the cache; 0 jobs makes no run."""
    grid = [LossRun(name, *mining, seed) for name in losses for seed in range(seeds)]
    return cached(grid, partial(one_run, losses), kept_in, jobs)


@cache
def alphabets() -> tuple[CoarseSet, Rows]:
    """Omniglot with whole letters held out, and some of the letters it trains on."""
    train, test = omniglot()
    return CoarseSet(train, test.letters(EVERY), 4, 40, 64, True), train.letters(EVERY)


def one_run(losses: Mapping[str, Maker], run: LossRun) -> dict[str, Any]:
    """Embed, train, embed again: R@1 of what is held out, and the verdict on what was trained."""
    (data, some), maker = alphabets(), losses[run.loss]
    torch.manual_seed(run.seed)
    model = data.network()
    if maker.normalize:
        model = nn.Sequential(model, Sphere())
    miner = None
    if run.positives and run.negatives:
        generator = torch.Generator().manual_seed(run.seed)
        miner = Miner(run.positives, run.negatives, generator=generator)
    loss_fn: Any = maker.make(miner, len(data.train.labels.unique()), data.dim)
    optimiser, stream = adam(model, loss_fn), batches(data, run.seed)
    first = settled(model, data, run.seed)
    start = recalls(first, data.test)
    judge = partial(measure, labels=some.labels, fine_labels=some.fine, modes=False)
    before = judge(embedded(first, some))
    for _ in range(STEPS):
        step_on(model, loss_fn, optimiser, *next(stream))
    after = judge(embedded(model, some), reference=before)
    return {
        "start": start,
        "end": recalls(model, data.test),
        "verdict": after.verdict,
        "scale": after.relative_diameter,
        "letters_kept": after.fine_kept,
        "axes": after.axes,
    }


def table(found: Iterable[tuple[LossRun, dict[str, Any]]]) -> str:
    """Means over the seeds, best first."""
    by_loss: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for run, seen in found:
        words = f"{run.positives} x {run.negatives}" if run.positives else ""
        by_loss.setdefault((run.loss, words), []).append(seen)
    rows = []
    for (loss, words), seen in by_loss.items():
        start, end, alphabets = (
            [100 * one[when][labels] for one in seen]
            for when, labels in (("start", "fine"), ("end", "fine"), ("end", "coarse"))
        )
        kept = statistics.mean(one["letters_kept"] for one in seen)
        axes = statistics.mean(one["axes"] for one in seen)
        verdicts = ", ".join(dict.fromkeys(one["verdict"] for one in seen))
        name = f"{loss}, {words}" if words else loss
        cells = f"| {name} | {_spread(start)} | {_spread(end)} | {_spread(alphabets)} "
        rows.append((statistics.mean(end), f"{cells}| {kept:.2f} | {axes:.0f} | {verdicts} |"))
    head = "| loss | R@1 letters, start | end | alphabets, end | letters kept | axes | verdict |"
    ranked = [row for _, row in sorted(rows, reverse=True)]
    return "\n".join([head, "|---" * 7 + "|", *ranked])


def _spread(values: list[float]) -> str:
    middle = f"{statistics.mean(values):.1f}"
    return middle if len(values) < 2 else f"{middle} ± {(max(values) - min(values)) / 2:.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("losses", nargs="*", help="names; all where none is given")
    parser.add_argument("--mining", nargs=2, default=(None, None), metavar=("POS", "NEG"))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--finished", action="store_true", help="make no new run")
    chosen = parser.parse_args()
    quiet()
    some = {name: LOSSES[name] for name in chosen.losses or LOSSES}
    jobs = 0 if chosen.finished else 1
    mining = tuple(chosen.mining)
    found = runs(some, seeds=chosen.seeds, mining=mining, kept_in=chosen.cache, jobs=jobs)
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
