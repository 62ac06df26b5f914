"""The monitor on sequences whose story is known."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from uncollapse._base.check import InputError
from uncollapse.health import CollapseMonitor, Health, RunSettings
from uncollapse.health.advice import advise
from uncollapse.health.monitor import RecentRows, StuckLoss
from uncollapse.health.strategy import strategy_of
from uncollapse.losses import (
    ContrastiveLoss,
    IdentityLoss,
    MarginLoss,
    TrimmedLoss,
    TripletLoss,
)
from uncollapse.mining import Miner

P, K, DIM = 8, 4, 16
LABELS = torch.arange(P).repeat_interleave(K)


def _batch(seed: int, inside: float = 0.5) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(P, DIM, generator=generator)
    return means[LABELS] + inside * torch.randn(P * K, DIM, generator=generator)


def _run(monitor: CollapseMonitor, scales: np.ndarray, **settings: float) -> list[Health]:
    seeds = range(len(scales))
    return [
        monitor.update(_batch(s, **settings) * x, LABELS)
        for s, x in zip(seeds, scales, strict=True)
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_collapse_is_called_shrinking_and_then_network_collapse(
    dtype: torch.dtype, scale: float
) -> None:
    monitor = CollapseMonitor()
    for step, x in enumerate(scale * np.logspace(0, -4, 60)):
        monitor.update((_batch(step) * x).to(dtype), LABELS)
    assert [verdict for _, verdict in monitor.changes] == ["shrinking", "network-collapse"]
    assert "of its reference scale" in str(monitor.health)


def test_a_healthy_run_that_grows_wobbles_and_tightens_raises_no_alarm() -> None:
    monitor = CollapseMonitor(every=10)
    rng = np.random.default_rng(0)
    for step in range(200):
        size = 1 + step / 20 + rng.uniform(-0.3, 0.3)
        monitor.update(size * _batch(step, 0.6 - step / 500), LABELS, 0.2 / (1 + step / 50))
    assert monitor.changes == []
    assert monitor.advice == ""


def test_a_run_that_blows_up_is_diverging() -> None:
    monitor = CollapseMonitor()
    _run(monitor, np.logspace(0, 5, 60))
    assert [verdict for _, verdict in monitor.changes] == ["diverging"]
    assert "learning rate" in monitor.advice


@pytest.mark.parametrize("bad", ["embeddings", "the loss"])
def test_nan_is_diverging_at_once_and_the_run_may_recover(bad: str) -> None:
    monitor = CollapseMonitor()
    monitor.update(_batch(0), LABELS, 0.3)
    z, loss = _batch(1), 0.3
    if bad == "embeddings":
        z[3, 2] = math.nan
    else:
        loss = math.inf
    health = monitor.update(z, LABELS, loss)
    assert health.verdict == "diverging"
    assert bad in health.reasons[0]
    for step in range(2, 6):
        monitor.update(_batch(step), LABELS, 0.3)
    assert monitor.verdict == "healthy"


@pytest.mark.parametrize("labelled", [True, False])
def test_dimensional_collapse_is_seen_by_the_full_measure(labelled: bool) -> None:
    monitor = CollapseMonitor(every=5)
    for step in range(40):
        z = _batch(step)
        if step > 10:
            z[:, 1:] *= 1e-3
        monitor.update(z, LABELS if labelled else None)
    assert monitor.verdict == "dimensional-collapse"
    assert "network-collapse" not in dict(monitor.changes).values()
    assert "16 dimensions, 1 in use" in monitor.advice


def test_class_collapse_is_seen_over_small_batches_that_share_no_class() -> None:
    monitor = CollapseMonitor(every=5, settings=RunSettings(positives="random"))
    generator = torch.Generator().manual_seed(0)
    for step in range(40):
        means = torch.randn(2, DIM, generator=generator).repeat_interleave(2, 0)
        inside = 0.5 if step < 15 else 1e-3
        z = means + inside * torch.randn(4, DIM, generator=generator)
        labels = torch.tensor([0, 0, 1, 1]) + 2 * step
        monitor.update(z, labels)
    assert [verdict for _, verdict in monitor.changes] == ["class-collapse"]
    assert monitor.advice.startswith("random positives pull all of a class together")
    assert "try positives = easy" in monitor.advice


def test_a_smaller_scale_with_better_classes_is_healthy() -> None:
    monitor = CollapseMonitor()
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(P, DIM, generator=generator)
    for step in range(100):
        size, inside = max(0.15, 0.97**step), max(0.35, 1.5 * 0.97**step)
        noise = torch.randn(P * K, DIM, generator=generator)
        monitor.update(size * (means[LABELS] + inside * noise), LABELS)
    assert monitor.changes == []
    assert monitor.health is not None
    assert (monitor.health.relative_diameter or 1) < 0.2


def test_the_verdict_does_not_flap_at_a_threshold() -> None:
    monitor = CollapseMonitor()
    rng = np.random.default_rng(0)
    scales = np.r_[1.0, 0.25 + rng.uniform(-0.06, 0.06, 300)]
    _run(monitor, scales)
    assert len(monitor.changes) <= 1


def test_one_odd_batch_changes_nothing() -> None:
    monitor = CollapseMonitor()
    scales = np.ones(30)
    scales[[10, 20]] = 1e-5
    assert {health.verdict for health in _run(monitor, scales)} == {"healthy"}


def test_a_recovered_run_is_healthy_again() -> None:
    monitor = CollapseMonitor()
    _run(monitor, np.r_[np.ones(5), np.full(10, 0.1), np.full(10, 0.9)])
    assert [verdict for _, verdict in monitor.changes] == ["shrinking", "healthy"]


def test_a_collapse_from_a_large_healthy_scale_is_measured_from_there() -> None:
    monitor = CollapseMonitor(every=5)
    _run(monitor, np.r_[np.linspace(1, 60, 40), np.full(6, 0.4)])
    assert monitor.verdict == "network-collapse"
    assert "of the largest it had while healthy" in str(monitor.health)


@pytest.mark.parametrize(("soft", "level"), [(False, "the margin 0.2"), (True, "softplus(0.2) = ")])
def test_a_loss_that_sits_at_its_collapsed_value_says_collapse(soft: bool, level: str) -> None:
    loss_fn = TripletLoss(margin=0.2, miner=Miner("hard", "hard"), soft=soft)
    monitor = CollapseMonitor(loss_fn)
    for step in range(60):
        z = 1e-4 * _batch(step)  # already collapsed when the monitor is attached
        monitor.update(z, LABELS, loss_fn(z, LABELS))
    assert [verdict for _, verdict in monitor.changes] == ["network-collapse"]
    assert f"loss has sat at {level}" in monitor.advice


def test_a_small_start_that_grows_is_no_collapse_though_the_loss_sits_at_the_margin() -> None:
    loss_fn = TripletLoss(margin=1.0, miner=Miner("easy", "hard"))
    monitor = CollapseMonitor(loss_fn)
    for step, x in enumerate(1e-5 * np.logspace(0, 1.8, 80)):
        z = x * _batch(step)
        monitor.update(z, LABELS, loss_fn(z, LABELS))
    assert monitor.loss.stuck
    assert monitor.changes == []


def test_advice_is_the_sentence_that_the_run_calls_for() -> None:
    loss_fn = TripletLoss(margin=0.2, miner=Miner("hard", "hard"))
    monitor = CollapseMonitor(loss_fn)
    for step in range(200):
        z = _batch(step) * max(0.003, 0.8**step)
        monitor.update(z, LABELS, 0.2)
    assert monitor.advice.startswith("hard positives mined over 32 samples; diameter fell to 0.")
    assert "in 199 steps; loss has sat at the margin 0.2 for 200 updates; try" in monitor.advice
    assert monitor.advice.endswith(
        "try positives = inside with scale_free = true, or positives = inside"
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (RunSettings(positives="easy", negatives="hard"), "negatives = semihard"),
        (
            RunSettings(positives="easy", negatives="semihard", scale_free=True, lr=3e-3),
            "lr = 0.001",
        ),
        (
            RunSettings(positives="hard", negatives="hard", scale_free=True, pool=8),
            "positives = easy",
        ),
        (RunSettings(), "positives = easy"),
    ],
)
def test_advice_never_names_what_is_already_set(settings: RunSettings, expected: str) -> None:
    health = CollapseMonitor(patience=1).update(torch.zeros(8, 2), [0, 1] * 4)
    words = advise(health, settings).split("try ")[1]
    assert expected in words
    if settings.scale_free:
        assert "scale_free" not in words
    if settings.pool == 8:
        assert "pool" not in words


def test_settings_are_read_from_losses_of_both_libraries() -> None:
    pml = pytest.importorskip("pytorch_metric_learning")
    from pytorch_metric_learning import losses, miners

    ours = RunSettings.of(
        TrimmedLoss(TripletLoss(margin=0.3, miner=Miner("easy", "hard", pool=9)), fraction=0.5)
    )
    assert (ours.positives, ours.negatives, ours.pool, ours.margin) == ("easy", "hard", 9, 0.3)
    assert RunSettings.of(MarginLoss()).margin is None  # a learned boundary: no fixed level
    assert RunSettings.of(ContrastiveLoss(margin=0.7)).collapsed_loss == (0.7, "the margin")
    theirs = RunSettings.of(losses.TripletMarginLoss(margin=0.1), miners.BatchHardMiner())
    assert (theirs.positives, theirs.negatives, theirs.margin) == ("hard", "hard", 0.1)
    assert theirs.normalize is True
    assert pml.__version__


def test_a_loss_that_normalises_is_judged_on_the_sphere() -> None:
    monitor = CollapseMonitor(TripletLoss(margin=0.2, normalize=True))
    for step in range(40):
        z = _batch(step) + min(step, 30) ** 3  # one direction, ever longer
        monitor.update(z, LABELS)
    assert monitor.verdict == "network-collapse"


@pytest.mark.parametrize("cut", [1, 7, 26, 45])
def test_a_resumed_monitor_goes_on_as_if_nothing_had_happened(cut: int) -> None:
    scales = np.logspace(0, -3, 60)
    whole = CollapseMonitor(every=7)
    expected = [
        whole.update(_batch(s) * x, LABELS, 0.2 + x).to_dict() for s, x in enumerate(scales)
    ]
    first = CollapseMonitor(every=7)
    for s, x in enumerate(scales[:cut]):
        first.update(_batch(s) * x, LABELS, 0.2 + x)
    buffer = io.BytesIO()
    torch.save(first.state_dict(), buffer)
    buffer.seek(0)
    second = CollapseMonitor(every=7)
    second.load_state_dict(torch.load(buffer, weights_only=True))
    for s in range(cut, 60):
        health = second.update(_batch(s) * scales[s], LABELS, 0.2 + scales[s])
        assert repr(health.to_dict()) == repr(expected[s])
    assert second.changes == whole.changes


def test_a_restored_monitor_gives_the_very_same_advice() -> None:
    loss_fn = TripletLoss(margin=0.2, miner=Miner("hard", "hard"))
    first, second = CollapseMonitor(loss_fn), CollapseMonitor()  # the state knows the loss
    for step in range(30):
        first.update(_batch(step) * 0.8**step, LABELS, 0.2)
    second.load_state_dict(first.state_dict())
    both = [one.update(_batch(30) * 1e-3, LABELS, 0.2) for one in (first, second)]
    assert both[0].advice.startswith("hard positives mined over 32 samples; ")
    assert "loss has sat at the margin 0.2 for 31 updates" in both[0].advice
    assert both[1].advice == both[0].advice
    assert str(both[1]) == str(both[0])


def test_before_the_first_update_nothing_is_known() -> None:
    monitor = CollapseMonitor()
    assert (monitor.verdict, monitor.advice) == ("unknown", "")
    assert monitor.update(_batch(0), LABELS).verdict == monitor.verdict == "healthy"
    assert monitor.changes == []


def test_no_graph_is_kept_and_nothing_is_changed() -> None:
    z = _batch(0).requires_grad_(True)
    loss_fn = TripletLoss(margin=0.2, miner=Miner("hard", "hard"))
    loss = loss_fn(z, LABELS)
    before = torch.random.get_rng_state()
    monitor = CollapseMonitor(loss_fn)
    monitor.update(z, LABELS, loss)
    loss.backward()
    assert torch.equal(before, torch.random.get_rng_state())
    assert not any(rows.requires_grad for rows in monitor.recent.state_dict()["rows"])


def test_gathered_and_varying_batches_with_string_labels_will_do() -> None:
    monitor = CollapseMonitor(every=3)
    for step, n in enumerate((32, 8, 1, 2000, 300, 32)):
        generator = torch.Generator().manual_seed(step)
        z = torch.randn(n, DIM, generator=generator)
        monitor.update(z, [f"class {i % 8}" for i in range(n)])
    assert monitor.verdict == "healthy"
    with pytest.raises(InputError, match="embeddings"):
        monitor.update(torch.zeros(3), None)


def test_on_change_hears_of_every_change() -> None:
    heard: list[Health] = []
    monitor = CollapseMonitor(on_change=heard.append)
    _run(monitor, np.logspace(0, -4, 60))
    assert [(h.step, h.verdict) for h in heard] == monitor.changes
    assert all(h.advice for h in heard)


def test_a_loss_is_stuck_only_while_it_does_not_move() -> None:
    watch = StuckLoss(needed=5)
    for loss in (0.6931, 0.6932, 0.6930, 0.6931, 0.6931):
        watch.add(loss)
    assert watch.at_level
    assert watch.words == "loss has sat at softplus(0) = 0.6931 for 5 updates"
    watch.add(0.5)
    assert not watch.stuck
    assert watch.words == ""
    for _ in range(6):
        watch.add(0.37)
    assert watch.stuck
    assert not watch.at_level
    assert watch.words == "loss has sat at 0.37 for 6 updates"
    for _ in range(9):
        watch.add(0.0)
    assert not watch.stuck


def test_the_reservoir_stays_small_recent_and_balanced() -> None:
    reservoir = RecentRows(capacity=64, age=5)
    labels = np.repeat([0, 1, 2], [90, 5, 5])
    for step in range(20):
        reservoir.add(torch.full((100, 2), float(step)), labels)
    rows, names = reservoir.rows()
    assert len(rows) <= 64
    assert float(rows.min()) >= 15
    assert names is not None
    assert np.bincount(names).tolist() == [44, 10, 10]


def test_a_loss_with_an_identity_term_is_not_said_to_sit_at_the_margin() -> None:
    inner = TripletLoss(margin=0.2, miner=Miner("hard", "hard"))
    assert CollapseMonitor(inner).loss.level == 0.2
    loss_fn = IdentityLoss(inner, num_classes=8, dim=4)
    assert CollapseMonitor(loss_fn).loss.level is None
    assert CollapseMonitor(loss_fn).settings.strategy == strategy_of(inner)
