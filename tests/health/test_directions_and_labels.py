"""Cones and uninformative neighbours: figures against slow definitions, and both verdicts."""

from __future__ import annotations

import json
from itertools import permutations

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn.functional import normalize

from oracles import distance_matrix
from uncollapse.health import (
    CollapseMonitor,
    Guard,
    Health,
    RunSettings,
    Thresholds,
    judge,
    measure,
)
from uncollapse.health.figures import nearest_labels
from uncollapse.health.loggers import TensorBoardLogger, log_health
from uncollapse.losses import TripletLoss
from uncollapse.mining import Miner


def cone(gap: float, *, n: int = 600, dim: int = 384, seed: int = 0) -> torch.Tensor:
    """Unit rows whose mean cosine is 1 - gap."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(n, dim, generator=generator, dtype=torch.float64) / dim**0.5
    direction = normalize(torch.randn(1, dim, generator=generator, dtype=torch.float64))
    return normalize(direction * ((1 - gap) / gap) ** 0.5 + rows, dim=1).float()


def noise(n: int, classes: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(classes, (n,), generator=torch.Generator().manual_seed(seed + 99))


def clusters(
    n: int, classes: int, dim: int = 16, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % classes
    means = torch.randn(classes, dim, generator=generator)
    return means[labels] + 0.5 * torch.randn(n, dim, generator=generator), labels


@pytest.mark.parametrize("gap", [0.004, 0.0005])
@pytest.mark.parametrize("labelled", [False, True])
def test_unit_rows_in_a_cone_are_not_healthy(gap: float, labelled: bool) -> None:
    for seed in range(2):
        z = cone(gap, seed=seed)
        health = measure(z, noise(600, 10, seed) if labelled else None)
        assert health.cosines is not None
        assert health.cosines.mean == pytest.approx(1 - gap, abs=gap / 10)
        assert health.verdict == "cone", health.reasons
        assert "cosines between rows: mean 0.99" in health.reasons[0]
        if labelled:  # and the second reason is said too
            assert "shuffled labels give" in health.reasons[1]


def test_cosines_are_those_of_the_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(40, 5, generator=generator) * torch.logspace(-3, 3, 40)[:, None] + 0.3
    wide = z.double().numpy()
    pairs = [
        wide[i] @ wide[j] / np.linalg.norm(wide[i]) / np.linalg.norm(wide[j])
        for i in range(40)
        for j in range(i)
    ]
    found = measure(z).cosines
    assert found is not None
    expected = [np.mean(pairs), *np.quantile(pairs, (0.1, 0.5, 0.9))]
    assert [found.mean, found.low, found.median, found.high] == pytest.approx(expected, abs=1e-12)
    assert measure(z[:1]).cosines is None


def test_features_of_cosine_nine_tenths_and_small_units_are_healthy() -> None:
    generator = torch.Generator().manual_seed(0)
    pooled = torch.rand(400, 256, generator=generator) ** 0.5  # non-negative, as pooled features
    health = measure(pooled)
    assert health.cosines is not None
    assert 0.85 < health.cosines.mean < 0.95
    assert health.verdict == "healthy"
    assert measure(torch.randn(400, 64, generator=generator) * 1e-6).verdict == "healthy"


def test_a_few_outlying_rows_do_not_hide_a_cone() -> None:
    z = cone(0.003)
    z[:20] = -z[:20]
    health = measure(z)
    assert health.cosines is not None
    assert health.cosines.mean < 0.9
    assert health.verdict == "cone"


def test_two_opposite_bundles_are_no_cone() -> None:
    z = cone(0.003)
    z[:300] = -z[:300]
    assert measure(z).verdict != "cone"


def test_an_offset_harms_nothing_where_rows_are_compared_by_distance() -> None:
    z, labels = clusters(300, 6)
    assert measure(z + 60, labels).verdict == "cone"
    assert measure(z + 60, labels, cosine=False).verdict == "healthy"
    unit = normalize(z + 60, dim=1)  # of these, distances are cosines
    assert measure(unit, labels, cosine=False).verdict == "cone"


def test_cone_thresholds_are_the_users() -> None:
    z = cone(0.05)
    assert measure(z).verdict == "healthy"
    assert measure(z, thresholds=Thresholds(cone_median=0.9, cone_low=0.9)).verdict == "cone"


def test_nearest_labels_are_exact_for_every_shuffling() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(7, 2))
    x[1] = x[0]  # a duplicate,
    x[4] = (x[2] + x[3]) / 2  # and a tie
    x[3], x[2] = x[4] + 0.01, x[4] - 0.01
    ids = np.array([0, 0, 0, 1, 1, 2, 2])
    distance = distance_matrix(x)

    def share(labels: np.ndarray) -> float:
        total = 0.0
        for i in range(7):
            others = np.delete(np.arange(7), i)
            near = distance[i, others]
            best = others[near <= near.min() * (1 + 1e-9)]
            total += float(np.mean(labels[best] == labels[i]))
        return total / 7

    found = nearest_labels(distance, ids)
    assert found is not None
    every = [share(ids[list(order)]) for order in permutations(range(7))]
    assert found.share == pytest.approx(share(ids))
    assert found.chance == pytest.approx(np.mean(every))
    assert found.deviation == pytest.approx(np.std(every))


def test_rows_alone_in_their_class_are_not_counted() -> None:
    x = np.array([[0.0], [0.1], [5.0], [5.3], [9.0]])
    found = nearest_labels(distance_matrix(x), np.array([0, 0, 1, 1, 2]))
    assert found is not None
    assert (found.rows, found.share) == (4, 1.0)
    assert nearest_labels(distance_matrix(x), np.arange(5)) is None
    assert nearest_labels(distance_matrix(x), np.zeros(5, int)) is None


@pytest.mark.parametrize(("n", "classes"), [(600, 2), (600, 10), (300, 10), (900, 60)])
@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e5])
def test_labels_of_pure_noise_are_uninformative_at_every_scale(
    n: int, classes: int, scale: float
) -> None:
    generator = torch.Generator().manual_seed(0)
    verdicts = []
    for seed in range(12 if scale == 1.0 else 2):
        z = scale * torch.randn(n, 32, generator=generator)
        health = measure(z, noise(n, classes, seed), modes=False)
        verdicts.append(health.verdict)
    # 2.5 % of noise looks better than its interval; three or more of 12 have probability 0.003.
    assert verdicts.count("uninformative") >= len(verdicts) - 2
    assert set(verdicts) <= {"healthy", "uninformative"}


@pytest.mark.parametrize(("n", "classes"), [(60, 10), (90, 2), (120, 2)])
def test_too_few_rows_to_tell_are_not_called_uninformative(n: int, classes: int) -> None:
    for seed in range(5):
        z = torch.randn(n, 16, generator=torch.Generator().manual_seed(seed))
        assert measure(z, noise(n, classes, seed)).verdict == "healthy"


def test_weak_but_real_information_is_not_uninformative() -> None:
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        labels = torch.arange(1000) % 10
        means = 0.5 * torch.randn(10, 16, generator=generator)
        health = measure(
            means[labels] + torch.randn(1000, 16, generator=generator), labels, modes=False
        )
        assert health.nearest is not None
        assert 0.15 < health.nearest.share < 0.6
        assert health.verdict == "healthy"


def test_ties_of_whole_numbers_do_not_hide_what_neighbours_know() -> None:
    labels = torch.arange(400) % 4
    codes = torch.nn.functional.one_hot(labels, 4).float()
    codes[torch.arange(400) % 5 == 0] = 0.0  # a fifth of the rows are one point
    health = measure(codes, labels, Thresholds(tightness=0.0))
    assert health.nearest is not None
    assert health.nearest.share > 0.7
    assert health.agreement is not None
    assert health.verdict != "uninformative"


def test_one_class_that_is_nearly_everything_is_left_undecided() -> None:
    z = torch.randn(500, 16, generator=torch.Generator().manual_seed(0))
    labels = (torch.arange(500) < 12).long()
    assert measure(z, labels).verdict == "healthy"


def test_near_duplicates_do_not_make_noise_look_sure() -> None:
    """Pairs that are nearest to each other vote together: the interval is wider than Wilson's."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(300, 8, generator=generator).repeat_interleave(2, dim=0)
    z = z + 1e-4 * torch.randn(600, 8, generator=generator)
    verdicts = []
    for seed in range(20):
        health = measure(z, noise(600, 10, seed), modes=False)
        assert health.nearest is not None
        near = health.nearest
        wilson = stats.binomtest(round(near.share * 600), 600).proportion_ci(method="wilson")
        assert 2 * 1.96 * near.deviation > 1.2 * (wilson.high - wilson.low)
        verdicts.append(health.verdict)
    assert verdicts.count("uninformative") >= 18


def test_the_order_of_the_words_is_as_documented() -> None:
    z = cone(0.004)
    labels = noise(600, 10)
    both = measure(z, labels)
    assert [both.verdict, len(both.reasons)] == ["cone", 2]
    assert judge(both, ignore=["cone"]).verdict == "uninformative"
    assert judge(both, ignore=["cone", "uninformative"]).verdict == "healthy"
    flat = torch.zeros(600, 384)
    flat[:, 0], flat[:, 1] = 1.0, 0.03 * torch.randn(600)
    assert measure(flat, labels).verdict == "dimensional-collapse"


def test_health_with_the_new_figures_survives_json_and_reads_what_earlier_versions_wrote() -> None:
    z, labels = clusters(120, 4)
    health = measure(z, labels)
    plain = json.loads(json.dumps(health.to_dict()))
    again = Health.from_dict(plain)
    assert (again.cosines, again.nearest) == (health.cosines, health.nearest)
    del plain["cosines"], plain["nearest"]
    plain["norms"]["deviation"] = 0.1
    old = Health.from_dict(plain)
    assert old.cosines is None
    assert judge(old).verdict == "healthy"
    assert "mean_cosine" in health.scalars()


def test_a_monitor_says_cone_of_unit_rows_that_become_one_and_never_uninformative() -> None:
    z, _ = clusters(64, 8)
    start = normalize(z - z.mean(0), dim=1)
    labels = noise(64, 8)
    limits = Thresholds(shrink_ratio=0.02)  # so that cone is what is left to say
    monitor = CollapseMonitor(thresholds=limits, every=2, patience=2)
    for _ in range(12):
        assert monitor.update(start, labels).verdict == "healthy"
    for _ in range(60):
        monitor.update(cone(0.003, n=64, dim=16), labels)
    assert [verdict for _, verdict in monitor.changes] == ["cone"]
    assert "the mean" in monitor.advice


@pytest.mark.parametrize("normalised", [False, True])
def test_a_network_that_begins_as_a_cone_is_no_alarm(normalised: bool) -> None:
    """Untrained networks often do, with labels that mean nothing yet."""
    settings = RunSettings(normalize=normalised)
    monitor = CollapseMonitor(settings=settings, every=2, patience=2)
    generator = torch.Generator().manual_seed(0)
    for step in range(40):
        z = 5 * cone(0.004, n=128, dim=32)
        z = z + 0.01 * torch.randn(z.shape, generator=generator)
        assert monitor.update(z, noise(128, 4, step)).verdict == "healthy", step
    if normalised:  # once left, it is one again
        open_rows = torch.randn(128, 32, generator=generator)
        for _ in range(40):
            assert monitor.update(open_rows, noise(128, 4)).verdict == "healthy"
        again = CollapseMonitor(settings=settings, every=2, patience=2)
        again.load_state_dict(monitor.state_dict())
        assert again.state_dict()["began_as_cone"] is False


def test_a_guard_warns_of_a_cone_once_and_does_not_roll_back() -> None:
    model = torch.nn.Linear(16, 16)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    limits = Thresholds(shrink_ratio=0.02)
    monitor = CollapseMonitor(
        settings=RunSettings(normalize=True), thresholds=limits, every=2, patience=2
    )
    guard = Guard(model, optimiser, lambda z, labels: z.square().sum(), monitor, action="rescue")
    z, labels = clusters(64, 8)
    for _ in range(4):
        guard.after_step(z, labels, 0.1)
    for _ in range(80):
        guard.after_step(normalize(z + 40, dim=1), labels, 0.1)
    assert [event.kind for event in guard.events if "cone" in event.text] == ["warning"]


def test_tensorboard_gets_the_mean_cosine_and_the_words() -> None:
    written: dict[str, object] = {}

    class Writer:
        def add_scalar(self, tag: str, value: float, step: int | None = None) -> None:
            written[tag] = value

        def add_text(self, tag: str, text: str, step: int | None = None) -> None:
            written[tag + "/text"] = text

    log_health(TensorBoardLogger(writer=Writer()), measure(cone(0.004)))
    assert written["collapse/mean_cosine"] == pytest.approx(0.996, abs=1e-3)
    assert str(written["collapse/verdict/text"]).startswith("cone\n")


def test_unit_rows_that_fall_into_a_cone_are_called_one_within_30_updates() -> None:
    generator = torch.Generator().manual_seed(0)
    monitor = CollapseMonitor()  # by default: full measures every 50 updates
    labels = torch.arange(64) % 8
    for _ in range(60):
        z = normalize(torch.randn(64, 32, generator=generator), dim=1)
        assert monitor.update(z, labels).verdict == "healthy"
    for z in cone(0.006, n=64 * 30, dim=32).chunk(30):
        monitor.update(z, labels)
    assert [verdict for _, verdict in monitor.changes] == ["shrinking", "cone"]
    assert monitor.changes[-1][0] < 60 + 30
    health = monitor.health
    assert health is not None
    assert len(health.reasons) > 1  # the fall in scale is said too


@pytest.mark.parametrize("action", ["warn", "stop", "rescue"])
def test_a_guard_acts_on_a_cone_that_the_loss_has_made(action: str) -> None:
    model = torch.nn.Linear(32, 32)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    hard = TripletLoss(margin=0.2, miner=Miner("hard", "hard"))
    limits = Thresholds(shrink_ratio=0.02)  # so that cone is what is left to say
    monitor = CollapseMonitor(hard, thresholds=limits, patience=2)
    guard = Guard(model, optimiser, hard, monitor, action=action, race=False)
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(64) % 8
    for _ in range(20):
        guard.after_step(normalize(torch.randn(64, 32, generator=generator), dim=1), labels)
    assert not guard.events
    for z in cone(0.006, n=64 * 30, dim=32).chunk(30):
        guard.after_step(z, labels)
        if guard.stopped or any(event.kind == "rescue" for event in guard.events):
            break
    kinds = {event.kind for event in guard.events}
    assert {"warn": "warning", "stop": "stop", "rescue": "rescue"}[action] in kinds
    assert any(event.text.startswith(("cone", "stopped: cone")) for event in guard.events) or (
        action == "rescue"  # which looks ahead, and need not wait for the word
    )
