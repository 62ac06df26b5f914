"""Where losses rest: declared and evaluated values, what a bare number means, stuck losses."""

import math
import random

import numpy as np
import pytest
import torch
from pytorch_metric_learning import losses as pml
from torch import nn

from losses.loss_oracles import definition
from support.errors import refused
from uncollapse.health import CollapseMonitor, RunSettings, resting
from uncollapse.health.resting import Resting, StuckLoss, explain_loss, resting_values
from uncollapse.losses import LOSSES, ArcFaceLoss, SupConLoss, TripletLoss
from uncollapse.losses.registry import loss_settings, make_loss
from uncollapse.mining import Miner

ROWS, DIM = 12, 13


def _forms(kind):
    """Settings of a loss: its forms, and each value its own tests draw, one at a time."""
    told, known = definition(kind), loss_settings(kind)
    drawn = [{name: value} for name, values in told.drawn.items() for value in values]
    forms = [{k: v for k, v in form.items() if k in known} for form in (*told.forms, *drawn)]
    return [form for form in forms if form.get("beta_per") != "sample"]  # these rows are none


def _at(loss, labels, cosine):
    """The loss where all cosines are `cosine`, those with class vectors too."""
    rows = torch.ones(ROWS, DIM) / math.sqrt(DIM) if cosine else torch.eye(DIM)[:ROWS]
    if hasattr(loss, "proxies"):
        loss.proxies.data[:] = rows[0] if cosine else torch.eye(DIM)[-1]
    return loss(rows.double(), labels).item()


@torch.no_grad()
@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_declares_what_it_is_where_all_similarities_are_equal(name):
    declared = 0
    for settings in _forms(LOSSES[name]):
        loss = make_loss(LOSSES[name], settings, num_classes=5, dim=DIM)
        for labels in (torch.arange(4).repeat_interleave(3), torch.arange(ROWS) % 2):
            for cosine in (0.0, 1.0):
                sizes = resting._sizes(loss, labels, ROWS) | {"cosine": cosine}
                level = resting._level(loss.resting, loss, sizes)
                if level is not None:
                    truth = _at(loss, labels, cosine)
                    assert level[0] == pytest.approx(truth, rel=1e-5), (settings, level)
                    declared += 1
    assert declared >= 2


class Restless(nn.Module):
    """A loss with a counter, that draws from every default generator."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, z, labels):
        self.calls += 1
        return torch.rand(()) + np.random.rand() + random.random()  # noqa: NPY002


def _random_states():
    numpy = np.random.get_state()[1:3]  # noqa: NPY002
    return torch.get_rng_state().tolist(), random.getstate(), numpy[0].tolist(), numpy[1]


def test_evaluating_a_loss_changes_neither_it_nor_a_random_stream():
    loss, before = Restless(), _random_states()
    assert len(resting_values(loss, torch.arange(8) % 4, 8, 4)) == 3
    assert int(loss.calls) == 0
    assert _random_states() == before
    miner = Miner("random", "random", generator=torch.Generator().manual_seed(0))
    drawn = miner.generator.get_state()
    levels = resting_values(TripletLoss(margin=0.3, miner=miner), torch.arange(8) % 4, 8, 4)
    assert str(levels[0]) == "0.3 = margin"
    assert torch.equal(miner.generator.get_state(), drawn)


class SupContrast(nn.Module):
    """Khosla et al. 2020 as their code has it: [rows, views, dim], and a prefactor."""

    temperature, base_temperature = 0.1, 0.07

    def forward(self, features, labels):
        z = features.squeeze(1)
        assert z.ndim == features.ndim - 1  # [rows, dim] is refused
        logits = (z @ z.T / self.temperature).fill_diagonal_(-torch.inf)
        same = (labels[:, None] == labels).fill_diagonal_(False)
        mean = (logits.log_softmax(1).masked_fill(~same, 0.0).sum(1) / same.sum(1)).mean()
        return -self.temperature / self.base_temperature * mean


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (SupContrast(), "6.92 = ln 127 · 0.1/0.07"),
        (pml.SupConLoss(), "4.844 = ln 127"),
        (pml.TripletMarginLoss(margin=0.1), "0.1 = margin"),
        (SupConLoss(miner=Miner("all", "all")), "4.844 = ln 127"),
        (pml.ProxyNCALoss(64, 16, softmax_scale=1e-9), "4.159 = ln 64"),  # too soft to tell
        (lambda z, labels: torch.tensor(math.log(128)), "4.852 = ln 128"),
    ],
    ids=["SupContrast", "SupCon of PML", "triplet of PML", "mined", "proxies of PML", "function"],
)
def test_a_loss_that_declares_nothing_is_evaluated_and_named(loss, expected):
    levels = resting_values(loss, torch.arange(128) % 64, 128, 16)
    assert str(levels[0]) == expected
    assert levels[0].state == ("point" if "Proxy" in str(loss) else "equal")


def _face(classes, dim, scale):
    generator = torch.Generator().manual_seed(0)
    return ArcFaceLoss(num_classes=classes, dim=dim, scale=scale, generator=generator)


def test_random_directions_are_at_the_value_that_theory_gives():
    rows, dim, scale = 64, 256, 30.0
    loss = _face(1000, dim, scale)
    level = resting_values(loss, torch.arange(rows), rows, dim)[-1]
    expected = scale * math.sin(0.5) + math.log(999) + scale**2 / (2 * dim)
    assert (level.state, level.value) == ("random", pytest.approx(expected, rel=0.02))


def _broken(z, labels):
    raise KeyError("no such loss")


@pytest.mark.parametrize(
    ("loss", "rows"),
    [(_broken, 8), (5, 8), (None, 8), (Restless().forward, 8), (SupConLoss(), 5000)],
    ids=["raises", "no loss", "none", "bound method", "too many rows"],
)
def test_what_cannot_be_evaluated_has_no_value(loss, rows):
    assert resting_values(loss, torch.arange(rows) % 4, rows, 4) == []


# A bare number. The public posts: SupContrast #42, #3 and #83, positional_cl #5, open_clip #17,
# moco #12, tensorflow/similarity #233, MockingBird #697; values by hand.


@pytest.mark.parametrize(
    ("value", "known", "formula", "level"),
    [
        ("6.920", {"batch": 64, "views": 2}, "ln 127 · 0.1/0.07", 4.844187 / 0.7),
        ("8.909", {"batch": 256}, "ln 511 · 0.1/0.07", 6.236370 / 0.7),
        ("5.5597", {"batch": 25}, "ln 49 · 0.1/0.07", 3.891820 / 0.7),
        ("4.85", {"batch": 128}, "ln 128", 4.852030),
        ("11.09", {"queue": 65536}, "ln 65537", 11.090370),
        ("6.9287", {"batch": 512}, "ln 1023", 6.930495),
        ("4.1", {"classes": 64}, "ln 64", 4.158883),
        ("0.693", {}, "ln 2", 0.693147),
        ("0.2", {}, "margin", 0.2),
        ("6.920", {}, "ln 127 · 0.1/0.07", 4.844187 / 0.7),
    ],
)
def test_the_numbers_of_public_posts_are_explained(value, known, formula, level):
    best = explain_loss(value, **known)[0]
    assert (best.formula, best.state) == (formula, "equal")
    assert best.value == pytest.approx(level, abs=1e-5)
    assert best.exact == (value != "6.9287")  # 0.03 % below ln 1023: nearly equal


@pytest.mark.parametrize(
    ("value", "loss", "state"),
    [
        ("-1", "SimSiam", "aligned"),
        (0, "SimSiam", "random"),
        (2.0, "BYOL", "random"),
        ("4", "BYOL, summed over two views", "random"),
        ("24.75", "VICReg", "point"),
        ("8192", "Barlow Twins", "point"),
        ("20", "ArcFace", "random"),
        ("0.7981", "soft-margin triplet loss with a margin", "equal"),
    ],
)
def test_other_methods_are_known_without_options(value, loss, state):
    assert (explain_loss(value)[0].loss, explain_loss(value)[0].state) == (loss, state)


def test_multi_similarity_and_face_losses_use_what_is_known_of_the_run():
    tail = math.log(1 + 60 * math.exp(25)) / 50
    point = math.log(1 + 3 * math.exp(-1)) / 2 + tail  # base 0.5, as PML has it
    best = explain_loss(f"{point:.4f}", batch=64, classes=16)[0]
    assert (best.loss, best.value) == ("multi-similarity", pytest.approx(point))
    best = explain_loss("43.4", scale=64, classes=10572)[0]  # insightface #1996: 1 % below
    assert (best.loss, best.exact, best.value) == ("ArcFace", False, pytest.approx(43.95, abs=0.01))


def test_fewer_guesses_come_first_and_nonsense_is_refused_by_name():
    losses = [level.loss for level in explain_loss("4.85", batch=128)]
    assert losses[0].startswith("InfoNCE")
    assert explain_loss("7.77", batch=12) == []
    assert explain_loss("3.3", batch=1, views=1, classes=1, margin=1e6) == []  # of which no log is
    assert [level.formula for level in explain_loss("4.62")][:1] == ["ln 100"]  # the nearest
    for wrong in ("abc", "nan", math.inf, "1e400", "", None):
        with refused("loss"):
            explain_loss(wrong)
    with refused("batch"):
        explain_loss("1.0", batch=0)
    with refused("option"):
        explain_loss("1.0", bacth=64)


# In a run.


def test_a_loss_is_stuck_only_while_it_does_not_move():
    watch = StuckLoss.of(RunSettings())
    watch.needed = 5

    def after(*losses):
        for loss in losses:
            watch.add(loss)
        return watch.stuck, watch.level is not None, watch.words

    still = after(0.6931, 0.6932, 0.6930, 0.6931, 0.6931)
    words = "loss has sat at 0.6931 = ln 2 for 5 updates: all similarities in the batch are equal"
    assert still == (True, True, words)
    assert after(0.5) == (False, False, "")
    assert after(*[0.37] * 6) == (True, False, "loss has sat at 0.37 for 6 updates")
    assert after(*[0.0] * 9) == (False, False, "")
    assert after(*[-1.0] * 5) == (True, False, "loss has sat at -1 for 5 updates")


def test_a_loss_that_falls_through_a_resting_value_is_not_at_it():
    watch = StuckLoss([Resting(math.log(63), "ln 63", "equal")])
    for step in range(100):
        watch.add(4.16 - 0.001 * step)  # within 1 % of ln 63 for 60 updates
        assert watch.long_state == ""
    assert watch.level is None


def test_random_directions_are_only_named_while_the_loss_has_never_moved():
    level = Resting(0.3, "", "random")
    began, moved = StuckLoss([level]), StuckLoss([level])
    for _ in range(50):
        moved.add(0.9)
    for _ in range(60):
        began.add(0.3)
        moved.add(0.3)
    assert (began.long_state, moved.long_state) == ("random", "")


def test_a_loss_is_evaluated_once_and_only_when_it_has_sat_still(monkeypatch):
    calls = []
    monkeypatch.setattr(resting, "resting_values", lambda *batch: calls.append(batch) or [])
    monitor, generator = CollapseMonitor(SupConLoss()), torch.Generator().manual_seed(0)
    for step in range(100):
        z = torch.randn(16, 4, generator=generator)
        monitor.update(z, torch.arange(16) % 4, 3.0 * 0.98 ** min(step, 60))
        assert not calls or step >= 79
    assert len(calls) == 1


def _watched(loss_fn, rows_of, labels, steps=60):
    monitor, generator = CollapseMonitor(loss_fn), torch.Generator().manual_seed(1)
    for _ in range(steps):
        z = rows_of(generator)
        monitor.update(z, labels, loss_fn(z, labels))
    return monitor


LABELS = torch.arange(64) % 16


def test_a_collapsed_batch_of_similarities_is_named():
    monitor = _watched(
        SupConLoss(), lambda g: torch.ones(64, 8) + 1e-3 * torch.randn(64, 8, generator=g), LABELS
    )
    assert monitor.verdict == "network-collapse"
    assert "loss has sat at 4.143 = ln 63 for 52 updates: all similarities" in monitor.advice


def test_spread_rows_whose_loss_sits_at_log_n_are_not_learning():
    monitor = _watched(
        SupConLoss(temperature=100.0), lambda g: torch.randn(64, 8, generator=g), LABELS
    )
    assert monitor.verdict == "healthy"
    assert monitor.advice.startswith("loss has sat at 4.143 = ln 63 for 52 updates: all similar")
    assert "but the rows differ: not learning" in monitor.advice
    early = _watched(
        SupConLoss(temperature=100.0), lambda g: torch.randn(64, 8, generator=g), LABELS, 45
    )
    assert early.advice == ""  # a start may take as long


def test_a_face_loss_at_its_start_is_called_normal():
    loss_fn = _face(16, 4096, 8.0)
    monitor = _watched(loss_fn, lambda g: torch.randn(64, 4096, generator=g), LABELS)
    assert monitor.verdict == "healthy"
    assert "random directions" in monitor.advice
    assert "normal at the start of training" in monitor.advice
