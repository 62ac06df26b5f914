"""A race before training: who takes part, what they train on, what is chosen and what is left."""

import csv
import math
from pathlib import Path

import pytest
import torch

from uncollapse._base.check import InputError
from uncollapse.data import load
from uncollapse.health.race import plan_race
from uncollapse.training import parse_config
from uncollapse.training.predictions import race_run, save_rows
from uncollapse.training.session import Session

VALUES = {
    "data": {"name": "digits"},
    "model": {"backbone": "mlp", "dim": 4, "hidden": [16]},
    "batch": {"p": 5, "k": 8},
    "mining": {"positives": "hard", "negatives": "hard"},
    "optimizer": {"lr": 0.01},
    "train": {"steps": 400},
}


def config(**changes):
    return parse_config({**VALUES, **{k: {**VALUES.get(k, {}), **v} for k, v in changes.items()}})


def named(found):
    return {str(one.strategy): one for one in found.entrants}


@pytest.fixture(scope="module")
def raced():
    return race_run(config())


def test_the_winner_of_a_shrinking_strategy_is_an_alternative_and_its_keys_are_told(raced):
    own = named(raced)[str(raced.own)]
    assert str(raced.own) == str(own.strategy) == "hard x hard"
    assert own.drift > 0.25
    assert own.result == "out"
    assert raced.winner != raced.own
    assert raced.changes
    assert set(raced.changes) <= {"mining.positives", "mining.negatives", "loss.scale_free"}
    assert raced.race.chosen == str(raced.winner) == str(raced.entrants[0].strategy)


def test_a_race_costs_no_more_than_a_tenth_of_the_run(raced):
    assert raced.race.spent <= 40
    asked = race_run(config(), steps=90)
    assert 40 < asked.race.spent <= 90
    scores = [max(score.steps for score in one.race.scores) for one in (raced, asked)]
    assert scores[0] < scores[1]


def test_strategies_that_shrink_do_not_race_except_the_own(raced):
    for name, one in named(raced).items():
        if one.drift > 0.02 and name != "hard x hard":
            assert (one.result, one.steps, one.recall, one.scale) == ("shrinks", *[None] * 3)
    ran = [one for one in raced.entrants if one.steps is not None]
    assert {str(one.strategy) for one in ran} == set(raced.race.last)
    assert all(0 <= one.recall <= 1 and one.scale > 0 for one in ran)
    assert "no room" in {one.result for one in raced.entrants}
    assert all(one.drift <= 0.02 for one in raced.entrants if one.result == "no room")


def test_all_that_do_not_shrink_race_where_the_budget_has_room():
    found = race_run(config(), steps=600)
    assert {one.result for one in found.entrants} == {"wins", "out", "shrinks"}
    assert len(found.race.last) > 4


def test_a_short_race_is_run_by_strategies_with_other_positives_only(raced):
    ran = [one.strategy for one in raced.entrants if one.steps and one.strategy != raced.own]
    assert all((one.positives, one.negatives) != ("hard", "hard") for one in ran)
    assert all(one.negatives == "hard" for one in ran)


def test_the_own_strategy_wins_what_chance_could_decide_if_it_does_not_shrink():
    # With a rate that changes nothing all embed the rows alike.
    still = {"optimizer": {"lr": 1e-12}}
    safe = race_run(config(mining={"positives": "easy", "negatives": "semihard"}, **still))
    assert named(safe)[str(safe.own)].drift <= 0.02
    assert safe.winner == safe.own
    assert safe.changes == {}
    assert {score.recall for score in safe.race.scores} == {safe.start}
    left = [one.scale for one in safe.entrants if one.scale is not None]
    assert left == pytest.approx([1.0] * len(left), abs=1e-6)
    shrinking = race_run(config(**still))
    assert shrinking.winner != shrinking.own


def test_the_same_config_gives_the_same_race_and_torch_draws_on_as_before(raced):
    torch.manual_seed(7)
    expected = torch.get_rng_state()
    again = race_run(config())
    assert torch.equal(torch.get_rng_state(), expected)
    assert again == raced


def test_each_step_of_the_race_has_the_rate_that_the_run_has_there(monkeypatch):
    seen, train_on = [], Session.train_on

    def spy(self, images, rows):
        seen.append(self.optimizer.param_groups[0]["lr"])
        return train_on(self, images, rows)

    monkeypatch.setattr(Session, "train_on", spy)
    changes = {
        "optimizer": {"lr": 0.01, "warmup": 1000},
        "mining": {"positives": "hard", "negatives": "hard"},
    }
    found = race_run(config(**changes))
    first = found.race.scores[0].steps
    run = Session(config(guard={"action": "off"}, **changes), load("digits", split="train"))
    raced, seen[:] = seen[:first], []
    for _ in range(first):
        run.advance()
    assert raced == seen
    assert raced[0] == pytest.approx(1e-5)


def test_progress_ends_at_the_number_of_steps_that_were_trained():
    told = []
    found = race_run(config(), progress=lambda *pair: told.append(pair))
    done = [pair[0] for pair in told]
    assert done == list(range(1, len(told) + 1))
    assert {pair[1] for pair in told} == {len(told)}
    assert len(told) < found.race.spent


@pytest.mark.parametrize(
    ("changes", "steps", "message"),
    [
        ({}, 5, r"--race-steps: expected at least 10, room for two strategies, got 5$"),
        ({"train": {"steps": 50}}, None, r"--race-steps: .* got 5, a tenth of train\.steps"),
        ({}, 0, r"steps: expected"),
        (
            {"loss": {"name": "sup-con"}, "mining": {"positives": None, "negatives": None}},
            40,
            r"loss\.name: expected a loss whose mining or form has alternatives, got 'sup-con'",
        ),
        ({"loss": {"name": "margin", "beta_per": "sample"}}, 40, r"loss\.beta_per"),
    ],
)
def test_a_race_that_cannot_be_run_is_refused_with_a_reason(changes, steps, message):
    with pytest.raises(InputError, match=message):
        race_run(config(**changes), steps=steps)


def test_the_least_budget_that_is_named_has_room():
    assert plan_race(2, 10, 40) is not None
    assert plan_race(2, 9, 40) is None
    assert len(race_run(config(), steps=10).race.last) == 2


def test_the_table_is_saved_as_csv(raced, tmp_path: Path):
    path = save_rows(tmp_path / "race.csv", [vars(entrant) for entrant in raced.entrants])
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["strategy"] for row in rows] == [str(one.strategy) for one in raced.entrants]
    assert rows[0]["result"] == "wins"
    assert math.isclose(float(rows[0]["recall"]), raced.entrants[0].recall)
    assert rows[-1]["recall"] == ""
