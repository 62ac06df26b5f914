"""Does a regulariser keep batch-hard from collapsing, classes from merging, and what does it cost?

python benchmarks/regularisers.py             every run that can be made here (UNCOLLAPSE_DATA)
python benchmarks/regularisers.py --finished  the tables of the runs made so far

Batch-hard on people and letters, whose network collapses; letters by alphabet labels, whose classes
do. Recall is of classes never trained on; by letters where labels were alphabets. Weights lie about
the one that the drifts before training say is needed: -drift(loss) / drift(regulariser).
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from _study import asked, cached
from _study_data import DATA, splits
from _study_run import recall
from uncollapse.data import LabelledImages, load
from uncollapse.health import drift, measure
from uncollapse.health.forecasts import embedded_batches
from uncollapse.losses import MultipleLosses
from uncollapse.training import Config, parse_config
from uncollapse.training.evaluation import embed
from uncollapse.training.session import Session

CACHE = Path("out/regularisers/runs.jsonl")
BATCHES, OTHER_BATCHES = 4, 1000
WEIGHTS = {
    "variance-covariance": (0.04, 0.2, 1.0),
    "coding-rate": (0.002, 0.01, 0.05),
    "sigreg": (0.1, 0.7, 3.0),
}


@dataclass(frozen=True)
class Setting:
    """One run; `data` is one of the study's, or alphabets."""

    data: str
    positives: str = "hard"
    negatives: str = "hard"
    scale_free: bool | str = False
    regulariser: str = "none"
    weight: float = 0.1
    p: int = 18
    k: int = 8
    lr: float = 1e-3
    steps: int = 150
    seed: int = 0

    @property
    def strategy(self) -> str:
        """In words."""
        form = {False: "", True: ", scale-free"}.get(
            self.scale_free, f", scale-free ({self.scale_free})"
        )
        return f"{self.positives} x {self.negatives}{form}"

    def config(self) -> Config:
        """The same as a run's config."""
        more = {"regularizer": {"name": self.regulariser, "weight": self.weight}}
        return parse_config(
            {
                "seed": self.seed,
                "data": {"name": "omniglot" if self.data == "alphabets" else DATA[self.data].name},
                "model": {"backbone": "conv2", "dim": 64},
                "batch": {"p": self.p, "k": self.k},
                "mining": {"positives": self.positives, "negatives": self.negatives},
                "loss": {
                    "margin": 0.2,
                    "scale_free": self.scale_free,
                    **(more if self.regulariser != "none" else {}),
                },
                "optimizer": {"lr": self.lr, "schedule": "cosine"},
                "train": {"steps": self.steps},
            }
        )


def grid() -> Iterator[Setting]:
    """What matters most comes first, so that a study cut short says something."""
    letters, people = Setting("letters"), Setting("people", lr=3e-4)
    yield from _regularised(letters, WEIGHTS)
    yield from _regularised(people, {name: weights[1:] for name, weights in WEIGHTS.items()})
    small = {name: weights[:1] for name, weights in WEIGHTS.items()}
    yield from _scale_free(letters)
    yield from _scale_free(people)
    alphabets = Setting("alphabets", "random", "semihard", p=8, k=16)
    yield from _regularised(alphabets, small)
    yield from _regularised(replace(alphabets, seed=1), {"coding-rate": (0.002,)})
    again = replace(letters, seed=1)
    yield replace(again, regulariser="variance-covariance", weight=0.2)
    yield from (replace(again, scale_free=form) for form in (True, "hardest-negative"))


def _regularised(first: Setting, weights: dict[str, tuple[float, ...]]) -> Iterator[Setting]:
    """Without a regulariser, and with each at some weights."""
    yield first
    for name, some in weights.items():
        yield from (replace(first, regulariser=name, weight=weight) for weight in some)


def _scale_free(first: Setting) -> Iterator[Setting]:
    for form in (True, "hardest-negative"):
        yield from (replace(first, scale_free=form, positives=p) for p in ("hard", "easy"))


def one_run(setting: Setting) -> dict[str, Any]:
    """Drifts before training, and what became of it."""
    train, test = _data(setting.data)
    session = Session(setting.config(), train)
    batches = list(_batches(session, setting, train))
    parts = [session.loss]
    if isinstance(session.loss, MultipleLosses):
        parts = [session.loss.inner, *session.loss.others]  # type: ignore[list-item]
    drifts = [drift(part, batches).value for part in parts]
    before, start = recall(session.model, test), embed(session.model, test)
    for _ in range(setting.steps):
        session.advance()
    z = embed(session.model, test)
    reference = measure(start, test.labels, modes=False)
    health = measure(z, test.labels, reference=reference, modes=False)
    return {
        "drifts": drifts,
        "recall_before": before,
        "recall": recall(session.model, test),
        "scale": health.relative_diameter,
        "verdict": health.verdict,
        "axes": health.axes,
        "cosine": None if health.cosines is None else health.cosines.median,
    }


def _data(name: str) -> tuple[LabelledImages, LabelledImages]:
    if name != "alphabets":
        return splits(name)
    return load("omniglot", split="train", size=16), splits("letters")[1]


def _batches(session: Session, setting: Setting, train: LabelledImages) -> Any:
    shape = (setting.p, setting.k, BATCHES, setting.seed + OTHER_BATCHES)
    return embedded_batches(session.model, train, *shape)


Runs = list[tuple[Setting, dict[str, Any]]]


def table(runs: Runs, data: str, chosen: Callable[[Setting], bool]) -> Iterator[str]:
    """One line for each strategy, regulariser and weight; seeds beside each other."""
    yield "| loss | regulariser | weight | weight by the drifts | scale kept | R@1 | verdict |"
    yield "|---" * 7 + "|"
    groups: dict[Setting, Runs] = {}
    for setting, found in runs:
        if setting.data == data and chosen(setting):
            groups.setdefault(replace(setting, seed=0), []).append((setting, found))
    for first, some in groups.items():
        results = [found for _, found in some]
        regularised = first.regulariser != "none"
        needed = "-"
        if regularised:
            by = mean(-r["drifts"][0] / r["drifts"][1] for r in results)
            needed = f"{by:.2g}" if by > 0 else "none"
        cells = [
            first.strategy,
            first.regulariser if regularised else "-",
            f"{first.weight:g}" if regularised else "-",
            needed,
            ", ".join(f"{r['scale']:.2g}" for r in results),
            ", ".join(f"{100 * r['recall']:.1f}" for r in results),
            ", ".join(dict.fromkeys(r["verdict"] for r in results)),
        ]
        yield "| " + " | ".join(cells) + " |"


TABLES: dict[str, Callable[[Setting], bool]] = {
    "batch-hard with a regulariser": lambda s: not s.scale_free,
    "divided by one of its own distances": lambda s: bool(s.scale_free),
}


def main() -> int:
    chosen = asked(__doc__ or "")
    warnings.simplefilter("ignore")
    path = CACHE if chosen.cache.parts[-2:-1] == ("study",) else chosen.cache
    every = [s for s in grid() if chosen.finished or _source(s.data) in chosen.names]
    runs = cached(every, one_run, path, chosen.jobs)
    for data in ("letters", "people"):
        for title, some in TABLES.items():
            starts = [r["recall_before"] for s, r in runs if s.data == data]
            if starts:
                print(f"\n{data}, {title}; R@1 {100 * mean(starts):.1f} before training\n")
                print("\n".join(table(runs, data, some)))
    print("\nalphabets, R@1 by letters\n")
    print("\n".join(table(runs, "alphabets", lambda s: True)))
    return 0


def _source(data: str) -> str:
    return "letters" if data == "alphabets" else data


if __name__ == "__main__":
    sys.exit(main())
