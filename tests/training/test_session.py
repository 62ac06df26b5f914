"""A run in memory: steps, what is saved of it, and what is refused before it begins."""

import copy

import pytest
import torch

from uncollapse._base.check import InputError
from uncollapse.data import load
from uncollapse.training import parse_config
from uncollapse.training.assemble import learning_rate
from uncollapse.training.distributed import Ranks
from uncollapse.training.session import Session

DATA = load("digits", split="train")
VALUES = {
    "seed": 2,
    "data": {"name": "digits"},
    "model": {"backbone": "mlp", "dim": 4, "hidden": [16]},
    "batch": {"p": 4, "k": 3},
    "mining": {"positives": "random", "negatives": "random"},
    "guard": {"every": 2},
    "train": {"steps": 12, "log_every": 2},
}


def session(**changes):
    values = {**VALUES, **{k: {**VALUES.get(k, {}), **v} for k, v in changes.items()}}
    return Session(parse_config(values), DATA)


def test_a_step_moves_the_weights_and_says_its_loss():
    one = session()
    before = [p.clone() for p in one.model.parameters()]
    values = one.advance()
    assert (one.step, one.stream.place) == (1, 1)
    assert values.keys() == {"loss"}
    assert any(not torch.equal(a, b) for a, b in zip(before, one.model.parameters(), strict=True))
    assert one.advance().keys() >= {"loss", "diameter", "lr"}  # every second step is logged


def test_a_restored_session_goes_on_exactly():
    whole = session(optimizer={"schedule": "cosine", "warmup": 2})
    for _ in range(3):
        whole.advance()
    saved = copy.deepcopy(whole.checkpoint())  # as on disk: it must not move with the session
    state = torch.get_rng_state()
    torch.manual_seed(99)
    again = session(optimizer={"schedule": "cosine", "warmup": 2})
    again.restore(saved)
    assert torch.equal(torch.get_rng_state(), state)
    later = [again.advance() for _ in range(3)]
    torch.set_rng_state(state)
    assert [whole.advance() for _ in range(3)] == later
    for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_learning_rate_of_network_and_loss_follow_the_schedule():
    changes = {
        "loss": {"name": "margin", "learn_beta": True},
        "mining": {"positives": None, "negatives": None},
        "optimizer": {"lr": 0.1, "loss_lr": 0.5, "schedule": "step", "decay_every": 2},
    }
    one = session(**changes)
    for step in range(4):
        one.advance()
        factor = learning_rate(one.config, step)
        rates = [group["lr"] for group in one.optimizer.param_groups]
        assert rates == pytest.approx([0.1 * factor, 0.5 * factor])


def test_gradients_are_clipped():
    free, clipped = session(), session(optimizer={"clip": 1e-9})
    for one in (free, clipped):
        one.advance()
    norm = _gradient_norm(clipped.model)
    assert float(norm) <= 1e-9 * 1.001
    assert float(_gradient_norm(free.model)) > 1e-6


def test_the_best_score_is_remembered():
    one = session()
    assert [one.is_best(score) for score in (0.2, 0.1, 0.2, 0.3)] == [True, False, False, True]
    assert one.best == 0.3


@pytest.mark.parametrize(
    ("changes", "ranks", "message"),
    [
        ({"train": {"precision": "float16", "device": "cpu"}}, Ranks(), r"train\.precision"),
        ({"batch": {"p": 1, "k": 2}}, Ranks(0, 3), r"at least one sample for each of 3"),
        (
            {
                "loss": {"name": "margin", "beta_per": "sample"},
                "guard": {"action": "rescue"},
            },
            Ranks(),
            r"guard\.action",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_before_it_begins(changes, ranks, message):
    values = {**VALUES, **{k: {**VALUES.get(k, {}), **v} for k, v in changes.items()}}
    with pytest.raises(InputError, match=message):
        Session(parse_config(values), DATA, ranks)


def test_without_a_guard_nothing_is_watched():
    one = session(guard={"action": "off"})
    one.advance()
    assert one.guard is None
    assert not one.stopped
    assert "verdict" not in one.advance()


def _gradient_norm(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
