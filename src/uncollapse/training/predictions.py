"""Before training: a forecast for a config, and a race of strategies from its first network."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from uncollapse._base.check import InputError, check_int
from uncollapse._base.files import write_csv
from uncollapse._base.progress import Report
from uncollapse.health import Forecast, Race, RunSettings, drift, forecast, strategy
from uncollapse.health import race as races
from uncollapse.health.advice import Strategy, changed_keys, contenders
from uncollapse.health.drifts import Stepping, filled_memories, has_unit_rows
from uncollapse.health.verdict import NO_DRIFT
from uncollapse.losses import TripletLoss
from uncollapse.losses.base import Wrapper, innermost
from uncollapse.training.assemble import (
    build_loss,
    build_optimizer,
    learning_rate,
    load_data,
    load_eval_data,
)
from uncollapse.training.config import Config
from uncollapse.training.session import Session, SessionTrial, first_network


def forecast_run(
    config: Config,
    p: Sequence[int],
    k: Sequence[int],
    dim: Sequence[int] | None = None,
    *,
    c: float = 2.0,
    probe_steps: int = 0,
    progress: Report | None = None,
) -> Forecast:
    """Ask `health.forecast` about a config's own data, network and triplet loss."""
    widths = list(dim or [config.model.dim])
    if config.loss.identity is not None and len(widths) > 1:
        raise InputError.conflict(
            "the classifier of [loss.identity] is as wide as the embedding: forecast one dimension "
            "at a time"
        )
    data = load_eval_data(config, config.data.train_split)
    data = replace(data, labels=data.label_index)  # as training numbers them
    loss = build_loss(config.with_changes({"model": {"dim": widths[0]}}), data)
    if not isinstance(innermost(loss), TripletLoss):
        raise InputError("loss.name", repr(config.loss.name), "'triplet'")

    def network(width: int) -> nn.Module:
        return first_network(config.with_changes({"model": {"dim": width}}), data)

    return forecast(
        network,
        data,
        p,
        k,
        widths,
        loss_fn=cast("TripletLoss | Wrapper", loss),
        c=c,
        probe_steps=probe_steps,
        stepping=stepping_of(config),
        seed=config.seed,
        progress=progress,
    )


def stepping_of(config: Config) -> Stepping:
    """How a run of this config takes its steps."""
    rates = [learning_rate(config, step) for step in range(config.train.steps)]
    return Stepping(partial(build_optimizer, config), rates, config.optimizer.clip)


def save_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    """Write rows, given as dictionaries, as CSV."""
    fields = list(dict.fromkeys(key for row in rows for key in row))
    write_csv(path, fields, ([row.get(key, "") for key in fields] for row in rows))
    return path


# A race: a run's own strategy and the adviser's, from its untrained network.

_SHARE = 0.1  # of a run's steps that a race may cost
_BATCHES = 8  # that drift is measured on
_SURE = 20  # steps before the first judgement, from which on every strategy may race


@dataclass(frozen=True)
class Entrant:
    """A strategy: its drift at the start, its last score (None without a race) and its result.

    `scale` is the mean distance of the held-out rows then, as a share of that at the start. The
    result is `wins`, `out`, `shrinks` (and so did not race) or `no room` in the budget.
    """

    strategy: Strategy
    drift: float
    steps: int | None
    recall: float | None
    scale: float | None
    result: str


@dataclass(frozen=True)
class RaceResult:
    """A race from a run's untrained network: its `own` strategy and all entrants, best first.

    Those that did not race come last, by drift.
    """

    race: Race
    own: Strategy
    entrants: tuple[Entrant, ...]

    @property
    def winner(self) -> Strategy:
        """The strategy that won."""
        return self.entrants[0].strategy

    @property
    def changes(self) -> dict[str, Any]:
        """The keys of the config that the winner changes, with its values; empty for the own."""
        return changed_keys(self.own, self.winner)


def race_run(
    config: Config, *, steps: int | None = None, progress: Report | None = None
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
    if config.loss.wants_sample_ids:
        # Drift is that of a batch by itself: its rows have no β of their own.
        raise InputError("loss.beta_per", "'sample'", "'class' or 'none', for a race")
    plain = config.with_changes({"guard": {"action": "off"}})
    with torch.random.fork_rng(devices=[]):
        session = Session(plain, load_data(plain, plain.data.train_split))
        own = strategy.strategy_of(session.loss)
        modes = strategy.finer_classes(session.data)
        settings = RunSettings(k=config.batch.per_class, several_modes=modes)
        ranked = strategy.rank_strategies(own, settings)
        if not ranked:
            given = f"{config.loss.name!r} without mining"
            raise InputError("loss.name", given, "a loss whose mining or form has alternatives")
        drifts = _drifts(session, (own, *ranked))
        safe = [other for other in ranked if drifts[other] <= NO_DRIFT]
        if not safe:
            given = f"none of {len(ranked)} alternatives"
            raise InputError("--race", given, "an alternative that does not shrink the embedding")
        size = session.batch_size
        plan = races.plan_race(len(safe) + 1, budget, size, most=len(safe) + 1, fewest=_SURE)
        if plan is None or plan.strategies <= len(safe):  # no room for all of them to show anything
            safe = contenders(own, safe)
            plan = races.plan_race(len(safe) + 1, budget, size, most=len(safe) + 1)
        assert plan is not None  # two have room
        some = safe[: plan.strategies - 1]
        runners = [own, *some] if drifts[own] <= NO_DRIFT else [*some, own]
        trial = _FirstSteps(session, plan, progress)
        apply = partial(strategy.apply_strategy, session.loss)
        race = races.run_race(trial, runners, apply, plan, size)
    if race is None:
        allowed = "a split with 48 samples or more of classes that have several"
        raise InputError("data.train_split", repr(config.data.train_split), allowed)
    return RaceResult(race, own, _entrants(race, drifts))


def race_budget(config: Config, steps: int | None = None) -> int:
    """The steps that a race may cost; `InputError` where two strategies have no room in them."""
    budget = int(_SHARE * config.train.steps) if steps is None else check_int("steps", steps)
    size = config.batch.samples
    if races.plan_race(2, budget, size) is None:
        least = next(n for n in itertools.count(1) if races.plan_race(2, n, size))
        given = f"{budget}{', a tenth of train.steps' if steps is None else ''}"
        raise InputError("--race-steps", given, f"at least {least}, room for two strategies")
    return budget


def _drifts(session: Session, strategies: Sequence[Strategy]) -> dict[Strategy, float]:
    """The drift of each strategy on the run's first batches; the session's loss is restored.

    A memory holds the batches other than the one measured.
    """
    trial, device, embedded = SessionTrial(session), session.device, []
    for _ in range(_BATCHES):
        images, rows = session.take_batch()
        embedded.append((trial.embed(images).to(device), session.class_of[rows].to(device)))
    unit = has_unit_rows(embedded[0][0])
    drifts = {}
    with strategy.left_alone(session.loss, strategies[0]), filled_memories(session.loss, embedded):
        for entrant in strategies:
            strategy.apply_strategy(session.loss, entrant)
            drifts[entrant] = drift(session.loss, embedded, normalize=unit).value
    return drifts


class _FirstSteps(SessionTrial):
    """The first steps of a run, each with the learning rate and pool that the run has there."""

    def __init__(self, session: Session, plan: races.RacePlan, progress: Report | None) -> None:
        super().__init__(session)
        self._done, self._progress = 0, progress
        sizes = itertools.accumulate(plan.rungs, lambda n, _: -(-n // 2), initial=plan.strategies)
        self._total = sum(size * steps for size, steps in zip(sizes, plan.rungs, strict=False))

    def race_data(self, steps: int, rows: int) -> races.RaceData | None:
        """The session's race data, with batches numbered."""
        data = super().race_data(steps, rows)
        return data and data._replace(batches=list(enumerate(data.batches)))

    def train(self, batch: Any) -> None:
        """One step, as the run would make it there."""
        self.session.step, taken = batch
        self.session.begin_step()
        super().train(taken)
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._total)


def _entrants(race: Race, drifts: Mapping[Strategy, float]) -> tuple[Entrant, ...]:
    """Best first: by steps and R@1, then those that did not race, by drift."""
    raced, others = {}, []
    for each, value in drifts.items():
        score = race.last.get(str(each))
        if score is None:
            result = "shrinks" if value > NO_DRIFT else "no room"
            others.append(Entrant(each, value, None, None, None, result))
        else:
            result = "wins" if str(each) == race.chosen else "out"
            figures = score.steps, score.recall, score.scale
            raced[str(each)] = Entrant(each, value, *figures, result)
    best_first = [raced[name] for name in dict.fromkeys([race.chosen, *race.last])]
    return *best_first, *sorted(others, key=lambda entrant: entrant.drift)
