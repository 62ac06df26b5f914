"""Before training: a forecast of a config, and a race of strategies from its first network."""

import csv
import math

import pytest
import torch

from support.configs import small_config
from support.errors import refused
from uncollapse._base.check import InputError
from uncollapse.data import LabelledImages, TensorSource, load
from uncollapse.health import forecast
from uncollapse.losses import CrossBatchMemory, TripletLoss
from uncollapse.mining import Miner
from uncollapse.training import predictions
from uncollapse.training.predictions import forecast_run, race_run, save_rows
from uncollapse.training.session import Session

pytestmark = pytest.mark.slow

HARD = {"positives": "hard", "negatives": "hard"}
LABELS = torch.tensor([3, 70, 71, 200]).repeat_interleave(30)  # names of their own


def config(**changes):
    base = {"batch": {"p": 5, "k": 8}, "mining": HARD, "optimizer": {"lr": 0.01}}
    return small_config(**{**base, "train": {"steps": 400}, **changes})


@pytest.fixture
def drawn(monkeypatch):
    """Random samples of four classes stand in for the dataset of a config."""
    samples = torch.randn(len(LABELS), 6, generator=torch.Generator().manual_seed(0))
    data = LabelledImages(TensorSource(samples), LABELS, name="drawn")
    monkeypatch.setattr(predictions, "load_eval_data", lambda *_: data)
    return data


def test_a_forecast_probes_with_the_optimizer_of_the_run(drawn):
    def predicted(**optimizer):
        cells = forecast_run(config(optimizer=optimizer), [4], [4], probe_steps=20).cells
        return cells[0].probe.scale_factor

    adam, sgd = (predicted(name=name, lr=0.01) for name in ("adam", "sgd"))
    assert adam < sgd
    assert predicted(name="sgd", lr=0.01, clip=1e-6) == pytest.approx(1.0, abs=0.1)
    warming = predicted(name="adam", lr=0.01, warmup=400)
    assert warming != adam


@pytest.mark.parametrize("more", [{}, {"trim": 0.5}])
def test_a_forecast_has_a_classifier_of_the_width_asked_for(drawn, more):
    seen, given = [], config(loss={"identity": {}, **more})
    cells = forecast_run(
        given, [2, 4], [4], [8], probe_steps=10, progress=lambda *at: seen.append(at)
    )
    assert [(cell.p, cell.dim) for cell in cells.cells] == [(2, 8), (4, 8)]
    assert all(cell.probe is not None for cell in cells.cells)
    assert {cell.dim for cell in cells.alternatives} == {8}
    assert seen == [(1, 2), (2, 2)]
    with pytest.raises(InputError, match="one dimension at a time"):
        forecast_run(given, [2], [4], [4, 8])


def test_a_trimmed_triplet_loss_can_be_forecast_and_other_losses_cannot(drawn):
    trimmed, plain = (
        [cell.drift for cell in forecast_run(config(loss=loss), [4], [4], [4, 8]).cells]
        for loss in ({"trim": 1.0}, {})
    )
    assert trimmed == pytest.approx(plain, rel=1e-4)
    with refused("loss.name"):
        forecast_run(config(loss={"name": "contrastive", "identity": {}}), [4], [4])


def test_a_forecast_is_of_a_full_memory_and_grows_with_it(drawn):
    drifts = []
    for memory in (None, {"size": 40}, {"size": 100}):
        (cell,) = forecast_run(config(loss={"memory": memory}), [4], [3], probe_steps=10).cells
        assert cell.probe is not None
        drifts.append(cell.drift)
    assert drifts[0] < drifts[1] < drifts[2]  # HNM §3.3: more rows to mine over
    loss = CrossBatchMemory(TripletLoss(margin=0.2, miner=Miner("hard", "hard")), 60)
    forecast(torch.nn.Linear(6, 4), drawn, [4], [3], loss_fn=loss, probe_steps=10)
    assert (len(loss.memory), int(loss.calls), loss.training) == (0, 0, True)  # nothing is kept


# A race: a run's own strategy and the adviser's, from its untrained network.


@pytest.fixture(scope="module")
def raced():
    return race_run(config())


def named(result):
    return {str(entrant.strategy): entrant for entrant in result.entrants}


def test_the_winner_of_a_shrinking_strategy_is_an_alternative_and_its_keys_are_given(raced):
    own = named(raced)[str(raced.own)]
    assert str(raced.own) == str(own.strategy) == "hard x hard"
    assert own.drift > 0.25
    assert own.result == "out"
    assert raced.winner != raced.own
    assert raced.changes
    assert set(raced.changes) <= {"mining.positives", "mining.negatives", "loss.scale_free"}
    assert raced.race.chosen == str(raced.winner) == str(raced.entrants[0].strategy)


def test_a_race_costs_no_more_than_its_budget_and_a_larger_one_has_room_for_all(raced):
    assert raced.race.spent <= 40  # a tenth of the run
    larger = race_run(config(), steps=600)
    assert 40 < larger.race.spent <= 600
    assert {entrant.result for entrant in larger.entrants} == {"wins", "out", "shrinks"}
    assert len(larger.race.last) > 4
    steps = [max(score.steps for score in each.race.scores) for each in (raced, larger)]
    assert steps[0] < steps[1]


def test_strategies_that_shrink_do_not_race_except_the_own(raced):
    for name, entrant in named(raced).items():
        if entrant.drift > 0.02 and name != "hard x hard":
            values = (entrant.result, entrant.steps, entrant.recall, entrant.scale)
            assert values == ("shrinks", None, None, None)
    ran = [entrant for entrant in raced.entrants if entrant.steps is not None]
    assert {str(entrant.strategy) for entrant in ran} == set(raced.race.last)
    assert all(0 <= entrant.recall <= 1 and entrant.scale > 0 for entrant in ran)
    idle = [entrant for entrant in raced.entrants if entrant.result == "no room"]
    assert idle
    assert all(entrant.drift <= 0.02 for entrant in idle)
    # A short race is run by strategies with other positives only.
    others = [entrant.strategy for entrant in ran if entrant.strategy != raced.own]
    assert all(each.positives != "hard" and each.negatives == "hard" for each in others)


def test_the_own_strategy_wins_what_chance_could_decide_if_it_does_not_shrink():
    # With a rate that changes nothing all embed the rows alike.
    still = {"optimizer": {"lr": 1e-12}}
    safe = race_run(config(mining={"positives": "easy", "negatives": "semihard"}, **still))
    assert named(safe)[str(safe.own)].drift <= 0.02
    assert safe.winner == safe.own
    assert safe.changes == {}
    assert {score.recall for score in safe.race.scores} == {safe.race.start}
    left = [entrant.scale for entrant in safe.entrants if entrant.scale is not None]
    assert left == pytest.approx([1.0] * len(left), abs=1e-6)
    shrinking = race_run(config(**still))
    assert shrinking.winner != shrinking.own


def test_the_same_config_gives_the_same_race_and_torch_draws_on_as_before(raced):
    torch.manual_seed(7)
    expected, told = torch.get_rng_state(), []
    again = race_run(config(), progress=lambda *pair: told.append(pair))
    assert torch.equal(torch.get_rng_state(), expected)
    assert again == raced
    assert told == [(done, len(told)) for done in range(1, len(told) + 1)]
    assert len(told) < again.race.spent


def test_each_step_of_the_race_has_the_rate_that_the_run_has_there(monkeypatch):
    seen, train_on = [], Session.train_on

    def spy(self, images, rows):
        seen.append(self.optimizer.param_groups[0]["lr"])
        return train_on(self, images, rows)

    monkeypatch.setattr(Session, "train_on", spy)
    warming = {"optimizer": {"lr": 0.01, "warmup": 1000}}
    first = race_run(config(**warming)).race.scores[0].steps
    run = Session(config(guard={"action": "off"}, **warming), load("digits", split="train"))
    in_the_race, seen[:] = seen[:first], []
    for _ in range(first):
        run.advance()
    assert in_the_race == seen
    assert in_the_race[0] == pytest.approx(1e-5)


def test_strategies_race_before_training_with_a_memory(raced):
    own = named(race_run(config(loss={"memory": {"size": 100}})))["hard x hard"]
    assert own.drift > named(raced)["hard x hard"].drift


@pytest.mark.parametrize(
    ("changes", "steps", "key"),
    [
        ({}, 5, "--race-steps"),
        ({"train": {"steps": 50}}, None, "--race-steps"),
        ({}, 0, "steps"),
        ({"loss": {"name": "sup-con"}, "mining": {}}, 40, "loss.name"),
        ({"loss": {"name": "margin", "beta_per": "sample"}}, 40, "loss.beta_per"),
    ],
)
def test_a_race_that_cannot_be_run_is_refused_by_its_key(changes, steps, key):
    with refused(key):
        race_run(config(**changes), steps=steps)


def test_the_least_budget_that_is_named_has_room():
    with pytest.raises(InputError, match="at least 11, room for two"):
        race_run(config(), steps=10)
    assert len(race_run(config(), steps=11).race.last) == 2


def test_the_table_is_saved_as_csv(raced, tmp_path):
    path = save_rows(tmp_path / "race.csv", [vars(entrant) for entrant in raced.entrants])
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["strategy"] for row in rows] == [str(each.strategy) for each in raced.entrants]
    assert rows[0]["result"] == "wins"
    assert math.isclose(float(rows[0]["recall"]), raced.entrants[0].recall)
    assert rows[-1]["recall"] == ""
