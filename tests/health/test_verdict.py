"""Verdicts on cones, labels and modes inside classes; their figures against slow definitions."""

import json
import math
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch.nn.functional import normalize

import uncollapse as uc
from support.errors import refused
from support.oracles import distance_matrix
from uncollapse.health import CollapseMonitor, Health, Reference, Thresholds, judge, measure
from uncollapse.health.figures import fine_neighbours, modes_kept, nearest_labels
from uncollapse.losses import TripletLoss
from uncollapse.mining import Miner


def cone(gap, *, n=600, dim=384, seed=0):
    """Unit rows whose mean cosine is 1 - gap."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(n, dim, generator=generator, dtype=torch.float64) / dim**0.5
    direction = normalize(torch.randn(1, dim, generator=generator, dtype=torch.float64))
    return normalize(direction * ((1 - gap) / gap) ** 0.5 + rows, dim=1).float()


def noise(n, classes, seed=0):
    return torch.randint(classes, (n,), generator=torch.Generator().manual_seed(seed + 99))


def clusters(n, classes, dim=16):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % classes
    means = torch.randn(classes, dim, generator=generator)
    return means[labels] + 0.5 * torch.randn(n, dim, generator=generator), labels


@pytest.mark.parametrize("gap", [0.004, 0.0005])
@pytest.mark.parametrize("labelled", [False, True])
def test_unit_rows_in_a_cone_are_not_healthy(gap, labelled):
    health = measure(cone(gap), noise(600, 10) if labelled else None, modes=False)
    assert health.cosines.mean == pytest.approx(1 - gap, abs=gap / 10)
    assert health.verdict == "cone", health.reasons
    assert "cosines between rows: mean 0.99" in health.reasons[0]
    if labelled:  # and the second reason is said too
        assert "shuffled labels give" in health.reasons[1]


def test_cosines_are_those_of_the_definition():
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(40, 5, generator=generator) * torch.logspace(-3, 3, 40)[:, None] + 0.3
    wide = z.double().numpy()
    pairs = [
        wide[i] @ wide[j] / np.linalg.norm(wide[i]) / np.linalg.norm(wide[j])
        for i in range(40)
        for j in range(i)
    ]
    cosines = measure(z).cosines
    expected = [np.mean(pairs), *np.quantile(pairs, (0.1, 0.5, 0.9))]
    figures = [cosines.mean, cosines.low, cosines.median, cosines.high]
    assert figures == pytest.approx(expected, abs=1e-12)


def test_features_of_cosine_nine_tenths_and_small_units_are_healthy():
    generator = torch.Generator().manual_seed(0)
    pooled = torch.rand(400, 256, generator=generator) ** 0.5  # non-negative, as pooled features
    health = measure(pooled)
    assert 0.85 < health.cosines.mean < 0.95
    assert health.verdict == "healthy"
    assert measure(torch.randn(400, 64, generator=generator) * 1e-6).verdict == "healthy"
    assert measure(cone(0.05)).verdict == "healthy"
    assert measure(cone(0.05), None, Thresholds(cone_median=0.9, cone_low=0.9)).verdict == "cone"


def test_a_few_opposite_rows_do_not_hide_a_cone_and_half_of_them_make_it_none():
    z = cone(0.003)
    z[:20] = -z[:20]
    health = measure(z)
    assert health.cosines.mean < 0.9
    assert health.verdict == "cone"
    z[20:300] = -z[20:300]
    assert measure(z).verdict != "cone"


def test_an_offset_harms_nothing_where_rows_are_compared_by_distance():
    z, labels = clusters(300, 6)
    assert measure(z + 60, labels, modes=False).verdict == "cone"
    assert measure(z + 60, labels, cosine=False, modes=False).verdict == "healthy"
    unit = normalize(z + 60, dim=1)  # of these, distances are cosines
    assert measure(unit, labels, cosine=False, modes=False).verdict == "cone"


def test_nearest_labels_are_exact_for_every_shuffling():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(7, 2))
    x[1] = x[0]  # a duplicate,
    x[4] = (x[2] + x[3]) / 2  # and a tie
    x[3], x[2] = x[4] + 0.01, x[4] - 0.01
    ids = np.array([0, 0, 0, 1, 1, 2, 2])
    distance = distance_matrix(x)

    def share(labels):
        total = 0.0
        for i in range(7):
            others = np.delete(np.arange(7), i)
            near = distance[i, others]
            best = others[near <= near.min() * (1 + 1e-9)]
            total += float(np.mean(labels[best] == labels[i]))
        return total / 7

    nearest = nearest_labels(distance, ids)
    every = [share(ids[list(order)]) for order in permutations(range(7))]
    assert nearest.share == pytest.approx(share(ids))
    assert nearest.chance == pytest.approx(np.mean(every))
    assert nearest.deviation == pytest.approx(np.std(every))


def test_rows_alone_in_their_class_are_not_counted():
    x = np.array([[0.0], [0.1], [5.0], [5.3], [9.0]])
    nearest = nearest_labels(distance_matrix(x), np.array([0, 0, 1, 1, 2]))
    assert (nearest.rows, nearest.share) == (4, 1.0)
    assert nearest_labels(distance_matrix(x), np.arange(5)) is None
    assert nearest_labels(distance_matrix(x), np.zeros(5, int)) is None


@pytest.mark.parametrize(("n", "classes"), [(600, 2), (300, 10), (900, 60)])
@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e5])
def test_labels_of_pure_noise_are_uninformative_at_every_scale(n, classes, scale):
    generator = torch.Generator().manual_seed(0)
    verdicts = []
    for seed in range(6 if scale == 1.0 else 2):
        z = scale * torch.randn(n, 32, generator=generator)
        verdicts.append(measure(z, noise(n, classes, seed), modes=False).verdict)
    # 2.5 % of noise looks better than its interval; three or more of 6 have probability 0.0003.
    assert verdicts.count("uninformative") >= len(verdicts) - 2
    assert set(verdicts) <= {"healthy", "uninformative"}


@pytest.mark.parametrize(("n", "classes"), [(60, 10), (90, 2), (120, 2)])
def test_too_few_rows_to_tell_are_not_called_uninformative(n, classes):
    for seed in range(3):
        z = torch.randn(n, 16, generator=torch.Generator().manual_seed(seed))
        assert measure(z, noise(n, classes, seed), modes=False).verdict == "healthy"


def test_weak_but_real_information_is_not_uninformative():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(1000) % 10
    means = 0.5 * torch.randn(10, 16, generator=generator)
    z = means[labels] + torch.randn(1000, 16, generator=generator)
    health = measure(z, labels, modes=False)
    assert 0.15 < health.nearest.share < 0.6
    assert health.verdict == "healthy"


def test_ties_of_whole_numbers_do_not_hide_what_neighbours_know():
    labels = torch.arange(400) % 4
    codes = torch.nn.functional.one_hot(labels, 4).float()
    codes[torch.arange(400) % 5 == 0] = 0.0  # a fifth of the rows are one point
    health = measure(codes, labels, Thresholds(tightness=0.0), modes=False)
    assert health.nearest.share > 0.7
    assert health.agreement == pytest.approx(0.8)  # where ties count against
    assert health.verdict != "uninformative"


def test_one_class_that_is_nearly_everything_is_left_undecided():
    z = torch.randn(500, 16, generator=torch.Generator().manual_seed(0))
    labels = (torch.arange(500) < 12).long()
    assert measure(z, labels, modes=False).verdict == "healthy"


def test_near_duplicates_do_not_make_noise_look_sure():
    """Pairs that are nearest to each other vote together: the interval is wider than Wilson's."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(300, 8, generator=generator).repeat_interleave(2, dim=0)
    z = z + 1e-4 * torch.randn(600, 8, generator=generator)
    verdicts = []
    for seed in range(8):
        health = measure(z, noise(600, 10, seed), modes=False)
        near = health.nearest
        wilson = stats.binomtest(round(near.share * 600), 600).proportion_ci(method="wilson")
        assert 2 * 1.96 * near.deviation > 1.2 * (wilson.high - wilson.low)
        verdicts.append(health.verdict)
    assert verdicts.count("uninformative") >= 6


def test_the_order_of_the_words_is_as_documented():
    labels = noise(600, 10)
    both = measure(cone(0.004), labels, modes=False)
    assert [both.verdict, len(both.reasons)] == ["cone", 2]
    assert judge(both, ignore=["cone"]).verdict == "uninformative"
    assert judge(both, ignore=["cone", "uninformative"]).verdict == "healthy"
    flat = torch.zeros(600, 384)
    flat[:, 0], flat[:, 1] = 1.0, 0.03 * torch.randn(600)
    assert measure(flat, labels, modes=False).verdict == "dimensional-collapse"


def test_health_is_read_from_what_earlier_versions_wrote():
    health = measure(*clusters(120, 4), modes=False)
    plain = json.loads(json.dumps(health.to_dict()))
    del plain["cosines"], plain["nearest"]
    plain["norms"]["deviation"] = 0.1
    old = Health.from_dict(plain)
    assert old.cosines is None
    assert judge(old).verdict == "healthy"
    assert "mean_cosine" in health.scalars()


@pytest.mark.parametrize("normalised", [False, True])
def test_a_network_that_begins_as_a_cone_is_no_alarm(normalised):
    """Untrained networks often do, with labels that mean nothing yet."""
    settings = uc.health.RunSettings(normalize=normalised)
    monitor = CollapseMonitor(settings=settings, every=2, patience=2)
    generator = torch.Generator().manual_seed(0)
    for step in range(12):
        z = 5 * cone(0.004, n=128, dim=32)
        z = z + 0.01 * torch.randn(z.shape, generator=generator)
        assert monitor.update(z, noise(128, 4, step)).verdict == "healthy", step
    if normalised:  # once left, it is one again
        open_rows = torch.randn(128, 32, generator=generator)
        for _ in range(12):
            assert monitor.update(open_rows, noise(128, 4)).verdict == "healthy"
        again = CollapseMonitor(settings=settings, every=2, patience=2)
        again.load_state_dict(monitor.state_dict())
        assert again.state_dict()["began_as_cone"] is False


CONE_ALONE = Thresholds(shrink_ratio=0.02)  # so that cone is what is left to say


def guard_of(loss_fn, monitor, **options):
    model = torch.nn.Linear(4, 4)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    return uc.Guard(model, optimiser, loss_fn, monitor, **options)


def test_a_guard_warns_of_a_cone_once_and_does_not_roll_back():
    settings = uc.health.RunSettings(normalize=True)
    monitor = CollapseMonitor(settings=settings, thresholds=CONE_ALONE, every=2, patience=2)
    guard = guard_of(lambda z, labels: z.square().sum(), monitor)
    z, labels = clusters(64, 8)
    for step in range(34):
        guard.after_step(z if step < 4 else normalize(z + 40, dim=1), labels, 0.1)
    assert [event.kind for event in guard.events if "cone" in event.text] == ["warning"]


def test_unit_rows_that_fall_into_a_cone_are_called_one_within_30_updates():
    generator = torch.Generator().manual_seed(0)
    monitor = CollapseMonitor()  # by default: full measures every 50 updates
    labels = noise(64, 8)  # which no monitor calls uninformative
    for _ in range(60):
        z = normalize(torch.randn(64, 32, generator=generator), dim=1)
        assert monitor.update(z, labels).verdict == "healthy"
    for z in cone(0.006, n=64 * 30, dim=32).chunk(30):
        monitor.update(z, labels)
    assert [verdict for _, verdict in monitor.changes] == ["shrinking", "cone"]
    assert monitor.changes[-1][0] < 60 + 30
    assert len(monitor.health.reasons) > 1  # the fall in scale is said too
    assert "subtract the mean" in monitor.advice


@pytest.mark.parametrize(
    ("action", "kind"), [("warn", "warning"), ("stop", "stop"), ("rescue", "rescue")]
)
def test_a_guard_acts_on_a_cone_that_the_loss_has_made(action, kind):
    hard = TripletLoss(margin=0.2, miner=Miner("hard", "hard"))
    monitor = CollapseMonitor(hard, thresholds=CONE_ALONE, patience=2)
    guard = guard_of(hard, monitor, action=action, race=False)
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(64) % 8
    for _ in range(20):
        guard.after_step(normalize(torch.randn(64, 32, generator=generator), dim=1), labels)
    assert not guard.events
    for z in cone(0.006, n=64 * 30, dim=32).chunk(30):
        guard.after_step(z, labels)
        if guard.stopped or any(event.kind == "rescue" for event in guard.events):
            break
    assert kind in {event.kind for event in guard.events}
    if action != "rescue":  # which looks ahead, and need not wait for the word
        assert any(event.text.startswith(("cone", "stopped: cone")) for event in guard.events)


# Class collapse as EPS §4 has it: modes inside classes that merge while classes stay apart.

CLASSES, MODES, EACH, DIM = 4, 5, 20, 16
N = CLASSES * MODES * EACH
LABELS = np.repeat(np.arange(CLASSES), MODES * EACH)
FINE = np.tile(np.repeat(np.arange(MODES), EACH), CLASSES)


def _state(apart, seed=0, of=0):
    """Classes ten apart, their modes `apart`; `of` chooses where classes and modes are."""
    places, rng = np.random.default_rng(of), np.random.default_rng(seed)
    classes = 10 * places.normal(size=(CLASSES, DIM))
    modes = places.normal(size=(CLASSES * MODES, DIM))
    return classes[LABELS] + apart * modes[LABELS * MODES + FINE] + 0.5 * rng.normal(size=(N, DIM))


@given(st.integers(0, 10_000), st.integers(2, 5), st.booleans())
def test_fine_agreement_is_that_of_a_slow_count(seed, kinds, ties):
    rng = np.random.default_rng(seed)
    z, labels, fine = rng.normal(size=(24, 3)), rng.integers(0, 3, 24), rng.integers(0, kinds, 24)
    z = np.round(z) if ties else z
    distance, hits, chances = distance_matrix(z), [], []
    for i in range(24):
        mates = [j for j in np.flatnonzero(labels == labels[i]) if j != i]
        own = [j for j in mates if fine[j] == fine[i]]
        others = [j for j in mates if fine[j] != fine[i]]
        if own and others:
            hits.append(distance[i, own].min() < distance[i, others].min() - 1e-9)
            chances.append(len(own) / len(mates))
    expected = (np.mean(hits), np.mean(chances), len(hits)) if hits else None
    assert fine_neighbours(z, labels, fine) == (expected and pytest.approx(expected))


@given(st.integers(0, 10_000))
def test_modes_kept_is_that_of_a_slow_count(seed):
    rng, k = np.random.default_rng(seed), 2
    labels = rng.permutation(np.repeat([0, 1, 2], [12, 15, 4]))  # the last class is too small
    before, after = rng.normal(size=(31, 4)), rng.normal(size=(31, 3))
    shares = []
    for z in (before, after):
        nearer = []
        for i in np.flatnonzero(labels < 2):
            mates = [j for j in np.flatnonzero(labels == labels[i]) if j != i]
            near = sorted(mates, key=lambda j, i=i: np.linalg.norm(before[i] - before[j]))[:k]
            far = {j: np.linalg.norm(z[i] - z[j]) for j in mates}
            nearer += [np.mean([far[j] < far[o] for o in mates if o != j]) for j in near]
        shares.append(2 * np.mean(nearer) - 1)
    expected = max(shares[1], 0.0) / shares[0]
    assert modes_kept(before, after, labels, k=k) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_modes_kept_is_free_of_scale_place_and_rotation(scale):
    before, after = _state(3.0), _state(0.3, seed=1)
    turn, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(DIM, DIM)))
    expected = modes_kept(before, after, LABELS)
    moved = modes_kept(before + 7, scale * (after @ turn), LABELS)
    assert moved == pytest.approx(expected, rel=1e-6)


def test_modes_kept_is_not_known_of_small_classes_and_points():
    before = _state(3.0)
    assert modes_kept(before[:12], before[:12], LABELS[:12]) is None
    assert modes_kept(np.ones((N, 2)), before, LABELS) is None
    assert modes_kept(before, np.ones((N, 2)), LABELS) == 0.0
    with refused("before"):
        modes_kept(before[1:], before, LABELS)
    with refused("before"):
        measure(before, LABELS, reference=1.0, before=before[1:], modes=False)


@pytest.mark.parametrize("fine", [True, False])
def test_merged_modes_are_class_collapse_though_classes_are_no_points(fine):
    given = {"fine_labels": FINE if fine else None, "before": _state(3.0), "modes": False}
    merged = measure(_state(0.0, 10), LABELS, **given)
    assert merged.verdict == "class-collapse"
    assert merged.reasons[0].startswith("the modes inside classes have merged")
    assert ("fine label" in merged.reasons[0]) == fine
    snapshot = measure(_state(0.0, 10), LABELS, modes=False)
    assert snapshot.verdict == "healthy"  # one snapshot cannot know
    kept = measure(_state(2.0, 20), LABELS, **given)
    assert kept.verdict == "healthy"
    assert "at the start" in kept.reasons[-1]


def test_fine_labels_decide_over_a_class_that_was_rearranged():
    before, moved = _state(3.0), _state(3.0, seed=1, of=5)
    strewn = np.random.default_rng(0).permutation(N)
    strewn = strewn[np.argsort(LABELS[strewn], kind="stable")]  # inside classes: other neighbours
    blind = measure(moved[strewn], LABELS, before=before, modes=False)
    assert blind.verdict == "class-collapse"  # what the figure cannot know
    given = {"fine_labels": FINE[strewn], "modes": False}
    assert measure(moved[strewn], LABELS, reference=blind, **given).verdict == "healthy"
    assert measure(moved[strewn], LABELS, before=before, **given).fine_kept is not None


def test_without_a_start_fine_labels_are_held_against_chance():
    merged = measure(_state(0.0), LABELS, fine_labels=FINE, modes=False)
    assert merged.verdict == "class-collapse"
    assert "fine labels cannot be told inside classes" in merged.reasons[0]
    assert measure(_state(1.5), LABELS, fine_labels=FINE, modes=False).verdict == "healthy"
    rng = np.random.default_rng(0)  # an untrained network that knows neither classes nor modes
    blind = measure(rng.normal(size=(N, DIM)), LABELS, fine_labels=FINE, modes=False)
    assert "fine labels cannot be told" not in str(blind)


@pytest.mark.parametrize(("rows", "verdict"), [(12, "healthy"), (400, "class-collapse")])
def test_a_loss_within_the_error_of_few_rows_is_none(rows, verdict):
    health = measure(_state(3.0), LABELS, fine_labels=FINE, modes=False)
    lost = Health.from_dict(health.to_dict() | {"fine_agreement": 0.5, "fine_rows": rows})
    reference = Reference(health.diameter, health.spread, math.nan, 0.75, 0.2)
    judged = judge(lost, reference=reference)
    assert judged.fine_kept < Thresholds().fine_kept
    assert judged.verdict == verdict


def test_health_survives_json_and_is_logged():
    health = measure(_state(1.0, 1), LABELS, fine_labels=FINE, before=_state(3.0), modes=False)
    for state in (health, measure(_state(1.0))):
        again = Health.from_dict(json.loads(json.dumps(state.to_dict(), default=str)))
        assert again.to_dict() == state.to_dict()
        assert str(again) == str(state)
        for name in ("fine_kept", "cosines", "nearest", "within", "norms", "reasons", "classes"):
            assert getattr(again, name) == getattr(state, name)
        assert all(math.isfinite(value) for value in state.scalars().values())
    assert {"fine_agreement", "fine_kept", "modes_kept"} <= health.scalars().keys()
    assert Reference.of(health).fine_agreement == health.fine_agreement


def test_a_start_that_is_not_finite_says_nothing_of_modes():
    before = _state(3.0)
    before[0, 0] = np.nan
    assert measure(_state(0.0), LABELS, reference=1.0, before=before).modes_kept is None
    lost = measure(torch.full((4, 2), math.nan), [0, 0, 1, 1], fine_labels=[0, 1, 0, 1])
    assert lost.verdict == "diverging"
