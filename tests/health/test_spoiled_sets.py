"""Verdicts where some rows spoil the figures of all others, and what the search for modes costs."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_digits

from uncollapse import diagnose
from uncollapse.health import Health, measure
from uncollapse.metrics import collapse, find_spoiled

DIGITS = load_digits()
Z, LABELS = (DIGITS.data / 16).astype(np.float32), DIGITS.target
MIDDLE = Z.mean(axis=0)
ABOUT = Z - MIDDLE
SHUFFLED = np.random.default_rng(0).permutation(len(Z))
STRAY = MIDDLE + np.random.default_rng(1).normal(size=64).astype(np.float32)
MEANS = np.stack([Z[c == LABELS].mean(axis=0) for c in range(10)])
COLLAPSED = {
    "point": (MIDDLE + 1e-6 * ABOUT, "network-collapse", False),
    "shrunken": (0.005 * ABOUT, "network-collapse", True),
    "shrinking": (0.15 * ABOUT, "shrinking", True),
    "cone": (ABOUT + 100 * MIDDLE, "cone", False),
    "classes": (MEANS[LABELS] + 1e-3 * ABOUT, "class-collapse", False),
}


def changed(rows, value, of=Z):
    z = of.copy()
    z[rows] = value
    return z


@pytest.mark.parametrize("share", [0.01, 0.5, 0.95])
def test_zero_rows_are_named_and_the_others_are_judged(share):
    rows = SHUFFLED[: int(share * len(Z))]
    z = changed(rows, 0)
    for health in (measure(z, LABELS, modes=False), diagnose(z, LABELS, modes=False).health):
        assert health.verdict == "spoiled-rows"
        assert f"row {rows.min()}" in " ".join(health.reasons)
        assert health.robust.verdict == "healthy"
        assert health.robust.n == len(Z) - len(rows)
        assert health.n == len(Z)  # the plain figures stay


@pytest.mark.parametrize("count", [1, 17])
def test_rows_far_out_are_named_and_do_not_make_a_collapse(count):
    rows = SHUFFLED[:count]
    health = measure(changed(rows, 1e6 * Z[rows]), LABELS, modes=False, names=LABELS)
    assert (health.verdict, health.robust.verdict) == ("spoiled-rows", "healthy")
    assert health.diameter > 1e5 > 10 > health.robust.diameter
    assert health.scalars()["robust_diameter"] == health.robust.diameter
    assert f"far from all others ({LABELS[rows.min()]}" in " ".join(health.reasons)


@pytest.mark.parametrize("kind", COLLAPSED)
@pytest.mark.parametrize("stray", [STRAY, 1000 * STRAY, 0 * STRAY], ids=["stray", "far", "zero"])
def test_one_stray_row_hides_no_collapse(kind, stray):
    rows, verdict, known = COLLAPSED[kind]
    reference = measure(Z, LABELS, modes=False) if known else None
    how = {"modes": False, "reference": reference}
    z = changed([7], stray, rows.astype(np.float32))
    assert measure(rows, LABELS, **how).verdict == verdict
    assert measure(z, LABELS, **how).verdict == verdict
    assert diagnose(z, LABELS, **how).verdict == verdict


def test_a_reference_with_a_stray_row_is_taken_without_it():
    spoilt = measure(changed([7], 1e6), LABELS, modes=False)
    assert measure(Z, LABELS, modes=False, reference=spoilt).verdict == "healthy"
    assert measure(0.1 * Z, LABELS, modes=False, reference=spoilt).verdict == "shrinking"


def test_clean_rows_and_heavy_tails_are_not_spoiled():
    rng = np.random.default_rng(0)
    assert measure(Z, LABELS, modes=False).robust is None
    for tails in (rng.standard_t(3, size=(2000, 16)), np.exp(rng.normal(size=(2000, 16)))):
        assert not len(find_spoiled(tails, neighbours=False).far)
    wide = rng.normal(size=(2000, 16)) * np.exp(rng.normal(size=(2000, 1)))
    assert len(find_spoiled(wide, neighbours=False).far)  # they are named,
    assert measure(wide, modes=False).verdict == "healthy"  # but change no verdict


def test_a_small_class_far_away_is_a_class_and_no_stray_rows():
    rng = np.random.default_rng(0)
    z, labels = 1e-3 * rng.normal(size=(1000, 8)), (np.arange(1000) < 15).astype(int)
    z[:15] += 5
    assert not len(find_spoiled(z, neighbours=False).far)
    assert measure(z, labels, modes=False).verdict == "class-collapse"


def test_classes_that_are_exactly_points_are_not_left_out_as_equal_rows():
    centres = np.random.default_rng(0).normal(size=(4, 8))
    centres[0] = 0
    labels = np.arange(200) % 4
    assert measure(centres[labels], labels, modes=False).verdict == "class-collapse"


def test_where_nearly_all_rows_are_zero_they_are_the_embedding():
    z = np.zeros_like(Z)
    z[[3, 40]] = Z[[3, 40]]
    health = measure(z, LABELS, modes=False)
    assert health.verdict == "network-collapse"
    assert "row 3, row 40" in " ".join(health.reasons)


def test_the_robust_figures_survive_json():
    health = measure(changed([7], 1e6), LABELS, modes=False)
    again = Health.from_dict(json.loads(json.dumps(health.to_dict())))
    assert again.robust.diameter == health.robust.diameter
    assert again.left_out == health.left_out


# ---- what the search for modes costs


def calls_of(monkeypatch, z, labels):
    """How often k-means ran while all was measured."""
    calls, real = [], collapse._best_kmeans
    monkeypatch.setattr(collapse, "_best_kmeans", lambda *given: calls.append(1) or real(*given))
    return len(calls), measure(z, labels), len(calls)


@pytest.mark.parametrize("classes", [2, 10, 100, 1000])
def test_random_labels_and_points_cost_no_clustering(monkeypatch, classes):
    labels = SHUFFLED % classes
    for z in (Z, MIDDLE + 1e-7 * ABOUT):
        _, health, calls = calls_of(monkeypatch, z, labels)
        assert health.verdict in ("uninformative", "network-collapse")
        assert (calls, health.modes_per_class) == (0, {})


@pytest.mark.parametrize("classes", [10, 100])
def test_classes_that_merged_into_lumps_cost_few_clusterings(monkeypatch, classes):
    rng = np.random.default_rng(0)
    lumps = 5 * rng.normal(size=(4, 64))[rng.integers(0, 4, 2000)]
    labels = np.arange(2000) % classes
    z = lumps + 0.5 * np.eye(64)[labels % 64] + 0.01 * rng.normal(size=(2000, 64))
    _, health, calls = calls_of(monkeypatch, z, labels)
    assert health.verdict not in ("uninformative", "network-collapse")
    assert len(health.modes_per_class) == min(classes, 20)
    assert 100 < calls < 1500  # were 9,000 for 100 classes
