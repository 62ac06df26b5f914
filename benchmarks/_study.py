"""Many short runs: settings, their data, and a cache so that a study that was killed goes on."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch

from uncollapse.data import DataError, LabelledImages, load
from uncollapse.metrics import retrieval
from uncollapse.mining import NoTripletsWarning
from uncollapse.training import Config, parse_config
from uncollapse.training.evaluation import embed
from uncollapse.training.session import Session

S = TypeVar("S")
LETTERS = 60  # unseen letters that recall is measured on
MOST = 1200  # and at most so many samples
NOISE = 0.3  # share of labels drawn anew in the noisy digits

# name: (dataset, options, labels to train on, whether it comes with the packages)
DATA: dict[str, tuple[str, dict[str, Any], str, bool]] = {
    "digits": ("digits", {}, "coarse", True),
    "noisy digits": ("digits", {}, "coarse", True),
    "mnist parity": ("mnist-parity", {}, "coarse", True),
    "letters": ("omniglot", {"size": 16}, "fine", False),
}


@dataclass(frozen=True)
class Setting:
    """One run of a study."""

    data: str
    backbone: str
    p: int
    k: int
    dim: int
    positives: str
    negatives: str
    scale_free: bool = False
    margin: float = 0.2
    lr: float = 1e-3
    steps: int = 200
    seed: int = 0
    guard: str = "warn"

    @property
    def strategy(self) -> str:
        """In words."""
        words = f"{self.positives} x {self.negatives}" + ", scale-free" * self.scale_free
        return words + f", margin {self.margin:g}" * (self.margin != 0.2)

    @property
    def is_batch_hard(self) -> bool:
        """Hard positives and hard negatives at the embedding's own scale: HNM's case."""
        return (self.positives, self.negatives, self.scale_free) == ("hard", "hard", False)

    def config(self) -> Config:
        """The same as a run's config."""
        name, options, labels, _ = DATA[self.data]
        return parse_config(
            {
                "seed": self.seed,
                "data": {"name": name, "labels": labels, **options},
                "model": {"backbone": self.backbone, "dim": self.dim},
                "batch": {"p": self.p, "k": self.k},
                "mining": {"positives": self.positives, "negatives": self.negatives},
                "loss": {"margin": self.margin, "scale_free": self.scale_free},
                "guard": {"action": self.guard},
                "optimiser": {"lr": self.lr},
                "train": {"steps": self.steps},
            }
        )


@cache
def splits(name: str) -> tuple[LabelledImages, LabelledImages]:
    """What a run trains on, and what its recall is measured on."""
    dataset, options, labels, _ = DATA[name]
    train, test = (load(dataset, split=split, **options) for split in ("train", "test"))
    if labels == "fine":
        train, test = train.by_fine_labels(), test.by_fine_labels()
        test = test.subset(test.labels < test.classes[LETTERS])
    test = test.subset(torch.arange(0, len(test), -(-len(test) // MOST)))
    return (_noisy(train) if name.startswith("noisy") else train), test


def available(names: Sequence[str]) -> list[str]:
    """Those of the data that can be read here; says which cannot."""
    found = []
    for name in names:
        try:
            splits(name)
        except DataError as error:
            print(f"left out {name}: {error}")
        else:
            found.append(name)
    return found


def asked(description: str, name: str) -> argparse.Namespace:
    """The command line of a study: `names` of its data, `cache`, `jobs` (0: no new run), `out`."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="only data that needs no download")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cache", type=Path, default=Path(f"out/{name}/runs.jsonl"))
    parser.add_argument("--finished", action="store_true", help="tell of the runs made so far")
    parser.add_argument("--out", type=Path, help="folder for the table, the text and any picture")
    chosen = parser.parse_args()
    quiet()
    names = [name for name, (*_, embedded) in DATA.items() if embedded or not chosen.quick]
    chosen.names = names if chosen.finished else available(names)
    chosen.jobs = 0 if chosen.finished else chosen.jobs
    return chosen


def recall(session: Session, test: LabelledImages) -> float:
    """R@1 of the network as it is; ties count against it."""
    z = embed(session.model, test)
    return float(retrieval(z, test.labels, ks=(1,), progress=False).recall[1])


def cached(
    settings: Sequence[S],
    run: Callable[[S], dict[str, Any]],
    path: Path,
    jobs: int = 1,
) -> list[tuple[S, dict[str, Any]]]:
    """Settings with their results, which are kept in `path`, a line each; 0 jobs makes no run.

    Settings are of one frozen dataclass.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = path.read_text().splitlines() if path.is_file() else []
    kind = type(settings[0]) if settings else None
    known = {kind(**x["setting"]): x["result"] for x in map(json.loads, lines)} if kind else {}
    todo = [one for one in dict.fromkeys(settings) if one not in known and jobs > 0]
    begun = time.monotonic()
    with path.open("a") as file:
        for done, (one, result) in enumerate(_each(todo, run, jobs), start=1):
            file.write(json.dumps({"setting": vars(one), "result": result}) + "\n")
            file.flush()
            known[one] = result
            left = (time.monotonic() - begun) / done * (len(todo) - done)
            print(f"{done} of {len(todo)}, {left / 60:.0f} min left: {one}", flush=True)
    return [(one, known[one]) for one in dict.fromkeys(settings) if one in known]


def _each(
    todo: Sequence[S], run: Callable[[S], dict[str, Any]], jobs: int
) -> Iterator[tuple[S, dict[str, Any]]]:
    if jobs <= 1:
        yield from ((one, run(one)) for one in todo)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, quiet) as pool:
        yield from zip(todo, pool.imap(run, todo), strict=True)


def quiet() -> None:
    """One thread a process, and no word about batches without triplets: they are counted."""
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", NoTripletsWarning)


def _noisy(data: LabelledImages) -> LabelledImages:
    generator = torch.Generator().manual_seed(7)
    drawn = torch.rand(len(data), generator=generator) < NOISE
    other = data.classes[torch.randint(len(data.classes), (len(data),), generator=generator)]
    return replace(data, labels=torch.where(drawn, other, data.labels))
