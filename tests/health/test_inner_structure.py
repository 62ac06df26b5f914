"""Class collapse as EPS §4 has it: modes inside classes that merge while classes stay apart."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uncollapse._base.check import InputError
from uncollapse.health import Health, Reference, Thresholds, judge, measure
from uncollapse.health.figures import fine_neighbours, modes_kept

CLASSES, MODES, EACH, DIM = 4, 5, 20, 16
N = CLASSES * MODES * EACH
LABELS = np.repeat(np.arange(CLASSES), MODES * EACH)
FINE = np.tile(np.repeat(np.arange(MODES), EACH), CLASSES)


def _state(apart: float, seed: int = 0, of: int = 0) -> np.ndarray:
    """Classes ten apart, their modes `apart`; `of` chooses where classes and modes are."""
    places, rng = np.random.default_rng(of), np.random.default_rng(seed)
    classes = 10 * places.normal(size=(CLASSES, DIM))
    modes = places.normal(size=(CLASSES * MODES, DIM))
    return classes[LABELS] + apart * modes[LABELS * MODES + FINE] + 0.5 * rng.normal(size=(N, DIM))


@given(st.integers(0, 10_000), st.integers(2, 5), st.booleans())
def test_fine_agreement_is_that_of_a_slow_count(seed: int, kinds: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    z, labels = rng.normal(size=(24, 3)), rng.integers(0, 3, 24)
    z = np.round(z) if ties else z
    fine = rng.integers(0, kinds, 24)
    hits, chances = [], []
    for i in range(24):
        mates = [j for j in range(24) if j != i and labels[j] == labels[i]]
        own = [j for j in mates if fine[j] == fine[i]]
        if not own or len({int(fine[j]) for j in [*mates, i]}) < 2:
            continue
        far = {j: float(np.linalg.norm(z[i] - z[j])) for j in mates}
        others = [far[j] for j in mates if j not in own]
        hits.append(min(far[j] for j in own) < min(others) - 1e-9)
        chances.append(len(own) / len(mates))
    found = fine_neighbours(z, labels, fine)
    if not hits:
        assert found is None
    else:
        assert found is not None
        assert found == pytest.approx((np.mean(hits), np.mean(chances), len(hits)))


@given(st.integers(0, 10_000))
def test_modes_kept_is_that_of_a_slow_count(seed: int) -> None:
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


@pytest.mark.parametrize("scale", [1e-200, 1e-6, 1.0, 1e6, 1e200])
def test_modes_kept_is_free_of_scale_place_and_rotation(scale: float) -> None:
    before, after = _state(3.0), _state(0.3, seed=1)
    turn, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(DIM, DIM)))
    expected = modes_kept(before, after, LABELS)
    found = modes_kept(before + 7, scale * (after @ turn), LABELS)
    assert found == pytest.approx(expected, rel=1e-6)


def test_modes_kept_falls_as_modes_merge_and_is_one_for_the_same_rows() -> None:
    before = _state(3.0)
    kept = [modes_kept(before, _state(apart, seed=1), LABELS) for apart in (3.0, 0.3, 0.1, 0.0)]
    assert modes_kept(before, before, LABELS) == pytest.approx(1.0)
    assert kept == sorted(kept, reverse=True)
    assert (kept[0] or 0) > 0.8
    assert (kept[-1] or 0) < 0.1


def test_modes_kept_is_not_known_of_small_classes_and_points() -> None:
    before = _state(3.0)
    assert modes_kept(before[:12], before[:12], LABELS[:12]) is None
    assert modes_kept(np.ones((N, 2)), before, LABELS) is None
    assert modes_kept(before, np.ones((N, 2)), LABELS) == 0.0
    with pytest.raises(InputError, match="before"):
        modes_kept(before[1:], before, LABELS)
    with pytest.raises(InputError, match="before"):
        measure(before, LABELS, reference=1.0, before=before[1:], modes=False)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fine", [True, False])
def test_merged_modes_are_class_collapse_though_classes_are_no_points(
    seed: int, fine: bool
) -> None:
    labels = FINE if fine else None
    before, merged = _state(3.0, seed), _state(0.0, seed + 10)
    found = measure(merged, LABELS, fine_labels=labels, before=before, modes=False)
    assert found.verdict == "class-collapse"
    assert found.reasons[0].startswith("the modes inside classes have merged")
    assert ("fine label" in found.reasons[0]) == fine
    assert measure(merged, LABELS, modes=False).verdict == "healthy"  # one snapshot cannot know
    kept = measure(_state(2.0, seed + 20), LABELS, fine_labels=labels, before=before, modes=False)
    assert kept.verdict == "healthy"
    assert "at the start" in kept.reasons[-1]


def test_fine_labels_decide_over_a_class_that_was_rearranged() -> None:
    before, moved = _state(3.0), _state(3.0, seed=1, of=5)
    strewn = np.random.default_rng(0).permutation(N)
    strewn = strewn[np.argsort(LABELS[strewn], kind="stable")]  # inside classes: other neighbours
    found = measure(moved[strewn], LABELS, before=before, modes=False)
    assert found.verdict == "class-collapse"  # what the figure cannot know
    told = measure(moved[strewn], LABELS, fine_labels=FINE[strewn], reference=found, modes=False)
    assert told.verdict == "healthy"
    both = measure(moved[strewn], LABELS, fine_labels=FINE[strewn], before=before, modes=False)
    assert both.fine_kept is not None


def test_without_a_start_fine_labels_are_held_against_chance() -> None:
    merged = measure(_state(0.0), LABELS, fine_labels=FINE, modes=False)
    assert merged.verdict == "class-collapse"
    assert "fine labels cannot be told inside classes" in merged.reasons[0]
    assert measure(_state(1.5), LABELS, fine_labels=FINE, modes=False).verdict == "healthy"
    rng = np.random.default_rng(0)  # an untrained network that knows neither classes nor modes
    blind = measure(rng.normal(size=(N, DIM)), LABELS, fine_labels=FINE, modes=False)
    assert "fine labels cannot be told" not in str(blind)


def test_a_loss_within_the_error_of_few_rows_is_none() -> None:
    few = measure(_state(3.0), LABELS, fine_labels=FINE, modes=False)
    unsure = judge(
        Health.from_dict(few.to_dict() | {"fine_agreement": 0.5, "fine_rows": 12}),
        reference=Reference(few.diameter, few.spread, math.nan, 0.75, 0.2),
    )
    assert unsure.fine_kept is not None
    assert unsure.fine_kept < Thresholds().fine_kept
    assert unsure.verdict == "healthy"
    sure = judge(
        Health.from_dict(few.to_dict() | {"fine_agreement": 0.5, "fine_rows": 400}),
        reference=Reference(few.diameter, few.spread, math.nan, 0.75, 0.2),
    )
    assert sure.verdict == "class-collapse"


def test_the_figures_survive_json_and_are_logged() -> None:
    found = measure(_state(1.0, 1), LABELS, fine_labels=FINE, before=_state(3.0), modes=False)
    again = Health.from_dict(json.loads(json.dumps(found.to_dict(), default=str)))
    assert (again.fine_kept, again.modes_kept) == (found.fine_kept, found.modes_kept)
    assert {"fine_agreement", "fine_kept", "modes_kept"} <= found.scalars().keys()
    assert Reference.of(found).fine_agreement == found.fine_agreement


def test_a_start_that_is_not_finite_says_nothing_of_modes() -> None:
    before = _state(3.0)
    before[0, 0] = np.nan
    found = measure(_state(0.0), LABELS, reference=1.0, before=before, modes=False)
    assert found.modes_kept is None
    assert measure(torch.full((4, 2), math.nan), [0, 0, 1, 1], fine_labels=[0, 1, 0, 1]).verdict
