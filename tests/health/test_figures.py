"""Figures against slow definitions in float64, and verdicts on states known by construction."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given

from support.errors import refused
from support.known_states import known_states
from support.oracles import distance_matrix, labelled_sets, point_sets
from uncollapse import CollapseMonitor, diagnose
from uncollapse.geometry import thickness
from uncollapse.health import Reference, Thresholds, judge, measure
from uncollapse.health.figures import balanced_rows, thickness_bracket
from uncollapse.metrics import cdnv, clustering, effective_rank, kmeans, nc1, principal_axes
from uncollapse.metrics.collapse import spectrum
from uncollapse.report.parts import project

SCALES = (1e-6, 1.0, 1e6)
night = pytest.mark.night


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dim", [2, 16, 128, *(pytest.param(d, marks=night) for d in (3, 1024))])
def test_every_known_state_gets_its_verdict(dim, dtype):
    for seed in range(10 if dim in (3, 1024) else 3):
        for state in known_states(dim, SCALES[seed % 3], dtype, seed):
            options = {"reference": state.reference, "cosine": state.cosine, "modes": False}
            health = measure(state.embeddings, state.labels, **options)
            assert health.verdict == state.verdict, (state.name, seed, health.reasons)
            if state.name == "partial class collapse":
                assert "4 of 10 classes (40" in health.reasons[0]
                assert {c.label for c in health.classes if c.tightness < 0.05} == {0, 1, 2, 3}


@pytest.mark.parametrize("dim", [2, 64])
def test_verdicts_that_need_no_labels_come_without_them(dim):
    for state in known_states(dim, seed=1):
        health = measure(state.embeddings, reference=state.reference, cosine=state.cosine)
        expected = "healthy" if state.verdict == "class-collapse" else state.verdict
        assert health.verdict == expected, (state.name, health.reasons)
        assert health.classes == ()
        assert health.agreement is None


def test_a_few_wrong_labels_do_not_hide_a_class_collapse():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(10).repeat_interleave(40)
    means = torch.randn(10, 8, generator=generator)
    z = means[labels] + 1e-3 * torch.randn(400, 8, generator=generator)
    labels[::40] = (labels[::40] + 1) % 10
    health = measure(z, labels, modes=False)
    assert min(c.ratio for c in health.classes) > 0.2  # the class diameters see the strays
    assert health.verdict == "class-collapse"


def test_two_modes_far_apart_are_not_a_class_collapse():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(6).repeat_interleave(20)
    modes = 5 * torch.randn(12, 8, generator=generator)
    z = modes[torch.arange(120) // 10] + 1e-3 * torch.randn(120, 8, generator=generator)
    health = measure(z, labels)
    assert health.verdict == "healthy"
    assert set(health.modes_per_class.values()) == {2}


def test_one_snapshot_cannot_tell_a_small_healthy_embedding_from_a_point_at_the_origin():
    state = next(known_states(16))
    small = measure(state.embeddings * 1e-5, state.labels)
    assert small.verdict == "healthy"
    assert "we cannot tell whether this is small" in small.reasons[0]
    known = measure(state.embeddings * 1e-5, state.labels, Thresholds(margin=0.2))
    assert known.verdict == "network-collapse"
    assert "of the margin 0.2" in known.reasons[0]


def test_one_direction_on_the_sphere_is_a_network_collapse():
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(1, 32, generator=generator)
    z = direction + 2e-3 * torch.randn(50, 32, generator=generator)
    unit = torch.nn.functional.normalize(z, dim=1)
    assert measure(unit).verdict == "network-collapse"
    assert measure(torch.nn.functional.normalize(z - direction, dim=1)).verdict == "healthy"


def test_noise_far_out_that_lost_its_labels_is_a_network_collapse():
    generator = torch.Generator().manual_seed(0)
    z = 10 + 0.01 * torch.randn(200, 16, generator=generator)
    labels = torch.arange(200) % 10
    assert measure(z, labels, modes=False).verdict == "network-collapse"
    structured = z + 0.1 * torch.randn(10, 16, generator=generator)[labels]
    assert measure(structured, labels, cosine=False, modes=False).verdict == "healthy"
    assert measure(structured, labels, modes=False).verdict == "cone"


def test_a_bulk_that_collapsed_is_seen_beside_an_outlier():
    z = torch.randn(400, 8, generator=torch.Generator().manual_seed(0))
    fallen = torch.cat([torch.full((1, 8), 0.1), 1e-4 * z[1:]])
    assert measure(fallen, reference=measure(z)).verdict == "network-collapse"


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_rows_that_are_not_numbers_are_diverging(bad):
    z = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    z[2, 1] = bad
    health = measure(z, [0, 0, 1, 1, 2, 2])
    assert health.verdict == "diverging"
    assert "NaN or infinite" in health.reasons[0]
    assert math.isnan(health.diameter)


@pytest.mark.parametrize(
    ("rows", "labels", "verdict"),
    [
        ([[1.0, 2.0]] * 4, [0, 0, 1, 1], "network-collapse"),
        ([[0.0], [1.0], [2.0]], [0, 0, 0], "healthy"),
        ([[0.0], [1.0], [2.5]], [0, 1, 2], "healthy"),
        ([[0.0, 0.0], [0.0, 0.0], [1.0, 5.0], [2.0, 3.0]], [0, 0, 1, 1], "class-collapse"),
    ],
)
def test_degenerate_sets_have_a_verdict(rows, labels, verdict):
    assert measure(torch.tensor(rows), labels).verdict == verdict


@given(labelled_sets())
def test_figures_follow_their_definitions(drawn):
    x, labels = drawn
    health = measure(x, labels, modes=False)
    distance = distance_matrix(x)
    n = len(x)
    assert health.diameter == pytest.approx(distance.max(), rel=1e-9, abs=1e-15)
    rms = math.sqrt((distance**2).sum() / (n * (n - 1)))
    assert health.spread == pytest.approx(rms, rel=1e-6, abs=1e-12)
    same = labels[:, None] == labels
    assert sum(health.between.counts) == np.triu(~same, 1).sum()
    assert sum(health.within.counts) == np.triu(same, 1).sum()
    for each in health.classes:
        members = distance[np.ix_(labels == each.label, labels == each.label)]
        assert each.diameter == pytest.approx(members.max(), rel=1e-9, abs=1e-15)
    if health.diameter > 1e-3:
        assert health.nc1 == pytest.approx(nc1(x, labels), rel=1e-9)
        assert health.cdnv == pytest.approx(_slow_cdnv(x, labels), rel=1e-4, abs=1e-9)


@given(point_sets(min_rows=2))
def test_ranks_follow_their_definitions(x):
    centred = x - x.mean(axis=0)
    values = np.linalg.svd(centred, compute_uv=False)
    if values[0] < 1e-9 * (1 + np.abs(x).max()):
        return
    values = values[values > 1e-6 * values[0]]
    shares = values / values.sum()
    assert effective_rank(x) == pytest.approx(np.exp(-(shares * np.log(shares)).sum()), rel=1e-3)
    variance = np.cumsum(values**2) / (values**2).sum()
    if not np.isclose(variance, 0.99, atol=1e-6).any():
        assert principal_axes(x) == int((variance < 0.99).sum()) + 1


@given(point_sets(min_rows=5, max_rows=12, max_dim=3))
def test_the_thickness_bracket_holds_the_thickness(x):
    tensor = torch.from_numpy(x)
    exact = thickness(tensor)
    padded = torch.cat([tensor, 2 * tensor, tensor.flip(0)], dim=1)[:, : x.shape[1] + 3]
    wide = thickness_bracket(padded, spectrum(padded))
    assert wide.lower <= wide.upper * (1 + 1e-9)
    bracket = thickness_bracket(tensor, spectrum(tensor))
    assert bracket.lower <= exact.upper * (1 + 1e-6) + 1e-12
    assert bracket.upper >= exact.lower * (1 - 1e-6) - 1e-12


def test_the_thickness_bracket_in_many_dimensions_holds_a_box():
    generator = torch.Generator().manual_seed(0)
    sides = torch.tensor([5.0, 4.0, 3.0, 2.0, 0.5])
    box = torch.rand(4000, 5, generator=generator, dtype=torch.float64) * sides
    bracket = thickness_bracket(box, spectrum(box))
    assert bracket.lower <= 0.5 <= bracket.upper * 1.02
    assert bracket.lower > 0.5 / math.sqrt(3) * 0.95  # 2σ of a uniform variable
    assert bracket.upper < 0.6


def test_large_sets_are_sampled_and_their_diameter_is_not():
    z = torch.randn(3000, 4, generator=torch.Generator().manual_seed(0))
    z[1234] = 50.0
    labels = torch.arange(3000) % 7
    health = measure(z, labels, sample=200, modes=False)
    assert health.sampled == 200
    assert health.diameter == pytest.approx(float(torch.cdist(z, z).max()), rel=1e-5)
    assert health.to_dict() == measure(z, labels, sample=200, modes=False).to_dict()
    assert health.agreement != measure(z, labels, sample=200, modes=False, seed=1).agreement


def test_balanced_rows_keep_pairs_and_even_classes():
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 100, 1000)
    rows = balanced_rows(ids, 60, rng)
    counts = np.bincount(ids[rows], minlength=100)
    assert len(rows) == 60
    assert set(counts.tolist()) == {0, 2}
    ids = np.repeat([0, 1, 2], [500, 20, 3])
    assert np.bincount(ids[balanced_rows(ids, 43, rng)]).tolist() == [20, 20, 3]


def test_thresholds_can_be_set():
    state = next(known_states(16))
    relaxed = Thresholds(shrink_ratio=0.01, collapse_ratio=0.001)
    first = measure(state.embeddings, state.labels)
    reference = Reference(first.diameter * 20)
    assert judge(first, reference=reference).verdict == "shrinking"
    assert judge(first, relaxed, reference).verdict == "healthy"
    assert measure(state.embeddings, state.labels, Thresholds(tightness=10)).verdict != "healthy"
    for name, value in {"shrink_ratio": 0.001, "tightness": -1.0}.items():
        with refused(name):
            Thresholds(**{name: value})
    with refused("reference"):
        measure(state.embeddings, reference=-1.0)


LABELS = np.repeat([0, 1, 2], 14)
X = np.random.default_rng(0).normal(size=(42, 3)) + 9 * np.eye(3)[LABELS]


@pytest.mark.parametrize("scale", [1e300, 1e200, 1e-200, 1e-300])
def test_the_ends_of_float64_change_no_ratio(scale):
    plain, far = diagnose(X, LABELS), measure(X + 100, LABELS)
    for name in ("diameter", "effective_rank", "axes", "agreement", "cdnv", "within_share"):
        assert getattr(far, name) == pytest.approx(getattr(plain.health, name), rel=1e-6), name
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # overflow is one
        result = diagnose(X * scale, LABELS)
        page = result.page().render()
    assert result.verdict == plain.verdict == "healthy"
    assert result.scores == plain.scores
    for name in ("diameter", "spread", "centre_norm", "separation"):
        assert getattr(result.health, name) / scale == pytest.approx(getattr(plain.health, name))
    for name in ("nc1", "cdnv", "effective_rank", "agreement", "within_share"):
        assert getattr(result.health, name) == pytest.approx(getattr(plain.health, name))
    for name in ("smallest", "mean", "largest"):
        long, short = getattr(result.health.norms, name), getattr(plain.health.norms, name)
        assert long / scale == pytest.approx(short)
    np.testing.assert_allclose(spectrum(X * scale).shares, spectrum(X).shares, rtol=1e-9)
    assert np.isfinite(project(X * scale)).all()
    assert "nan" not in page.lower().split()
    assert nc1(X * scale, LABELS) == pytest.approx(nc1(X, LABELS))
    assert cdnv(X * scale, LABELS) == pytest.approx(cdnv(X, LABELS))
    assert CollapseMonitor().update(X * scale, LABELS).verdict == "healthy"


@pytest.mark.parametrize("scale", [1e300, 1e150, 1e-150, 1e-300])
@pytest.mark.parametrize("first", [None, [0, 14, 28]])
def test_clusters_are_found_at_any_scale(scale, first):
    plain, scaled = (kmeans(x, 3, init=first and x[first]) for x in (X, X * scale))
    assert scaled.labels.tolist() == plain.labels.tolist()
    np.testing.assert_allclose(scaled.centres / scale, plain.centres, atol=1e-5)
    if 1e-150 <= scale <= 1e150:
        assert scaled.inertia / scale / scale == pytest.approx(plain.inertia)
    else:  # no float64 holds it
        assert scaled.inertia == (np.inf if scale > 1 else 0.0)
    assert clustering(X * scale, LABELS).nmi == clustering(X, LABELS).nmi


def _slow_cdnv(x, labels):
    names = np.unique(labels)
    total, pairs = 0.0, 0
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            rows = x[labels == a], x[labels == b]
            both = sum(float(((s - s.mean(axis=0)) ** 2).sum(axis=1).mean()) for s in rows)
            apart = float(((rows[0].mean(axis=0) - rows[1].mean(axis=0)) ** 2).sum())
            if apart < 1e-20:  # 0/0 is 0: two points at one place are not variable
                both, apart = (math.inf, 1.0) if both > 1e-20 else (0.0, 1.0)
            total, pairs = total + both / (2 * apart), pairs + 1
    return total / pairs
