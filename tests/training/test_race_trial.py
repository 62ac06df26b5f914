"""Races inside a run: its own batches and steps, rows held out of them, and the line in its log."""

import copy
from dataclasses import replace

import numpy as np
import torch

from uncollapse.data import load
from uncollapse.health.race import Race
from uncollapse.training import parse_config
from uncollapse.training.session import Session, SessionTrial, held_out

VALUES = {
    "data": {"name": "digits"},
    "model": {"backbone": "mlp", "dim": 8, "hidden": [32]},
    "batch": {"p": 10, "k": 8},
    "mining": {"positives": "hard", "negatives": "hard"},
    "guard": {"action": "rescue", "every": 5},
    "train": {"steps": 600},
}


def mislabelled():
    """Half of the labels drawn anew: batch-hard collapses on them."""
    data = load("digits", split="train")
    drawn = torch.Generator().manual_seed(0)
    other = torch.randint(10, (len(data),), generator=drawn)
    wrong = torch.rand(len(data), generator=drawn) < 0.5
    return replace(data, labels=torch.where(wrong, other, data.labels))


def session(**changes):
    values = {**VALUES, **{k: {**VALUES.get(k, {}), **v} for k, v in changes.items()}}
    return Session(parse_config(values), mislabelled())


def until_rescue(one: Session, most: int = 120):
    for _ in range(most):
        values = one.advance()
        if "race" in values:
            return values
    raise AssertionError("no race was run")


def test_a_rescue_in_a_run_logs_its_race():
    one = session()
    values = until_rescue(one)
    race = Race.from_dict(values["race"])
    assert race.chosen == str(one.guard.strategy)
    assert race.chosen in values["event"]
    assert race.spent <= 60
    assert race.rows >= 48
    assert one.guard.events[-1].race == race


def test_a_rescued_run_takes_the_batches_again_that_its_weights_have_not_seen():
    one = session()
    values = until_rescue(one)
    back = int(values["event"].split("Rolled back to step ")[1].split(";")[0])
    race = Race.from_dict(values["race"])
    assert back < one.step
    assert one.stream.place == back + max(score.steps for score in race.scores)


def test_a_race_can_be_switched_off():
    one = session(guard={"race": False})
    for _ in range(120):
        one.advance()
    rescues = [event for event in one.guard.events if event.kind == "rescue"]
    assert rescues
    assert all(event.race is None for event in rescues)


def test_a_run_saved_after_its_race_goes_on_as_it_would_have():
    whole = session()
    until_rescue(whole)
    saved = copy.deepcopy(whole.checkpoint())
    again = session()
    again.restore(saved)
    for _ in range(10):
        assert whole.advance() == again.advance()
    assert again.guard.events == whole.guard.events


def test_a_course_keeps_no_more_batches_than_memory_has_room_for(monkeypatch):
    (size,) = {images.nbytes for images, _ in SessionTrial(session()).race_data(2, 96).batches}
    for room, kept in ((3 * size + 1, 3), (size // 2, 1), (9 * size, 5)):
        monkeypatch.setattr("uncollapse.training.session._BYTES", room)
        assert len(SessionTrial(session()).race_data(5, 96).batches) == kept


def test_a_course_has_the_next_batches_and_rows_that_are_in_none_of_them():
    one, twin = session(), session()
    data = SessionTrial(one).race_data(3, 96)
    ahead = [twin.take_batch() for _ in range(3)]
    for (images, rows), (expected, same) in zip(data.batches, ahead, strict=True):
        assert torch.equal(images, expected)
        assert torch.equal(rows, same)
    assert one.stream.place == 3
    seen = torch.cat([images.flatten(1) for images, _ in data.batches])
    assert not (data.held.flatten(1)[:, None] == seen[None]).all(2).any()
    assert len(data.held) == len(data.labels)


def test_a_trial_is_a_step_of_the_run():
    one, twin = session(guard={"action": "off"}), session(guard={"action": "off"})
    trial = SessionTrial(one)
    for _ in range(3):
        trial.train(one.take_batch())
        twin.advance()
    pairs = zip(one.model.parameters(), twin.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_held_out_rows_fall_back_to_seen_ones_where_every_row_was_in_a_batch():
    ids = np.arange(60) % 5
    rows = held_out(ids, np.arange(60), 30, np.random.default_rng(0))
    assert len(rows) == 30
    assert np.bincount(ids[rows])[np.unique(ids[rows])].min() > 1


def test_held_out_rows_have_company_in_their_class():
    ids = np.r_[np.arange(300) // 2, np.arange(150, 250)]  # pairs, then rows that are alone
    rows = held_out(ids, np.array([0, 1]), 96, np.random.default_rng(0))
    assert len(rows) <= 96
    assert (np.bincount(ids[rows])[ids[rows]] > 1).mean() > 0.9
    assert not {0, 1} & set(rows.tolist())
