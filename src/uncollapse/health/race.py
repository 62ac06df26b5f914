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

__all__ = ["Course", "Lap", "Plan", "Race", "Trial", "found_first", "plan_race", "run_race"]

_MOST = 4  # strategies that race, unless more are asked for
_FEWEST_STEPS = 4  # of a strategy before it is judged for the first time
_ROWS = (96, 384)  # held-out rows: at least, at most
_FORWARD = 1 / 3  # of a training step
_DOUBT = 3.0  # standard errors of a paired difference that leave the choice to the adviser's order


class Course(NamedTuple):
    """What a race runs over: batches to train on, and rows to judge by that are not in them.

    Batches are whatever the trial trains on; `held` whatever it embeds, with one label per row.
    """

    batches: Sequence[Any]
    held: Any
    labels: ArrayLike


class Trial(Protocol):
    """A training state that can be kept, put back, trained and looked at."""

    def place(self) -> int | None:
        """How many batches have been taken so far; None where the batches cannot be had again."""

    def go_back(self, place: int) -> None:
        """Let the next batch be the one that followed so many."""

    def course(self, steps: int, rows: int) -> Course | None:
        """`steps` batches, fewer if there are no more, and about `rows` held-out rows; or None."""

    def keep(self) -> Any:
        """A copy of the state as it is now."""

    def put_back(self, state: Any) -> None:
        """Make a copy the state again."""

    def train(self, batch: Any) -> None:
        """One step of the optimiser."""

    def embed(self, held: Any) -> Tensor:
        """Held-out rows through the network, which stays as it is."""


@dataclass(frozen=True)
class Lap:
    """R@1 of a strategy on the held-out rows after so many steps; 0 once it is lost."""

    strategy: str
    steps: int
    recall: float


@dataclass(frozen=True)
class Race:
    """Every lap in the order it was run, and what was chosen.

    `spent` is the cost in training steps, judging included.
    """

    laps: tuple[Lap, ...]
    chosen: str
    rows: int
    spent: float

    @property
    def last(self) -> dict[str, Lap]:
        """The last lap of each strategy, best first."""
        latest = {lap.strategy: lap for lap in self.laps}
        best = sorted(latest.values(), key=lambda lap: (lap.steps, lap.recall), reverse=True)
        return {lap.strategy: lap for lap in best}

    def __str__(self) -> str:
        said = [f"{name} {lap.recall:.1%} after {lap.steps}" for name, lap in self.last.items()]
        return f"R@1 of {self.rows} held-out rows: {'; '.join(said)} steps"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a file."""
        laps = [vars(lap) for lap in self.laps]
        return {"chosen": self.chosen, "rows": self.rows, "spent": self.spent, "laps": laps}

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Race:
        """The inverse of `to_dict`."""
        laps = tuple(Lap(**lap) for lap in given["laps"])
        return cls(laps, given["chosen"], given["rows"], given["spent"])


class Plan(NamedTuple):
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
) -> Plan | None:
    """The race of most strategies that a budget of training steps has room for; None without.

    Each rung gets an equal share of the budget, so that those which stay train for twice as long.
    Judging costs as much as the forward pass of its rows, and comes after `fewest` steps or more.

    >>> plan_race(6, budget=80, batch_size=144), plan_race(6, budget=5, batch_size=144)
    (Plan(strategies=4, rungs=(9, 19), rows=288), None)
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
            return Plan(count, rungs, rows)
    return None


def run_race(
    trial: Trial,
    candidates: Sequence[Strategy],
    apply: Callable[[Strategy], None],
    plan: Plan,
    batch_size: int,
) -> Race | None:
    """Successive halving of `candidates`, best guess first, from the state the trial is in.

    The trial ends in the state of the winner. Of strategies that three standard errors of the
    paired difference cannot tell apart, the one named first wins. None where the trial has no rows
    to judge by; it is then as it was.
    """
    runners = _chosen(candidates, plan.strategies)
    course = trial.course(sum(plan.rungs), plan.rows)
    if course is None:
        return None
    ids = torch.from_numpy(class_ids(course.labels, None)[0])
    states = dict.fromkeys(runners, trial.keep())
    laps: list[Lap] = []
    done, spent = 0, 0.0
    for steps in plan.rungs:
        seen: dict[Strategy, Tensor] = {}
        for strategy in runners:
            trial.put_back(states.pop(strategy))
            apply(strategy)
            for number in range(done, done + steps):
                trial.train(course.batches[number % len(course.batches)])
            states[strategy] = trial.keep()
            seen[strategy] = found_first(trial.embed(course.held), ids)
            laps.append(Lap(str(strategy), done + steps, float(seen[strategy].mean())))
            spent += steps + _FORWARD * len(ids) / batch_size
        done += steps
        runners = _best(runners, seen, math.ceil(len(runners) / 2))
    (winner,) = runners
    trial.put_back(states[winner])
    return Race(tuple(laps), str(winner), len(ids), round(spent, 1))


def found_first(z: Tensor, ids: Tensor) -> Tensor:
    """1.0 for each row whose nearest other row shares its class, else 0.0; ties count against it.

    Rows that are alone in their class are left out. All 0.0 where rows are not finite.

    >>> z = torch.tensor([[0.0], [1.0], [5.0], [5.5], [2.0]])
    >>> found_first(z, torch.tensor([0, 0, 1, 1, 1]))
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


def _chosen(candidates: Sequence[Strategy], count: int) -> list[Strategy]:
    """The first of them, scale-free and not by turns: where there is room for few, both forms run.

    >>> names = [Strategy("inside", scale_free=True), Strategy("easy", scale_free=True)]
    >>> [one.positives for one in _chosen([*names, Strategy("hard", scale_free=False)], 2)]
    ['inside', 'hard']
    """
    forms = [[one for one in candidates if bool(one.scale_free) is form] for form in (True, False)]
    turns = [one for pair in itertools.zip_longest(*forms) for one in pair if one is not None]
    some = turns[:count]
    return [one for one in candidates if one in some]


def _best(runners: list[Strategy], seen: dict[Strategy, Tensor], count: int) -> list[Strategy]:
    """The best of them, as they were ordered; those named first win what chance could decide."""
    left, kept = list(runners), list[Strategy]()
    while len(kept) < count:
        top = max(left, key=lambda one: float(seen[one].mean()))
        chosen = next(one for one in left if _as_good(seen[one], seen[top]))
        kept.append(chosen)
        left.remove(chosen)
    return [one for one in runners if one in kept]


def _as_good(one: Tensor, top: Tensor) -> bool:
    gap = top - one
    error = float(gap.std()) / math.sqrt(len(gap)) if len(gap) > 1 else math.inf
    return float(gap.mean()) <= _DOUBT * error
