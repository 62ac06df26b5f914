"""The monitor on sequences whose story is known."""

import io
import math
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from pytorch_metric_learning import losses, miners
from pytorch_metric_learning.distances import LpDistance

from support.errors import refused
from uncollapse.health import CollapseMonitor, RunSettings
from uncollapse.health.advice import advise
from uncollapse.health.figures import health_figures
from uncollapse.health.monitor import RecentRows, tight_share
from uncollapse.health.strategy import settings_of, strategy_of
from uncollapse.losses import (
    ArcFaceLoss,
    ContrastiveLoss,
    IdentityLoss,
    MarginLoss,
    TrimmedLoss,
    TripletLoss,
)
from uncollapse.mining import Miner

P, K, DIM = 8, 4, 16
LABELS = torch.arange(P).repeat_interleave(K)
SOON = 30  # updates from the onset of a class collapse to the warning


def _batch(seed, inside=0.5):
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(P, DIM, generator=generator)
    return means[LABELS] + inside * torch.randn(P * K, DIM, generator=generator)


def _hard(**options):
    return TripletLoss(margin=0.2, miner=Miner("hard", "hard"), **options)


def _run(monitor, scales):
    return [monitor.update(_batch(step) * x, LABELS) for step, x in enumerate(scales)]


@pytest.mark.parametrize(
    ("dtype", "scale"), [(torch.float32, 1e-6), (torch.bfloat16, 1.0), (torch.float64, 1e6)]
)
def test_a_collapse_is_called_shrinking_and_then_network_collapse(dtype, scale):
    heard = []
    monitor = CollapseMonitor(on_change=heard.append)
    for step, x in enumerate(scale * np.logspace(0, -4, 60)):
        monitor.update((_batch(step) * x).to(dtype), LABELS)
    assert [verdict for _, verdict in monitor.changes] == ["shrinking", "network-collapse"]
    assert "of its reference scale" in str(monitor.health)
    assert [(health.step, health.verdict) for health in heard] == monitor.changes
    assert all(health.advice for health in heard)


def test_a_healthy_run_that_grows_wobbles_and_tightens_raises_no_alarm():
    monitor = CollapseMonitor(every=10)
    rng = np.random.default_rng(0)
    for step in range(100):
        size = 1 + step / 10 + rng.uniform(-0.3, 0.3)
        monitor.update(size * _batch(step, 0.6 - step / 250), LABELS, 0.2 / (1 + step / 25))
    assert monitor.changes == []
    assert monitor.advice == ""


@pytest.mark.parametrize("lost", ["embeddings", "the loss"])
def test_nan_is_diverging_at_once_and_the_run_may_recover(lost):
    monitor = CollapseMonitor()
    monitor.update(_batch(0), LABELS, 0.3)
    z = _batch(1)
    if lost == "embeddings":
        z[3, 2] = math.nan
    health = monitor.update(z, LABELS, 0.3 if lost == "embeddings" else math.inf)
    assert health.verdict == "diverging"
    assert lost in health.reasons[0]
    for step in range(2, 6):
        monitor.update(_batch(step), LABELS, 0.3)
    assert monitor.verdict == "healthy"


@pytest.mark.parametrize("labelled", [True, False])
def test_dimensional_collapse_is_seen_by_the_full_measure(labelled):
    monitor = CollapseMonitor(every=5)
    for step in range(40):
        z = _batch(step)
        if step > 10:
            z[:, 1:] *= 1e-3
        monitor.update(z, LABELS if labelled else None)
    assert monitor.verdict == "dimensional-collapse"
    assert "network-collapse" not in dict(monitor.changes).values()
    assert "16 dimensions, 1 in use" in monitor.advice


def test_a_smaller_scale_with_better_classes_is_healthy():
    monitor = CollapseMonitor()
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(P, DIM, generator=generator)
    for step in range(100):
        size, inside = max(0.15, 0.97**step), max(0.35, 1.5 * 0.97**step)
        noise = torch.randn(P * K, DIM, generator=generator)
        monitor.update(size * (means[LABELS] + inside * noise), LABELS)
    assert monitor.changes == []
    assert (monitor.health.relative_diameter or 1) < 0.2


ODD = np.ones(30)
ODD[[10, 20]] = 1e-5
FLAPPING = np.r_[1.0, 0.25 + np.random.default_rng(0).uniform(-0.06, 0.06, 150)]


@pytest.mark.parametrize(
    ("scales", "expected"),
    [
        (FLAPPING, ["shrinking"]),
        (ODD, []),
        (np.r_[np.ones(5), np.full(10, 0.1), np.full(10, 0.9)], ["shrinking", "healthy"]),
        (np.logspace(0, 5, 60), ["diverging"]),
    ],
    ids=["at a threshold", "two odd batches", "recovered", "blows up"],
)
def test_verdicts_change_once_and_for_a_reason(scales, expected):
    monitor = CollapseMonitor()
    _run(monitor, scales)
    assert [verdict for _, verdict in monitor.changes] == expected
    assert ("a tenth of the learning rate, gradient clipping" in monitor.advice) == (
        expected == ["diverging"]
    )


def test_a_collapse_from_a_large_healthy_scale_is_measured_from_there():
    monitor = CollapseMonitor(every=5)
    _run(monitor, np.r_[np.linspace(1, 60, 40), np.full(6, 0.4)])
    assert monitor.verdict == "network-collapse"
    assert "of the largest it had while healthy" in str(monitor.health)


@pytest.mark.parametrize(("soft", "level"), [(False, "0.2 = margin"), (True, "0.7981 = ln(1 +")])
def test_a_loss_that_sits_at_its_collapsed_value_says_collapse(soft, level):
    loss_fn = _hard(soft=soft)
    monitor = CollapseMonitor(loss_fn)
    for step in range(60):
        z = 1e-4 * _batch(step)  # already collapsed when the monitor is attached
        monitor.update(z, LABELS, loss_fn(z, LABELS))
    assert [verdict for _, verdict in monitor.changes] == ["network-collapse"]
    assert f"loss has sat at {level}" in monitor.advice


def test_a_small_start_that_grows_is_no_collapse_though_the_loss_sits_at_the_margin():
    loss_fn = TripletLoss(margin=1.0, miner=Miner("easy", "hard"))
    monitor = CollapseMonitor(loss_fn)
    for step, x in enumerate(1e-5 * np.logspace(0, 1.8, 80)):
        z = x * _batch(step)
        monitor.update(z, LABELS, loss_fn(z, LABELS))
    assert monitor.loss.stuck
    assert monitor.changes == []


def test_advice_is_the_sentence_that_the_run_calls_for():
    monitor = CollapseMonitor(_hard(), look_every=1)
    assert (monitor.verdict, monitor.advice) == ("unknown", "")
    for step in range(60):
        monitor.update(_batch(step) * max(0.003, 0.8**step), LABELS, 0.2)
    assert monitor.advice.startswith("hard positives mined over 32 samples; diameter fell to 0.")
    assert "in 59 steps; loss has sat at 0.2 = margin for 60 updates: all " in monitor.advice
    assert monitor.advice.endswith(
        "try positives = inside with scale_free = true, or positives = inside"
    )


@pytest.mark.parametrize(
    ("settings", "expected", "unexpected"),
    [
        (RunSettings("easy", "hard"), "negatives = semihard", "positives"),
        (RunSettings("easy", "semihard", scale_free=True, lr=3e-3), "lr = 0.0003", "scale_free"),
        (RunSettings("hard", "hard", scale_free=True, pool=8), "positives = easy", "scale_free"),
        (RunSettings("hard", "hard", scale_free=True, pool=8), "positives = easy", "pool"),
        (RunSettings(), "positives = easy", "scale_free"),
    ],
)
def test_advice_never_names_what_is_already_set(settings, expected, unexpected):
    health = CollapseMonitor(patience=1).update(torch.zeros(8, 2), [0, 1] * 4)
    words = advise(health, settings).split("try ")[1]
    assert expected in words
    assert unexpected not in words


def test_settings_are_read_from_losses_of_both_libraries():
    inner = TripletLoss(margin=0.3, miner=Miner("easy", "hard", pool=9))
    ours = settings_of(TrimmedLoss(inner, fraction=0.5))
    assert (ours.positives, ours.negatives, ours.pool, ours.margin) == ("easy", "hard", 9, 0.3)
    assert settings_of(MarginLoss()).margin is None  # a learned boundary: no fixed level
    assert settings_of(ContrastiveLoss(margin=0.7)).margin == 0.7
    theirs = settings_of(losses.TripletMarginLoss(margin=0.1), miners.BatchHardMiner())
    expected = ("hard", "hard", 0.1, True)
    assert (theirs.positives, theirs.negatives, theirs.margin, theirs.normalize) == expected
    summed = CollapseMonitor(IdentityLoss(_hard(), num_classes=8, dim=4))
    assert [level.value for level in CollapseMonitor(_hard()).loss.levels] == [0.2, math.log(2)]
    assert len(summed.loss.levels) == 1  # what else is added has its own value at a point
    assert summed.settings.strategy == strategy_of(_hard())


def test_a_loss_that_normalises_is_judged_on_the_sphere():
    monitor = CollapseMonitor(TripletLoss(margin=0.2, normalize=True))
    for step in range(40):
        z = _batch(step) + min(step, 30) ** 3  # one direction, ever longer
        monitor.update(z, LABELS)
    assert monitor.verdict == "network-collapse"


@pytest.mark.parametrize("cut", [1, 7, 45])
def test_a_resumed_monitor_goes_on_as_if_nothing_had_happened(cut):
    scales = np.logspace(0, -3, 60)

    def seen(monitor, start, end):
        steps = range(start, end)
        return [monitor.update(_batch(s) * scales[s], LABELS, 0.2 + 0.1 * scales[s]) for s in steps]

    whole, first = (CollapseMonitor(_hard(), every=7) for _ in range(2))
    second = CollapseMonitor(every=7)  # the state knows the loss
    expected = seen(whole, 0, 60)
    assert "loss has sat at 0.2 = margin for" in expected[-1].advice
    seen(first, 0, cut)
    buffer = io.BytesIO()
    torch.save(first.state_dict(), buffer)
    buffer.seek(0)
    second.load_state_dict(torch.load(buffer, weights_only=True))
    assert repr(seen(second, cut, 60)) == repr(expected[cut:])
    assert second.changes == whole.changes


def test_no_graph_is_kept_and_nothing_is_changed():
    z, loss_fn = _batch(0).requires_grad_(True), _hard()
    loss = loss_fn(z, LABELS)
    before = torch.random.get_rng_state()
    monitor = CollapseMonitor(loss_fn)
    assert monitor.update(z, LABELS, loss).verdict == monitor.verdict == "healthy"
    loss.backward()
    assert torch.equal(before, torch.random.get_rng_state())
    assert not any(rows.requires_grad for rows in monitor.recent.state_dict()["rows"])


def test_gathered_and_varying_batches_with_string_labels_will_do():
    monitor = CollapseMonitor(every=3)
    for step, n in enumerate((32, 8, 1, 2000, 300, 32)):
        generator = torch.Generator().manual_seed(step)
        z = torch.randn(n, DIM, generator=generator)
        monitor.update(z, [f"class {i % 8}" for i in range(n)])
    assert monitor.verdict == "healthy"
    with refused("embeddings"):
        monitor.update(torch.zeros(3), None)


def test_recent_rows_stay_few_recent_and_balanced():
    recent = RecentRows(capacity=64, age=5)
    for step in range(20):
        recent.add(torch.full((100, 2), float(step)), np.repeat([0, 1, 2], [90, 5, 5]))
    rows, names = recent.rows()
    assert len(rows) <= 64
    assert float(rows.min()) >= 15
    assert np.bincount(names).tolist() == [44, 10, 10]
    for _ in range(9):
        recent.add(torch.zeros(2, 2), [0, 1])
    assert len(recent.rows()[0]) == 2 * 5  # the small batches of its age


# Class collapse is reported soon after its onset, and looking for it costs little.


def _classes(p, k, inside, generator):
    """A batch of some of 40 classes."""
    labels = torch.randperm(40, generator=generator)[:p].repeat_interleave(k)
    means = torch.randn(40, 16, generator=torch.Generator().manual_seed(0))
    return means[labels] + inside * torch.randn(p * k, 16, generator=generator), labels


def _collapsed(z, labels):
    """Three quarters of the pairs of a tenth of the classes within 5 % of the distance between."""
    far, same = torch.cdist(z.double(), z.double()), labels[:, None] == labels
    apart = far[~same].median()
    pairs = [torch.pdist(z[labels == c].double()) for c in labels.unique()]
    tight = [bool(within.quantile(0.75) <= 0.05 * apart) for within in pairs]
    return bool(np.mean(tight) >= 0.1)


@pytest.mark.parametrize(
    ("p", "k", "onset"),
    [
        (18, 8, 102),
        (2, 2, 151),
        pytest.param(2, 60, 151, marks=pytest.mark.slow),
        pytest.param(40, 2, 203, marks=pytest.mark.slow),
    ],
)
def test_class_collapse_is_reported_within_30_updates_of_its_onset(p, k, onset):
    monitor = CollapseMonitor()
    generator = torch.Generator().manual_seed(onset)
    for step in range(onset + SOON + 1):
        monitor.update(*_classes(p, k, 0.5 if step < onset else 1e-3, generator), step=step)
    assert [verdict for _, verdict in monitor.changes] == ["class-collapse"]
    assert onset <= monitor.changes[0][0] <= onset + SOON


def test_classes_that_shrink_slowly_are_reported_within_30_updates_of_the_threshold():
    monitor, generator, onset = CollapseMonitor(), torch.Generator().manual_seed(0), None
    for step in range(200):
        z, labels = _classes(8, 8, 0.5 * 0.97**step, generator)
        if onset is None and _collapsed(z, labels):
            onset = step
        monitor.update(z, labels, step=step)
    ((reported, verdict),) = monitor.changes
    assert verdict == "class-collapse"
    assert reported <= onset + SOON


@pytest.mark.parametrize("look_tight", [False, True])
def test_a_healthy_run_makes_few_full_measures(monkeypatch, look_tight):
    measures = []

    def counting(*args, **kwargs):
        measures.append(1)
        return health_figures(*args, **kwargs)

    monkeypatch.setattr("uncollapse.health.monitor.health_figures", counting)
    if look_tight:
        monkeypatch.setattr("uncollapse.health.monitor.tight_share", lambda *_: 1.0)
    monitor, generator = CollapseMonitor(), torch.Generator().manual_seed(0)
    for step in range(201):
        monitor.update(*_classes(18, 8, 0.5, generator), step=step)
    assert monitor.changes == []
    due = 2 + 200 // 50  # the first, the reference's classes, and every 50
    assert len(measures) <= due + (6 + 200 / 15 if look_tight else 0)


def test_the_look_at_a_batch_agrees_with_the_full_measure():
    generator = torch.Generator().manual_seed(0)
    for inside, expected in ((1.0, 0.0), (1e-3, 1.0)):
        assert tight_share(*_classes(10, 6, inside, generator), 0.05) == expected
    z, labels = _classes(10, 6, 1.0, generator)
    for c in labels.unique()[:3]:
        z[labels == c] = z[labels == c].mean(0) + 1e-4 * torch.randn(6, 16, generator=generator)
    assert tight_share(z, labels, 0.05) == pytest.approx(0.3)
    assert tight_share(1e-30 * z.double(), labels, 0.05) == pytest.approx(0.3)
    for classes, expected in {"aaaa": 0.0, "abcd": 0.0, "a": 0.0, "aabb": 1.0}.items():
        assert tight_share(torch.zeros(len(classes), 2), list(classes), 0.05) == expected


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_example_shows_a_collapse_and_a_healthy_run(capsys):
    train = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "pml.py"))["train"]
    distance = LpDistance(normalize_embeddings=False)
    assert train(miners.BatchHardMiner(distance=distance)).verdict == "network-collapse"
    assert "hard positives mined over 80 samples" in capsys.readouterr().out
    gentle = miners.BatchEasyHardMiner("easy", "semihard", distance=distance)
    assert train(gentle).verdict == "healthy"


def test_pairs_of_views_are_not_called_collapsed_classes():
    monitor, views = CollapseMonitor(patience=1), torch.randn(60, 8)
    for step in range(12):
        z = torch.randn(30, 8, generator=torch.Generator().manual_seed(step))
        views = torch.cat([z, z + 1e-4 * torch.randn(30, 8)])
        ids = 30 * step + torch.arange(30).repeat(2)
        assert monitor.update(views, ids, step=step).verdict == "healthy"


def test_few_axes_in_the_first_updates_are_said_only_if_they_stay():
    generator = torch.Generator().manual_seed(0)
    flat = torch.randn(2, 32, generator=generator)
    monitor = CollapseMonitor(every=10, patience=1)
    verdicts = [
        monitor.update(torch.randn(64, 2, generator=generator) @ flat, step=step).verdict
        for step in range(40)
    ]
    assert set(verdicts[:10]) == {"healthy"}
    assert verdicts[-1] == "dimensional-collapse"


def test_a_loss_with_a_vector_per_class_is_not_said_to_mine():
    assert CollapseMonitor(ArcFaceLoss(num_classes=3, dim=4)).settings.positives is None
    assert CollapseMonitor(TripletLoss()).settings.positives == "all"
