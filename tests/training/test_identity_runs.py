"""Runs with a classifier beside the metric loss: guarded, warmed up, resumed, forecast."""

import copy

import pytest
import torch

from support.errors import refused
from uncollapse._base.check import InputError
from uncollapse.data import LabelledImages, TensorSource, load
from uncollapse.losses import IdentityLoss, TrimmedLoss, TripletLoss
from uncollapse.training import parse_config, train
from uncollapse.training import predictions as run_forecast
from uncollapse.training.assemble import build_loss, build_optimizer, learning_rate
from uncollapse.training.predictions import forecast_run
from uncollapse.training.session import Session

DATA = load("digits", split="train")
LOSS = {"margin": 0.2, "identity": {"label_smoothing": 0.1}}
NECK = {"identity": {"label_smoothing": 0.1, "neck": "batch-norm"}}
VALUES = {
    "seed": 2,
    "data": {"name": "digits"},
    "model": {"backbone": "mlp", "dim": 4, "hidden": [16]},
    "batch": {"p": 4, "k": 3},
    "loss": LOSS,
    "mining": {"positives": "hard", "negatives": "hard"},
    "guard": {"action": "rescue", "every": 2},
    "optimizer": {"lr": 0.01, "loss_lr": 0.1, "warmup": 8},
    "train": {"steps": 12, "log_every": 2},
    "evaluate": {"max_samples": 200},
}


def config(**changes):
    return parse_config({**VALUES, **{k: {**VALUES.get(k, {}), **v} for k, v in changes.items()}})


def session(**changes):
    return Session(config(**changes), DATA)


def test_the_classifier_learns_at_its_own_rate():
    loss = build_loss(config(), DATA)
    optimizer = build_optimizer(config(), torch.nn.Linear(4, 4), loss)
    assert optimizer.param_groups[1]["lr"] == 0.1
    assert [id(p) for p in optimizer.param_groups[1]["params"]] == [id(loss.classifier)]


@pytest.mark.parametrize("neck", ["none", "batch-norm"])
def test_a_guarded_run_learns_to_classify(neck):
    one = session(
        loss={**LOSS, "identity": {"label_smoothing": 0.1, "neck": neck}}, train={"steps": 60}
    )
    assert isinstance(one.loss, IdentityLoss)
    values = [one.advance()["loss"] for _ in range(60)]
    assert sum(values[-10:]) < 0.8 * sum(values[:10])
    with torch.no_grad():
        z = one.model(DATA[torch.arange(300)][0])
        if neck == "batch-norm":
            z = (z - z.mean(0)) / z.std(0)
        right = (z @ one.loss.classifier.T).argmax(1) == one.class_of[:300]
    assert float(right.float().mean()) > 0.4  # 0.1 is chance


def test_a_rescue_takes_the_classifier_back_too():
    one = session()
    first = one.loss.classifier.detach().clone()
    for _ in range(5):
        one.advance()
    assert not torch.equal(one.loss.classifier, first)
    assert one.rescue_lost() is not None
    assert torch.equal(one.loss.classifier, first)
    assert torch.isfinite(torch.tensor(one.advance()["loss"]))


def test_after_a_rescue_the_guards_factor_and_the_warm_up_both_count():
    one = session()
    one.advance()
    assert one.rescue_lost() is not None
    factor = one.guard.lr_factor
    assert factor < 1
    for step in range(1, 12):
        one.advance()
        warm = learning_rate(one.config, step)
        assert warm == min(1.0, (step + 1) / 8)
        rates = [group["lr"] for group in one.optimizer.param_groups]
        assert rates == pytest.approx([0.01 * warm * factor, 0.1 * warm * factor])


def test_a_restored_session_goes_on_exactly():
    whole = session(loss={**LOSS, "trim": 0.8, **NECK})
    for _ in range(3):
        whole.advance()
    saved = copy.deepcopy(whole.checkpoint())
    state = torch.get_rng_state()
    again = session(loss={**LOSS, "trim": 0.8, **NECK})
    again.restore(saved)
    later = [again.advance() for _ in range(5)]
    torch.set_rng_state(state)
    assert [whole.advance() for _ in range(5)] == later
    assert torch.equal(whole.loss.classifier, again.loss.classifier)


def test_a_run_is_resumed_from_its_folder(tmp_path):
    whole = train(config(), tmp_path / "whole")
    short = config(train={"steps": 6, "checkpoint_every": 3})
    train(short, tmp_path / "parts")
    parts = train(config(train={"checkpoint_every": 3}), tmp_path / "parts", resume=True)
    losses = [
        [line["loss"] for line in run.metrics() if "loss" in line and "diameter" in line]
        for run in (whole, parts)
    ]
    assert losses[0] == losses[1]
    assert "[loss.identity]" in (tmp_path / "whole" / "config.toml").read_text()


def drawn(labels):
    samples = torch.randn(len(labels), 6, generator=torch.Generator().manual_seed(0))
    return LabelledImages(TensorSource(samples), labels, name="drawn")


@pytest.mark.parametrize("more", [{}, {"trim": 0.5}])
def test_a_forecast_has_a_classifier_of_the_width_asked_for(monkeypatch, more):
    people = torch.tensor([3, 70, 71, 200]).repeat_interleave(12)  # names of their own
    monkeypatch.setattr(run_forecast, "load_eval_data", lambda *_: drawn(people))
    seen = []
    asked = config(loss={**LOSS, **more})
    found = forecast_run(
        asked, [2, 4], [4], [8], probe_steps=10, progress=lambda *at: seen.append(at)
    )
    assert [(cell.p, cell.dim) for cell in found.cells] == [(2, 8), (4, 8)]
    assert all(cell.probe is not None for cell in found.cells)
    assert {cell.dim for cell in found.alternatives} == {8}
    assert seen == [(1, 2), (2, 2)]
    with pytest.raises(InputError, match="one dimension at a time"):
        forecast_run(asked, [2], [4], [4, 8])


def test_a_trimmed_triplet_loss_can_be_forecast_and_other_losses_cannot(monkeypatch):
    labels = torch.arange(4).repeat_interleave(12)
    monkeypatch.setattr(run_forecast, "load_eval_data", lambda *_: drawn(labels))
    trimmed = parse_config({**VALUES, "loss": {"trim": 1.0}})
    assert isinstance(build_loss(trimmed, drawn(labels)), TrimmedLoss)
    plain = parse_config({**VALUES, "loss": {}})
    assert isinstance(build_loss(plain, drawn(labels)), TripletLoss)
    drifts = [
        [cell.drift for cell in forecast_run(one, [4], [4], [4, 8]).cells]
        for one in (trimmed, plain)
    ]
    assert drifts[0] == pytest.approx(drifts[1], rel=1e-4)
    other = parse_config({**VALUES, "loss": {"name": "contrastive", "identity": {}}})
    with refused("loss.name"):
        forecast_run(other, [4], [4])
