"""Runs with a cross-batch memory: configured, resumed, rolled back, raced and forecast."""

import copy

import pytest
import torch

from uncollapse._base.check import InputError
from uncollapse.data import LabelledImages, TensorSource, load
from uncollapse.health import Guard, drift
from uncollapse.losses import CrossBatchMemory, IdentityLoss, TrimmedLoss, TripletLoss
from uncollapse.losses.memory import memories
from uncollapse.mining import Miner
from uncollapse.training import parse_config, train
from uncollapse.training import predictions as run_forecast
from uncollapse.training.assemble import build_loss
from uncollapse.training.predictions import forecast_run, race_run
from uncollapse.training.sections import LOSSES, TrainingSize
from uncollapse.training.session import Session

DATA = load("digits", split="train")
VALUES = {
    "seed": 2,
    "data": {"name": "digits"},
    "model": {"backbone": "mlp", "dim": 4, "hidden": [16]},
    "batch": {"p": 4, "k": 3},
    "loss": {"margin": 0.2, "memory": {"size": 50}},
    "mining": {"positives": "hard", "negatives": "hard"},
    "guard": {"action": "rescue", "every": 2},
    "optimizer": {"lr": 0.01},
    "train": {"steps": 12, "log_every": 2},
    "evaluate": {"max_samples": 200},
}


def config(**changes):
    return parse_config({**VALUES, **{k: {**VALUES.get(k, {}), **v} for k, v in changes.items()}})


def session(**changes):
    return Session(config(**changes), DATA)


def test_the_memory_is_between_trimming_and_a_classifier():
    given = config(
        loss={
            "trim": 0.5,
            "identity": {},
            "memory": {"size": 50, "after": 3, "references": "fixed"},
        }
    )
    loss = build_loss(given, DATA)
    assert isinstance(loss, IdentityLoss)
    assert isinstance(loss.inner, CrossBatchMemory)
    assert isinstance(loss.inner.inner, TrimmedLoss)
    assert (loss.inner.size, loss.inner.after, loss.inner.references) == (50, 3, "fixed")


@pytest.mark.parametrize("name", LOSSES)
def test_losses_that_compare_rows_have_a_memory_and_others_are_refused_one(name):
    size = TrainingSize(classes=3, samples=12, dim=2)
    if name in ("n-pair", "soft-triple") or name.startswith(("proxy", "arc", "cos")):
        with pytest.raises(InputError) as refused:
            LOSSES[name](memory={"size": 64}).build(None, size)
        assert refused.value.name == "loss"
    else:
        loss = LOSSES[name](memory={"size": 64}).build(None, size)
        assert isinstance(loss, CrossBatchMemory)
        assert torch.isfinite(loss(torch.randn(6, 2), [0, 0, 1, 1, 2, 2]))


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ({"memory": {"size": -1}}, r"^loss\.memory\.size: expected a number of at least 1"),
        ({"memory": {"after": 5}}, r"^loss\.memory\.size: "),
        (
            {"memory": {"size": 20, "references": "old"}},
            r"^loss\.memory\.references: expected 'moving'",
        ),
        (
            {"memory": {"size": 8}},
            r"^loss\.memory\.size: expected at least the 12 samples of a batch",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_training(loss, message):
    with pytest.raises(InputError, match=message):
        session(loss=loss)


def test_samples_of_the_batch_are_known_by_their_numbers():
    one = session()
    for _ in range(3):
        one.advance()
    (memory,) = memories(one.loss)
    assert len(memory.memory) == 36
    assert torch.equal(memory.memory_labels, one.class_of[memory.memory_ids])


def test_a_restored_session_goes_on_exactly():
    whole = session()
    for _ in range(3):
        whole.advance()
    saved = copy.deepcopy(whole.checkpoint())
    state = torch.get_rng_state()
    again = session()
    again.restore(saved)
    later = [again.advance() for _ in range(5)]
    torch.set_rng_state(state)
    assert [whole.advance() for _ in range(5)] == later
    assert torch.equal(whole.loss.memory, again.loss.memory)


def test_a_run_resumed_from_its_folder_is_the_run_in_one_go(tmp_path):
    whole = train(config(), tmp_path / "whole")
    train(config(train={"steps": 6, "checkpoint_every": 3}), tmp_path / "parts")
    parts = train(config(train={"checkpoint_every": 3}), tmp_path / "parts", resume=True)
    losses = [
        [line["loss"] for line in run.metrics() if "loss" in line and "diameter" in line]
        for run in (whole, parts)
    ]
    assert losses[0] == losses[1]
    plain = train(config(loss={"memory": None}), tmp_path / "plain")
    assert losses[0] != [x["loss"] for x in plain.metrics() if "loss" in x and "diameter" in x]


def test_a_rescue_takes_the_memory_back_too():
    one = session()
    for _ in range(5):
        one.advance()
    assert len(one.loss.memory) == 50
    assert one.rescue_lost() is not None  # to the copy that was made before the first step
    assert len(one.loss.memory) == 0
    one.advance()
    assert len(one.loss.memory) == 12


def test_a_race_begins_every_strategy_with_the_memory_of_the_copy():
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 3)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    loss = CrossBatchMemory(TripletLoss(margin=0.2, miner=Miner("hard", "hard")), 64)
    guard = Guard(model, optimiser, loss, action="rescue", snapshot_every=5)
    labels = torch.arange(32) % 4
    for step in range(60):  # labels that nothing can tell apart: it shrinks
        z = model(torch.randn(32, 6))
        value = loss(z, labels)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        events = guard.after_step(z, labels, value, step)
        if any(event.race is not None for event in events):
            break
    else:
        raise AssertionError([str(event) for event in guard.events])
    steps = max(score.steps for score in events[-1].race.last.values())
    assert int(loss.calls) <= step + steps  # its own steps since the copy, and no other's


def test_a_guards_look_at_drifts_leaves_the_memory_alone():
    one = session(guard={"action": "rescue", "every": 1})
    for _ in range(6):
        one.advance()
    before = one.loss.kept()
    one.guard._alternatives()
    assert all(torch.equal(before[name], value) for name, value in one.loss.kept().items())


def drawn(count=200, classes=5):
    draw = torch.Generator().manual_seed(1)
    return LabelledImages(
        TensorSource(torch.randn(count, 8, generator=draw)), torch.arange(count) % classes, name="d"
    )


def test_a_forecast_is_of_a_full_memory_and_grows_with_it(monkeypatch):
    monkeypatch.setattr(run_forecast, "load_eval_data", lambda *_: drawn())
    drifts = []
    for memory in (None, {"size": 40}, {"size": 160}):
        given = config(loss={"memory": memory})
        (cell,) = forecast_run(given, [4], [3], probe_steps=10).cells
        assert cell.probe is not None
        drifts.append(cell.drift)
    assert drifts[0] < drifts[1] < drifts[2]  # HNM §3.3: more rows to mine over


def test_what_was_asked_of_a_loss_is_not_remembered_by_it():
    loss = CrossBatchMemory(TripletLoss(margin=0.2, miner=Miner("hard", "hard")), 60)
    network = torch.nn.Linear(8, 4)
    from uncollapse.health import forecast

    forecast(network, drawn(), [4], [3], loss_fn=loss, probe_steps=10)
    assert len(loss.memory) == 0
    assert int(loss.calls) == 0
    assert loss.training


def test_strategies_race_before_training_with_a_memory():
    found = race_run(config(train={"steps": 400}))
    own = next(one for one in found.entrants if one.strategy == found.own)
    assert str(own.strategy) == "hard x hard"
    plain = race_run(config(train={"steps": 400}, loss={"memory": None}))
    (alone,) = (one for one in plain.entrants if one.strategy == plain.own)
    assert own.drift > alone.drift


def test_the_monitor_says_how_many_rows_are_mined_over():
    assert session().guard.monitor.settings.mined_over == 50
    assert session(mining={"pool": 20}).guard.monitor.settings.mined_over == 20
    assert session(loss={"memory": None}).guard.monitor.settings.mined_over == 12


def test_drift_is_that_of_batch_and_memory():
    one = session()
    for _ in range(3):
        one.advance()
    images, rows = one.take_batch()
    z = one.forward(images).detach()
    labels = one.class_of[rows]
    with_memory = drift(one.loss, z, labels).value
    one.loss.reset()
    assert drift(one.loss, z, labels).value < with_memory
