"""Races of strategies inside a run: the session's own steps, on batches of its own stream."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from uncollapse._base.arrays import Array
from uncollapse._base.check import InputError, check_int
from uncollapse._base.files import write_csv
from uncollapse.health import RunSettings, strategy
from uncollapse.health import race as races
from uncollapse.health.drifts import NO_DRIFT, drift, filled_memories, has_unit_rows
from uncollapse.health.figures import balanced_rows, spread
from uncollapse.health.race import Race, RaceData, RacePlan
from uncollapse.health.strategy import Strategy
from uncollapse.training.assemble import load_data
from uncollapse.training.config import Config
from uncollapse.training.evaluation import as_evaluated

if TYPE_CHECKING:
    from uncollapse.training.session import Session

__all__ = ["Entrant", "RaceResult", "SessionTrial", "race_budget", "race_run", "save_race"]


_PER_CLASS = 4  # held-out rows of a class, where there are classes enough
_FEWEST = 48
_BYTES = 2**30  # of batches that are kept; a longer race goes over them again

Batch = tuple[Tensor, Tensor]


class SessionTrial:
    """A session as a race sees it; on several ranks each trains its share and judges the whole."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def batches_taken(self) -> int:
        """How many batches the run has taken; none while it is being put together."""
        stream = getattr(self.session, "stream", None)
        return 0 if stream is None else int(stream.place)

    def rewind(self, place: int) -> None:
        """Take those batches again that the restored weights have not seen."""
        self.session.go_to_batch(place)

    def race_data(self, steps: int, rows: int) -> RaceData | None:
        """The next batches of the run, and rows of its training data that are not in them."""
        s = self.session
        batches = self._batches(steps)
        seen = torch.cat([batch for _, batch in batches]).numpy()
        rng = np.random.default_rng((s.config.seed, s.step))
        held = held_out(s.class_of.numpy(), seen, rows, rng)
        if len(held) < _FEWEST:
            return None
        chosen = torch.from_numpy(held)
        images, _ = as_evaluated(s.data, s.config)[chosen]
        return RaceData(batches, images.to(s.device), s.class_of[chosen])

    def _batches(self, steps: int) -> list[Batch]:
        batches = [self.session.take_batch()]
        most = max(1, _BYTES // batches[0][0].nbytes)
        batches += [self.session.take_batch() for _ in range(min(steps, most) - 1)]
        return batches

    def copy_state(self) -> dict[str, Any]:
        """Network, optimiser and what the loss learns."""
        return races.copy_state(self.session.model, self.session.optimizer, self.session.loss)

    def restore(self, state: dict[str, Any]) -> None:
        """Make a copy the state again."""
        s = self.session
        races.restore_state(state, s.model, s.optimizer, s.loss)

    def train(self, batch: Batch) -> None:
        """One step, as the run makes it."""
        self.session.train_on(*batch)

    @torch.no_grad()
    def embed(self, held: Tensor) -> Tensor:
        """Held-out rows through the network, in blocks as large as a batch."""
        s = self.session
        with races.eval_except_batch_norm(s.model):
            parts = [s.forward(part).float().cpu() for part in torch.split(held, s.batch_size)]
        z = torch.cat(parts)
        return torch.nn.functional.normalize(z, dim=1) if s.loss.normalize else z


def held_out(ids: Array, seen: Array, most: int, rng: np.random.Generator) -> Array:
    """At most `most` rows to judge by, several of a class, unseen ones where there are enough.

    >>> rows = held_out(np.arange(40) % 8, np.arange(8), 12, np.random.default_rng(0))
    >>> len(rows), min(rows.tolist()) >= 8, np.unique(rows % 8, return_counts=True)[1].tolist()
    (12, True, [4, 4, 4])
    """
    unseen = np.setdiff1d(np.arange(len(ids)), seen)
    counts = np.bincount(ids[unseen], minlength=int(ids.max()) + 1)
    if counts[counts > 1].sum() < min(_FEWEST, most):  # every sample is in some batch
        unseen = np.arange(len(ids))
        counts = np.bincount(ids)
    several = rng.permutation(np.flatnonzero(counts > 1))[: max(2, most // _PER_CLASS)]
    pool = unseen[np.isin(ids[unseen], several)]
    return pool[balanced_rows(np.unique(ids[pool], return_inverse=True)[1], most, rng)]


# A race before training: a run's own strategy and the adviser's, from its untrained network.

_SHARE = 0.1  # of a run's steps that a race may cost
_BATCHES = 8  # that drift is measured on
_SURE = 20  # steps before the first judgement, from which on every strategy may race

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Entrant:
    """A strategy: its drift at the start, its last score (None without a race) and its result.

    `scale` is what was left then of the mean distance of the held-out rows at the start. The result
    is `wins`, `out`, `shrinks` (and so did not race) or `no room` in the budget.
    """

    strategy: Strategy
    drift: float
    steps: int | None
    recall: float | None
    scale: float | None
    result: str


@dataclass(frozen=True)
class RaceResult:
    """A race from a run's untrained network, and what takes part in it, the own strategy first.

    `start` is R@1 of the held-out rows before training.
    """

    race: Race
    start: float
    entrants: tuple[Entrant, ...]

    @property
    def own(self) -> Strategy:
        """The run's own strategy."""
        return self.entrants[0].strategy

    @property
    def winner(self) -> Strategy:
        """The strategy that won."""
        return next(one.strategy for one in self.entrants if one.result == "wins")

    @property
    def changes(self) -> dict[str, Any]:
        """The keys of the config that the winner changes, with its values; empty for the own."""
        return strategy.changed_keys(self.own, self.winner)

    @property
    def by_place(self) -> list[Entrant]:
        """Best first: by steps and R@1, then those that did not race, by drift."""
        places = list(self.race.last)
        ran = [one for one in self.entrants if one.steps is not None]
        idle = [one for one in self.entrants if one.steps is None]
        ran.sort(key=lambda one: (one.result != "wins", places.index(str(one.strategy))))
        return ran + sorted(idle, key=lambda one: one.drift)

    def __str__(self) -> str:
        kept = f"{self.own} wins" if self.winner == self.own else f"{self.winner} beats {self.own}"
        return f"{kept} ({self.race}; untrained {self.start:.1%})"


def race_run(
    config: Config, *, steps: int | None = None, progress: Progress | None = None
) -> RaceResult:
    """Let strategies race as a run of this config begins, and say which to train with.

    The run's own strategy and those the adviser ranks (`health.rank_strategies`) whose drift at the
    start does not shrink train from the run's first weights on batches of its own stream, with its
    optimiser, warm-up and mining pool; successive halving by R@1 of training samples that are not
    in these batches (`health.race`). Of what chance could decide, the own strategy wins if its
    drift does not shrink. `steps` is what all of it may cost, in training steps, a tenth of
    `train.steps` by default. Nothing is written, and torch's random state stays as it was.
    """
    budget = race_budget(config, steps)
    with torch.random.fork_rng(devices=[]):
        session = _session(config)
        own = strategy.strategy_of(session.loss)
        modes = strategy.finer_classes(session.data)
        settings = RunSettings(k=config.batch.per_class, several_modes=modes)
        ranked = strategy.rank_strategies(own, settings)
        others = [one for one in ranked if one.lr_factor == 1.0]
        if not others:
            given = f"{config.loss.name!r} without mining"
            raise InputError("loss.name", given, "a loss whose mining or form has alternatives")
        drifts = _drifts(session, (own, *others))
        safe = [one for one in others if drifts[one] <= NO_DRIFT]
        if not safe:
            given = f"none of {len(others)} alternatives"
            raise InputError("--race", given, "an alternative that does not shrink the embedding")
        plan = _plan(len(safe) + 1, budget, session, fewest=_SURE)
        if plan is None or plan.strategies <= len(safe):  # no room for all of them to show anything
            safe = strategy.contenders(own, safe)
            plan = _plan(len(safe) + 1, budget, session)
        assert plan is not None  # two have room
        some = safe[: plan.strategies - 1]
        runners = [own, *some] if drifts[own] <= NO_DRIFT else [*some, own]
        trial = _FirstSteps(session, plan, progress)
        apply = partial(strategy.apply_strategy, session.loss)
        race = races.run_race(trial, runners, apply, plan, session.batch_size)
    if race is None:
        allowed = "a split with 48 samples or more of classes that have several"
        raise InputError("data.train_split", repr(config.data.train_split), allowed)
    return RaceResult(race, trial.start, tuple(_entrants(race, drifts, runners, trial.scales)))


def _plan(count: int, budget: float, session: Session, fewest: int = 4) -> RacePlan | None:
    return races.plan_race(count, budget, session.batch_size, most=count, fewest=fewest)


def race_budget(config: Config, steps: int | None = None) -> int:
    """The steps that a race may cost; `InputError` where two strategies have no room in them."""
    budget = int(_SHARE * config.train.steps) if steps is None else check_int("steps", steps)
    size = config.batch.samples
    if races.plan_race(2, budget, size) is None:
        least = next(n for n in itertools.count(1) if races.plan_race(2, n, size))
        given = f"{budget}{', a tenth of train.steps' if steps is None else ''}"
        raise InputError("--race-steps", given, f"at least {least}, room for two strategies")
    return budget


def save_race(result: RaceResult, folder: Path) -> list[Path]:
    """The strategies and their last scores as CSV, in `folder`."""
    path = folder / "race.csv"
    fields = ["strategy", "drift", "steps", "recall", "scale", "result"]
    rows = ([getattr(one, field) for field in fields] for one in result.by_place)
    write_csv(path, fields, (["" if cell is None else cell for cell in row] for row in rows))
    return [path]


def _session(config: Config) -> Session:
    if config.loss.wants_sample_ids:
        # Drift is that of a batch by itself: its rows have no β of their own.
        raise InputError("loss.beta_per", "'sample'", "'class' or 'none', for a race")
    plain = config.with_changes({"guard": {"action": "off"}})
    from uncollapse.training.session import Session

    return Session(plain, load_data(plain, plain.data.train_split))


def _drifts(session: Session, strategies: Sequence[Strategy]) -> dict[Strategy, float]:
    """The drift of each on the run's first batches; the session's loss stays as it was.

    A memory holds these batches, but for the one that is measured.
    """
    batches = [session.take_batch() for _ in range(_BATCHES)]
    embedded = []
    with torch.no_grad(), races.eval_except_batch_norm(session.model):
        for images, rows in batches:
            z = session.forward(images).float()
            z = functional.normalize(z, dim=1) if session.loss.normalize else z
            embedded.append((z, session.class_of[rows].to(z.device)))
    unit = has_unit_rows(embedded[0][0])
    drifts = {}
    with strategy.left_alone(session.loss, strategies[0]), filled_memories(session.loss, embedded):
        for one in strategies:
            strategy.apply_strategy(session.loss, one)
            drifts[one] = drift(session.loss, embedded, normalize=unit).value
    return drifts


class _FirstSteps(SessionTrial):
    """The first steps of a run, each with the learning rate and pool that the run has there."""

    def __init__(self, session: Session, plan: RacePlan, progress: Progress | None) -> None:
        super().__init__(session)
        self.start, self.scales = math.nan, list[float]()
        self._unit, self._done, self._progress = math.nan, 0, progress
        sizes = itertools.accumulate(plan.rungs, lambda n, _: -(-n // 2), initial=plan.strategies)
        self._total = sum(size * steps for size, steps in zip(sizes, plan.rungs, strict=False))

    def race_data(self, steps: int, rows: int) -> RaceData | None:
        """That of the session, with the number of each batch; the rows are looked at once."""
        data = super().race_data(steps, rows)
        if data is None:
            return None
        z = super().embed(data.held)
        ids = torch.as_tensor(data.labels)
        self.start, self._unit = float(races.nearest_is_own_class(z, ids).mean()), spread(z)
        return data._replace(batches=list(enumerate(data.batches)))

    def train(self, batch: Any) -> None:
        """One step, as the run would make it there."""
        self.session.step, taken = batch
        self.session.begin_step()
        super().train(taken)
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._total)

    def embed(self, held: Tensor) -> Tensor:
        """The rows as they are judged; what is left of their scale is kept."""
        z = super().embed(held)
        self.scales.append(spread(z) / self._unit if self._unit else math.nan)
        return z


def _entrants(
    race: Race, drifts: Mapping[Strategy, float], runners: Sequence[Strategy], scales: list[float]
) -> list[Entrant]:
    last = {
        score.strategy: (score, scale) for score, scale in zip(race.scores, scales, strict=True)
    }
    entrants = []
    for entrant, value in drifts.items():
        result = "wins" if str(entrant) == race.chosen else "out"
        if entrant not in runners:
            result = "shrinks" if value > NO_DRIFT else "no room"
            entrants.append(Entrant(entrant, value, None, None, None, result))
            continue
        score, scale = last[str(entrant)]
        entrants.append(Entrant(entrant, value, score.steps, score.recall, scale, result))
    return entrants
