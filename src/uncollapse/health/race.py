"""Choice by trial: strategies train from one state on the same batches; retrieval decides."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike, class_ids
from uncollapse.distances import pairwise_distances
from uncollapse.health.strategy import Strategy

__all__ = ["Race", "RaceData", "RacePlan", "RaceScore", "Trial", "plan_race", "run_race"]

_MOST = 4  # strategies that race, unless more are asked for
_FEWEST_STEPS = 4  # of a strategy before it is judged for the first time
_ROWS = (96, 384)  # held-out rows: at least, at most
_FORWARD = 1 / 3  # of a training step
_DOUBT = 3.0  # standard errors of a paired difference that leave the choice to the adviser's order


class RaceData(NamedTuple):
    """Batches to train on, and held-out rows that are not in them.

    Batches are whatever the trial trains on; `held` is whatever it embeds, with one label per row.
    """

    batches: Sequence[Any]
    held: Any
    labels: ArrayLike


class Trial(Protocol):
    """A training state that can be copied, restored, trained and evaluated."""

    def batches_taken(self) -> int | None:
        """How many batches have been taken so far; None where they cannot be taken again."""

    def rewind(self, batches_taken: int) -> None:
        """Make the next batch the one that followed so many."""

    def race_data(self, steps: int, rows: int) -> RaceData | None:
        """`steps` batches, fewer if there are no more, and about `rows` held-out rows; or None."""

    def copy_state(self) -> Any:
        """A copy of the present state."""

    def restore(self, state: Any) -> None:
        """Go back to a copied state."""

    def train(self, batch: Any) -> None:
        """One step of the optimiser."""

    def embed(self, held: Any) -> Tensor:
        """Embeddings of held-out rows; the network stays as it is."""


@dataclass(frozen=True)
class RaceScore:
    """R@1 of a strategy on the held-out rows after so many steps; 0 once it has diverged."""

    strategy: str
    steps: int
    recall: float


@dataclass(frozen=True)
class Race:
    """Every score in the order it was measured, and the strategy chosen.

    `spent` is the cost in training steps, evaluation included.
    """

    scores: tuple[RaceScore, ...]
    chosen: str
    rows: int
    spent: float

    @property
    def last(self) -> dict[str, RaceScore]:
        """The last score of each strategy, best first."""
        latest = {score.strategy: score for score in self.scores}
        best = sorted(latest.values(), key=lambda score: (score.steps, score.recall), reverse=True)
        return {score.strategy: score for score in best}

    def __str__(self) -> str:
        parts = [
            f"{name} {score.recall:.1%} after {score.steps}" for name, score in self.last.items()
        ]
        return f"R@1 of {self.rows} held-out rows: {'; '.join(parts)} steps"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a file."""
        scores = [vars(score) for score in self.scores]
        return {"chosen": self.chosen, "rows": self.rows, "spent": self.spent, "laps": scores}

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Race:
        """The inverse of `to_dict`."""
        scores = tuple(RaceScore(**score) for score in given["laps"])
        return cls(scores, given["chosen"], given["rows"], given["spent"])


class RacePlan(NamedTuple):
    """How many strategies train for how many steps before each halving, judged on `rows` rows."""

    strategies: int
    rungs: tuple[int, ...]
    rows: int


def plan_race(
    candidates: int,
    budget: float,
    batch_size: int,
    *,
    most: int = _MOST,
    fewest: int = _FEWEST_STEPS,
) -> RacePlan | None:
    """The race of most strategies that a budget of training steps has room for; None without.

    Each rung gets an equal share of the budget, so that those which stay train for twice as long.
    Judging costs as much as the forward pass of its rows, and comes after `fewest` steps or more.

    >>> plan_race(6, budget=80, batch_size=144), plan_race(6, budget=5, batch_size=144)
    (RacePlan(strategies=4, rungs=(9, 19), rows=288), None)
    """
    rows = min(max(_ROWS[0], 2 * batch_size), _ROWS[1])
    judging = _FORWARD * rows / batch_size
    for count in range(min(candidates, most), 1, -1):
        running, sizes = count, []
        while running > 1:
            sizes.append(running)
            running = math.ceil(running / 2)
        rungs = tuple(int(budget / len(sizes) / size - judging) for size in sizes)
        if rungs[0] >= fewest:
            return RacePlan(count, rungs, rows)
    return None


def run_race(
    trial: Trial,
    candidates: Sequence[Strategy],
    apply: Callable[[Strategy], None],
    plan: RacePlan,
    batch_size: int,
) -> Race | None:
    """Successive halving of `candidates`, best guess first, from the trial's present state.

    The trial ends in the winner's state. Of strategies that three standard errors of the paired
    difference cannot tell apart, the first named wins. None where the trial has no held-out rows;
    it is then unchanged.
    """
    runners = _first_of_each_form(candidates, plan.strategies)
    data = trial.race_data(sum(plan.rungs), plan.rows)
    if data is None:
        return None
    ids = torch.from_numpy(class_ids(data.labels, None)[0])
    states = dict.fromkeys(runners, trial.copy_state())
    scores: list[RaceScore] = []
    done, spent = 0, 0.0
    for steps in plan.rungs:
        hits: dict[Strategy, Tensor] = {}
        for strategy in runners:
            trial.restore(states.pop(strategy))
            apply(strategy)
            for number in range(done, done + steps):
                trial.train(data.batches[number % len(data.batches)])
            states[strategy] = trial.copy_state()
            hits[strategy] = nearest_is_own_class(trial.embed(data.held), ids)
            scores.append(RaceScore(str(strategy), done + steps, float(hits[strategy].mean())))
            spent += steps + _FORWARD * len(ids) / batch_size
        done += steps
        runners = _best(runners, hits, math.ceil(len(runners) / 2))
    (winner,) = runners
    trial.restore(states[winner])
    return Race(tuple(scores), str(winner), len(ids), round(spent, 1))


def nearest_is_own_class(z: Tensor, ids: Tensor) -> Tensor:
    """1.0 for each row whose nearest other row shares its class, else 0.0; ties count against it.

    Rows that are alone in their class are left out. All 0.0 where rows are not finite.

    >>> z = torch.tensor([[0.0], [1.0], [5.0], [5.5], [2.0]])
    >>> nearest_is_own_class(z, torch.tensor([0, 0, 1, 1, 1]))
    tensor([1., 0., 1., 1., 0.], dtype=torch.float64)
    """
    same = ids[:, None] == ids[None, :]
    own = torch.eye(len(ids), dtype=torch.bool)
    several = (same & ~own).any(1)
    if not bool(torch.isfinite(z).all()):
        return torch.zeros(int(several.sum()), dtype=torch.float64)
    distance = pairwise_distances(z.detach().float().cpu())
    near = distance.masked_fill(~same | own, torch.inf).amin(1)
    other = distance.masked_fill(same, torch.inf).amin(1)
    return (near < other)[several].double()


def _first_of_each_form(candidates: Sequence[Strategy], count: int) -> list[Strategy]:
    """The first `count`, scale-free and other ones in turn, so that few still show both forms.

    >>> names = [Strategy("inside", scale_free=True), Strategy("easy", scale_free=True)]
    >>> chosen = _first_of_each_form([*names, Strategy("hard", scale_free=False)], 2)
    >>> [strategy.positives for strategy in chosen]
    ['inside', 'hard']
    """
    free = [strategy for strategy in candidates if strategy.scale_free]
    other = [strategy for strategy in candidates if not strategy.scale_free]
    in_turn = [
        strategy for pair in itertools.zip_longest(free, other) for strategy in pair if strategy
    ]
    return [strategy for strategy in candidates if strategy in in_turn[:count]]


def _best(runners: list[Strategy], hits: dict[Strategy, Tensor], count: int) -> list[Strategy]:
    """The best `count`, in their order; an earlier one wins what chance could decide."""
    left, kept = list(runners), list[Strategy]()
    while len(kept) < count:
        top = max(left, key=lambda strategy: float(hits[strategy].mean()))
        winner = next(strategy for strategy in left if _as_good(hits[strategy], hits[top]))
        kept.append(winner)
        left.remove(winner)
    return [strategy for strategy in runners if strategy in kept]


def _as_good(hits: Tensor, top: Tensor) -> bool:
    gap = top - hits
    error = float(gap.std()) / math.sqrt(len(gap)) if len(gap) > 1 else math.inf
    return float(gap.mean()) <= _DOUBT * error
