"""Many short runs: settings, the cache by which a killed study goes on, and its command line."""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from _study_data import DATA, available, channels, plain
from uncollapse.mining import NoTripletsWarning
from uncollapse.training import Config, parse_config

S = TypeVar("S")
CACHE = Path("out/study/runs.jsonl")  # of the forecast and the rescue: the runs are the same
RESNETS = {1: "_small_resnet:grey_resnet", 3: "_small_resnet:small_resnet"}


@dataclass(frozen=True)
class Setting:
    """One run of a study. `unit` puts the embeddings on the sphere.

    A loss other than "triplet" is on the sphere. `optimizer`: "adam", "sgd" (with momentum) or
    "adamw" (weight decay, a fifth of the steps to warm up). `loop`: "engine", or one of
    `_study_loops`. `guard`: what it does, or "forecast" in place of a run.
    """

    data: str
    backbone: str
    p: int
    k: int
    dim: int
    positives: str
    negatives: str
    scale_free: bool = False
    margin: float = 0.2
    soft: bool = False
    unit: bool = False
    lr: float = 1e-3
    steps: int = 200
    seed: int = 0
    guard: str = "warn"
    loss: str = "triplet"
    optimizer: str = "adam"
    loop: str = "engine"

    @property
    def on_sphere(self) -> bool:
        """Whether directions alone count."""
        return self.unit or self.loss != "triplet"

    @property
    def strategy(self) -> str:
        """In words."""
        if self.loss != "triplet":
            return f"{self.loss}{' of views' * (self.loop == 'views')}, lr {self.lr:g}"
        words = f"{self.positives} x {self.negatives}" + ", scale-free" * self.scale_free
        words += ", soft" * self.soft
        return words + f", margin {self.margin:g}" * (self.margin != 0.2 and not self.soft)

    @property
    def is_batch_hard(self) -> bool:
        """Hard positives and hard negatives at the embedding's own scale: HNM's case."""
        return (self.positives, self.negatives, self.scale_free) == ("hard", "hard", False)

    @property
    def has_batch_norm(self) -> bool:
        """Whether its network does."""
        return self.backbone == "resnet"

    @property
    def place(self) -> Setting:
        """The same for all runs with one network on one dataset that differ in strategy alone."""
        return replace(
            self,
            positives="",
            negatives="",
            scale_free=False,
            margin=0.0,
            soft=False,
            guard="",
        )

    @property
    def is_watched(self) -> bool:
        """Whether the package decides what becomes of it: such results are made anew after it."""
        return self.guard != "warn"

    def config(self) -> Config:
        """The same as a run's config; features of a frozen network are samples like others."""
        backbone = RESNETS[channels(self.data)] if self.has_batch_norm else self.backbone
        source = DATA[plain(self.data)]
        mined = {"positives": self.positives, "negatives": self.negatives}
        mining = {name: choice for name, choice in mined.items() if choice}
        loss = {"margin": self.margin, "scale_free": self.scale_free, "soft": self.soft}
        if self.loss != "triplet":
            loss = {"name": self.loss}
        optimizer = {"name": self.optimizer, "lr": self.lr, "schedule": "cosine"}
        if self.optimizer == "adamw":
            optimizer |= {"weight_decay": 0.01, "warmup": self.steps // 5}
        return parse_config(
            {
                "seed": self.seed,
                "data": {"name": source.name} if source.known else {},
                "model": {
                    "backbone": backbone,
                    "dim": self.dim,
                    "normalize": self.unit,
                    # A linear head on frozen features starts at what these know.
                    "head": "pca" if backbone == "linear" else "linear",
                },
                "batch": {"p": self.p, "k": self.k},
                "mining": mining,
                "loss": loss,
                "guard": {"action": "off" if self.guard == "forecast" else self.guard},
                # A rate that falls to 0: the last batches do not decide what R@1 is measured.
                "optimizer": optimizer,
                "train": {"steps": self.steps},
            }
        )


def asked(description: str, axes: Sequence[str] = ()) -> argparse.Namespace:
    """The command line of a study: `names` of its data, `cache`, `jobs` (0: no new run), `out`.

    `watched` is the cache of what depends on guard and forecast: another one for each version.
    """
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--watched", type=Path, help="cache of guarded runs and forecasts")
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--finished", action="store_true", help="tell of the runs made so far")
    parser.add_argument("--out", type=Path, help="folder for the table, the text and any picture")
    if axes:
        parser.add_argument("--axes", nargs="+", choices=axes, default=list(axes))
    chosen = parser.parse_args()
    quiet()
    chosen.names = chosen.data if chosen.finished else available(chosen.data)
    chosen.watched = chosen.watched or chosen.cache.with_name(f"watched-{chosen.cache.name}")
    chosen.jobs = 0 if chosen.finished else chosen.jobs
    return chosen


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


def results(
    settings: Sequence[Setting],
    run: Callable[[Setting], dict[str, Any]],
    chosen: argparse.Namespace,
) -> dict[Setting, dict[str, Any]]:
    """Runs of both caches, by turns, so that what is done so far is whole cases."""
    found = {}
    for some in (settings[start : start + 50] for start in range(0, len(settings), 50)):
        for path, watched in ((chosen.cache, False), (chosen.watched, True)):
            part = [one for one in some if one.is_watched == watched]
            found |= dict(cached(part, run, path, chosen.jobs))
    return found


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
    logging.getLogger("uncollapse").setLevel(logging.ERROR)
