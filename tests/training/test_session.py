"""A run in memory: its batches, its steps, what is saved of it, and races inside it."""

import copy
import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from support.configs import small_config
from uncollapse._base.check import InputError
from uncollapse.data import LabelledImages, TensorSource, load
from uncollapse.health import drift
from uncollapse.health.race import Race
from uncollapse.losses import IdentityLoss
from uncollapse.losses.memory import memories
from uncollapse.samplers import PKSampler
from uncollapse.training.distributed import ALONE, Ranks
from uncollapse.training.session import Session, SessionTrial, batches_from, held_out

DATA = load("digits", split="train")
RANDOM = {"positives": "random", "negatives": "random"}
HARD = {"positives": "hard", "negatives": "hard"}
RESCUED = {
    "mining": HARD,
    "guard": {"action": "rescue", "every": 2},
    "optimizer": {"lr": 0.01, "loss_lr": 0.1, "warmup": 8},
    "train": {"steps": 12, "log_every": 2},
}
MEMORY = {"memory": {"size": 50}}
RACING_MEMORY = {"memory": {"size": 100}}
LOSSES = {
    "plain": {},
    "classifier": {"identity": {"label_smoothing": 0.1}},
    "all of them": {"trim": 0.8, "identity": {"neck": "batch-norm"}, **MEMORY},
    "memory": MEMORY,
}


def session(ranks=Ranks(), **changes):  # noqa: B008 (it is frozen)
    settings = {"mining": RANDOM, "guard": {"every": 2}, "train": {"steps": 12, "log_every": 2}}
    return Session(small_config(2, **{**settings, **changes}), DATA, ranks)


def advanced(steps, **changes):
    run = session(**changes)
    for _ in range(steps):
        run.advance()
    return run


def same_weights(first, second):
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


# Batches without end: the same ones from any place, with workers or without, on any rank.

NUMBERS = LabelledImages(TensorSource(torch.arange(24.0)[:, None]), torch.arange(24) % 4)


def numbered(place=0, count=5, workers=0, ranks=ALONE):
    sampler = PKSampler(NUMBERS.label_index, 2, 3, seed=5)
    assert len(sampler) < 9  # some places lie in later epochs
    return list(itertools.islice(batches_from(place, NUMBERS, sampler, workers, ranks), count))


@pytest.mark.parametrize("place", [1, 3, 4, 9])
def test_batches_from_a_place_are_those_of_a_run_that_came_there(place):
    for (images, rows), (_, expected) in zip(
        numbered(place, 3), numbered(count=place + 3)[place:], strict=True
    ):
        assert torch.equal(rows, expected)
        assert images[:, 0].tolist() == rows.tolist()


def test_ranks_know_the_whole_batch_and_read_their_share():
    shares = [numbered(count=1, ranks=Ranks(rank, 2))[0] for rank in range(2)]
    ((_, whole), *_, (_, other)) = numbered(count=5)
    assert not torch.equal(whole, other)  # of the next epoch
    assert all(torch.equal(rows, whole) for _, rows in shares)
    assert torch.cat([images[:, 0] for images, _ in shares]).tolist() == whole.tolist()


def test_a_step_moves_the_weights_and_gives_its_loss():
    run, first = session(), session()
    values = run.advance()
    assert (run.step, run.place) == (1, 1)
    assert values.keys() == {"loss"}
    assert not same_weights(run.model, first.model)
    assert run.advance().keys() >= {"loss", "diameter", "lr"}  # every second step is logged


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_restored_session_goes_on_exactly(loss):
    changes = {"loss": loss, "optimizer": {"schedule": "cosine", "warmup": 2}}
    whole = advanced(3, **changes)
    saved = copy.deepcopy(whole.checkpoint())  # as on disk: it must not move with the session
    state = torch.get_rng_state()
    torch.manual_seed(99)
    again = session(**changes)
    again.restore(saved)
    assert torch.equal(torch.get_rng_state(), state)
    later = [again.advance() for _ in range(3)]
    torch.set_rng_state(state)
    assert [whole.advance() for _ in range(3)] == later
    assert same_weights(whole.model, again.model)
    assert same_weights(whole.loss, again.loss)
    for memory, other in zip(memories(whole.loss), memories(again.loss), strict=True):
        assert torch.equal(memory.memory, other.memory)


def test_gradients_are_clipped():
    def norm(run):
        return float(torch.cat([p.grad.flatten() for p in run.model.parameters()]).norm())

    assert norm(advanced(1, optimizer={"clip": 1e-9})) <= 1e-9 * 1.001
    assert norm(advanced(1)) > 1e-6


def test_a_batch_smaller_than_the_number_of_ranks_is_refused():
    with pytest.raises(InputError, match=r"at least one sample for each of 3"):
        session(Ranks(0, 3), batch={"p": 1, "k": 2})


def test_without_a_guard_nothing_is_watched():
    run = advanced(1, guard={"action": "off"})
    assert run.guard is None
    assert not run.stopped
    assert "verdict" not in run.advance()


# A classifier and a memory beside the loss: trained, rolled back, known to the guard.


@pytest.mark.slow
def test_a_guarded_run_learns_to_classify():
    run = session(**{**RESCUED, "loss": LOSSES["classifier"], "train": {"steps": 60}})
    assert isinstance(run.loss, IdentityLoss)
    values = [run.advance()["loss"] for _ in range(60)]
    assert sum(values[-10:]) < 0.8 * sum(values[:10])
    with torch.no_grad():
        z = run.model(DATA[torch.arange(300)][0])
        right = (z @ run.loss.classifier.T).argmax(1) == run.class_of[:300]
    assert float(right.float().mean()) > 0.4  # 0.1 is chance


def test_a_rescue_takes_classifier_and_memory_back_and_lowers_the_warming_rate():
    run = session(loss={"identity": {}, **MEMORY}, **RESCUED)
    first = run.loss.classifier.detach().clone()
    for _ in range(5):
        run.advance()
    (memory,) = memories(run.loss)
    assert len(memory.memory) == 50
    assert not torch.equal(run.loss.classifier, first)
    assert run.rescue_lost() is not None  # to the copy that was made before the first step
    assert torch.equal(run.loss.classifier, first)
    assert len(memory.memory) == 0
    factor = run.guard.lr_factor
    assert factor < 1
    rates = []  # inside the optimizer's step
    run.optimizer.register_step_pre_hook(
        lambda optimizer, *_: rates.extend(group["lr"] for group in optimizer.param_groups)
    )
    for step in range(5, 12):
        assert np.isfinite(run.advance()["loss"])
        warm = min(1.0, (step + 1) / 8)
        assert rates[-2:] == pytest.approx([0.01 * warm * factor, 0.1 * warm * factor])


def test_a_memory_knows_its_samples_and_is_part_of_the_drift():
    run = advanced(3, **RESCUED, loss=MEMORY)
    (memory,) = memories(run.loss)
    assert len(memory.memory) == 36
    assert torch.equal(memory.memory_labels, run.class_of[memory.memory_ids])
    before = run.loss.kept()
    run.guard._candidates()  # a look at drifts leaves the memory alone
    assert all(torch.equal(before[name], value) for name, value in run.loss.kept().items())
    images, rows = run.take_batch()
    z, labels = run.forward(images).detach(), run.class_of[rows]
    with_memory = drift(run.loss, z, labels).value
    run.loss.reset()
    assert drift(run.loss, z, labels).value < with_memory


@pytest.mark.parametrize(
    ("changes", "rows"),
    [({}, 12), ({"loss": MEMORY}, 50), ({"loss": MEMORY, "mining": {**HARD, "pool": 20}}, 20)],
)
def test_the_monitor_knows_how_many_rows_are_mined_over(changes, rows):
    assert session(**{**RESCUED, **changes}).guard.monitor.settings.mined_over == rows


# Races inside a run: its own batches and steps, rows held out of them, and the line in its log.


def racing(**changes):
    """Half of the labels drawn anew: batch-hard collapses on them."""
    drawn = torch.Generator().manual_seed(0)
    other = torch.randint(10, (len(DATA),), generator=drawn)
    wrong = torch.rand(len(DATA), generator=drawn) < 0.5
    settings = {"model": {"dim": 8, "hidden": [32]}, "batch": {"p": 10, "k": 8}, "mining": HARD}
    settings |= {"guard": {"action": "rescue", "every": 5}, "train": {"steps": 600}}
    config = small_config(**{**settings, **changes})
    return Session(config, replace(DATA, labels=torch.where(wrong, other, DATA.labels)))


@pytest.fixture(scope="module")
def rescued():
    """A session with a memory that has just raced, the line it logged, and its state then."""
    run = racing(loss=RACING_MEMORY)
    for _ in range(120):
        values = run.advance()
        if "race" in values:
            return run, values, copy.deepcopy(run.checkpoint())
    raise AssertionError("no race was run")


@pytest.mark.slow
def test_a_rescue_in_a_run_logs_its_race_and_takes_unseen_batches_again(rescued):
    run, values, saved = rescued
    race = Race.from_dict(values["race"])
    assert race.chosen == str(run.guard.strategy)
    assert race.chosen in values["event"]
    assert race.spent <= 60
    assert race.rows >= 48
    assert run.guard.events[-1].race == race
    back = int(values["event"].split("Rolled back to step ")[1].split(";")[0])
    assert back < saved.step
    steps = max(score.steps for score in race.scores)
    assert saved.state["place"] == back + steps
    (memory,) = memories(run.loss)
    assert int(memory.calls) == back + steps  # its own steps since the copy, and no other's


@pytest.mark.slow
def test_a_run_saved_after_its_race_goes_on_as_it_would_have(rescued):
    run, _, saved = rescued
    again = racing(loss=RACING_MEMORY)
    again.restore(saved)
    for _ in range(5):
        assert run.advance() == again.advance()
    assert again.guard.events == run.guard.events


@pytest.mark.slow
def test_a_race_can_be_switched_off():
    run = racing(guard={"action": "rescue", "every": 5, "race": False})
    while not any(event.kind == "rescue" for event in run.guard.events):
        assert run.step < 120
        run.advance()
    assert all(event.race is None for event in run.guard.events)


def test_a_race_keeps_no_more_batches_than_memory_has_room_for(monkeypatch):
    (size,) = {images.nbytes for images, _ in SessionTrial(racing()).race_data(2, 96).batches}
    for room, kept in ((3 * size + 1, 3), (size // 2, 1), (9 * size, 5)):
        monkeypatch.setattr("uncollapse.training.session._BYTES", room)
        assert len(SessionTrial(racing()).race_data(5, 96).batches) == kept


def test_a_race_has_the_next_batches_and_rows_that_are_in_none_of_them():
    run, twin = racing(), racing()
    data = SessionTrial(run).race_data(3, 96)
    for (images, rows), (expected, same) in zip(
        data.batches, [twin.take_batch() for _ in range(3)], strict=True
    ):
        assert torch.equal(images, expected)
        assert torch.equal(rows, same)
    assert run.place == 3
    seen = torch.cat([images.flatten(1) for images, _ in data.batches])
    assert not (data.held.flatten(1)[:, None] == seen[None]).all(2).any()
    assert len(data.held) == len(data.labels)


def test_a_trial_is_a_step_of_the_run():
    run, twin = racing(guard={"action": "off"}), racing(guard={"action": "off"})
    for _ in range(3):
        SessionTrial(run).train(run.take_batch())
        twin.advance()
    assert same_weights(run.model, twin.model)


def test_held_out_rows_have_company_in_their_class_and_are_unseen_where_that_can_be():
    ids = np.arange(60) % 5
    rows = held_out(ids, np.arange(60), 30, np.random.default_rng(0))  # every row was seen
    assert len(rows) == 30
    assert np.bincount(ids[rows])[np.unique(ids[rows])].min() > 1
    ids = np.r_[np.arange(300) // 2, np.arange(150, 250)]  # pairs, then rows that are alone
    rows = held_out(ids, np.array([0, 1]), 96, np.random.default_rng(0))
    assert len(rows) <= 96
    assert (np.bincount(ids[rows])[ids[rows]] > 1).mean() > 0.9
    assert not {0, 1} & set(rows.tolist())
