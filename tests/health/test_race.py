"""Races of strategies: what they cost, who wins, and in which state they end."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uncollapse.health.race import (
    Race,
    RaceData,
    RaceScore,
    nearest_is_own_class,
    plan_race,
    run_race,
)
from uncollapse.health.strategy import Strategy

IDS = torch.arange(100) % 10
NAMES = [
    Strategy("inside", "hard", scale_free=True),
    Strategy("easy", "hard", scale_free=True),
    Strategy("inside", "hard", scale_free=False),
    Strategy("easy", "hard", scale_free=False),
    Strategy("hard", "semihard", scale_free=False),
]


class Toy:
    """A state that is a number of steps under a strategy; R@1 is what the strategy is worth."""

    def __init__(self, worth: dict[Strategy, float], rows: int = 100) -> None:
        self.worth, self.rows = worth, rows
        self.strategy: Strategy | None = None
        self.steps: dict[Strategy | None, int] = {}
        self.state: tuple[Strategy | None, int] = (None, 0)
        self.batches: list[tuple[Strategy | None, int]] = []

    def apply(self, strategy: Strategy) -> None:
        self.state = (strategy, self.state[1])

    def race_data(self, steps: int, rows: int) -> RaceData | None:
        return RaceData(list(range(steps)), None, IDS) if self.rows else None

    def copy_state(self) -> tuple[Strategy | None, int]:
        return self.state

    def restore(self, state: tuple[Strategy | None, int]) -> None:
        self.state = state

    def train(self, batch: int) -> None:
        self.batches.append((self.state[0], batch))
        self.state = (self.state[0], self.state[1] + 1)

    def embed(self, held: None) -> torch.Tensor:
        """Rows at their class, but for a share of them that sits beside a row of another."""
        row = torch.arange(len(IDS))
        right = row < round(self.worth[self.state[0]] * len(IDS))
        return torch.where(right, 10.0 * IDS, 1000.0 + 10 * (row // 2) + 0.1 * (row % 2))[:, None]


def race(worth: list[float], budget: float = 80.0) -> tuple[Toy, Race]:
    toy = Toy(dict(zip(NAMES, worth, strict=True)))
    plan = plan_race(len(NAMES), budget, 144)
    found = run_race(toy, NAMES, toy.apply, plan, 144)
    assert found is not None
    return toy, found


def test_the_strategy_that_retrieves_best_wins_and_leaves_its_state():
    toy, found = race([0.3, 0.2, 0.9, 0.4, 0.5])
    assert found.chosen == "inside x hard"
    plan = plan_race(5, 80.0, 144)
    assert toy.state == (NAMES[2], sum(plan.rungs))


def test_all_train_on_the_same_batches_in_the_same_order():
    toy, _ = race([0.3, 0.2, 0.9, 0.4, 0.5])
    first = plan_race(5, 80.0, 144).rungs[0]
    by_strategy: dict[Strategy, list[int]] = {}
    for strategy, batch in toy.batches:
        by_strategy.setdefault(strategy, []).append(batch)
    assert len(by_strategy) == 4
    for batches in by_strategy.values():
        assert batches == list(range(len(batches)))
        assert len(batches) >= first


def test_what_chance_could_decide_goes_to_the_adviser_s_first_choice():
    _, near = race([0.60, 0.61, 0.60, 0.61, 0.0])
    assert near.chosen == "inside x hard, scale-free"
    _, far = race([0.40, 0.61, 0.40, 0.40, 0.0])
    assert far.chosen == "easy x hard, scale-free"


def test_a_race_without_rows_to_judge_by_is_not_run_and_changes_nothing():
    toy = Toy(dict.fromkeys(NAMES, 0.5), rows=0)
    assert run_race(toy, NAMES, toy.apply, plan_race(5, 80, 144), 144) is None
    assert toy.state == (None, 0)
    assert toy.batches == []


@given(
    candidates=st.integers(2, 9),
    budget=st.floats(0, 2000),
    batch=st.integers(4, 1024),
)
def test_a_plan_stays_within_its_budget(candidates: int, budget: float, batch: int):
    plan = plan_race(candidates, budget, batch)
    if plan is None:
        assert budget < 2 * (5 + max(96, 2 * batch) / 3 / batch) + 1e-9
        return
    assert 2 <= plan.strategies <= min(candidates, 4)
    running, cost = plan.strategies, 0.0
    for steps in plan.rungs:
        assert steps >= 4
        cost += running * (steps + plan.rows / 3 / batch)
        running = math.ceil(running / 2)
    assert running == 1
    assert cost <= budget + 1e-6


def test_few_rows_of_the_budget_let_both_forms_of_the_loss_run():
    toy = Toy(dict.fromkeys(NAMES, 0.5))
    plan = plan_race(5, 20.0, 144)
    assert plan.strategies == 2
    found = run_race(toy, NAMES, toy.apply, plan, 144)
    assert {score.strategy for score in found.scores} == {
        "inside x hard, scale-free",
        "inside x hard",
    }


def test_r_at_1_counts_ties_against_and_leaves_single_rows_out():
    z = torch.tensor([[0.0], [0.0], [0.0], [9.0]])
    assert nearest_is_own_class(z, torch.tensor([0, 0, 1, 2])).tolist() == [0.0, 0.0]
    lost = torch.full((4, 1), math.nan)
    assert nearest_is_own_class(lost, torch.tensor([0, 0, 1, 1])).tolist() == [0.0] * 4


def test_r_at_1_is_that_of_a_loop():
    generator = torch.Generator().manual_seed(0)
    z, ids = torch.randn(60, 3, generator=generator), torch.arange(60) % 7
    hits = []
    for row in range(60):
        others = [other for other in range(60) if other != row]
        nearest = min(others, key=lambda other: float((z[row] - z[other]).norm()))
        hits.append(float(ids[nearest] == ids[row]))
    assert nearest_is_own_class(z, ids).tolist() == hits


def test_a_race_survives_a_file_and_says_what_it_found():
    _, found = race([0.3, 0.2, 0.9, 0.4, 0.5])
    assert Race.from_dict(found.to_dict()) == found
    assert "R@1 of 100 held-out rows: inside x hard 90.0% after 28; " in str(found)
    assert next(iter(found.last)) == "inside x hard"
    assert found.scores[0] == RaceScore("inside x hard, scale-free", 9, pytest.approx(0.3))
