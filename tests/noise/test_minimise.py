import pytest
import torch

from support.errors import refused
from uncollapse.noise import (
    NoiseModel,
    expected_loss,
    margin_bound,
    minimise,
    triplet_bound,
)

pytestmark = pytest.mark.slow


def test_with_the_anchor_as_its_own_positive_theorem_1_fails():
    noise = NoiseModel(2, 0.6)
    best = minimise("triplet", noise, 8, 2, diagonal="true", starts=10, steps=1000)
    assert best.values["collapsed"] == pytest.approx(92.16, abs=1e-3)
    assert best.value == pytest.approx(84.42, abs=0.01)
    assert not best.collapsed


def test_three_noisy_classes_fall_into_one_point_under_the_margin_loss():
    noise = NoiseModel(3, 0.6)
    best = minimise("margin", noise, 9, 2, starts=4, steps=800)
    assert best.value == pytest.approx(46.08, abs=1e-3)
    assert best.value == pytest.approx(margin_bound(noise, 9), abs=1e-3)
    assert best.collapsed
    assert best.class_gap < 0.01
    assert torch.allclose(best.beta, torch.tensor(-1.0, dtype=torch.float64), atol=0.01)
    # both structured starts end there; so do the random ones
    assert sorted(best.values.values())[3] == pytest.approx(46.08, abs=0.01)


@pytest.mark.parametrize(("t", "n", "p"), [(2, 8, 0.6), (2, 8, 0.9), (3, 9, 0.4)])
@pytest.mark.parametrize("diagonal", ["independent", "distinct"])
def test_random_starts_of_the_triplet_loss_end_collapsed_at_the_bound(t, n, p, diagonal):
    noise = NoiseModel(t, p)
    best = minimise("triplet", noise, n, 2, diagonal=diagonal, starts=4, steps=800)
    bound = triplet_bound(noise, n, diagonal=diagonal)
    random = min(value for name, value in best.values.items() if name.startswith("random"))
    assert best.value == pytest.approx(bound, rel=1e-4)
    assert random == pytest.approx(bound, rel=1e-4)
    assert best.collapsed
    assert best.class_gap == pytest.approx(1.0, abs=0.01)


def test_two_classes_collapse_under_the_margin_loss_at_twice_the_margin():
    noise = NoiseModel(2, 0.7)
    best = minimise("margin", noise, 8, 2, margin=0.5, starts=4, steps=800)
    assert best.value == pytest.approx(margin_bound(noise, 8, margin=0.5), rel=1e-4)
    assert best.collapsed
    assert best.class_gap == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("objective", ["eps-triplet", "eps-margin"])
@pytest.mark.parametrize("p", [0.7, 0.9])
def test_easy_positives_keep_classes_from_collapsing(objective, p):
    best = minimise(objective, NoiseModel(2, p), 16, 2, starts=4, steps=500)
    assert not best.collapsed
    assert float(best.class_diameters.min()) > 0.5
    assert best.value < 0.95 * best.values["collapsed"]


def test_the_value_is_that_of_the_points_and_boundaries_returned():
    noise = NoiseModel(2, 0.8)
    best = minimise("eps-margin", noise, 8, 2, starts=2, steps=50)
    value = expected_loss("eps-margin", best.embedding, best.labels, noise, beta=best.beta)
    assert best.value == pytest.approx(float(value), rel=1e-9)
    best = minimise("margin", noise, 8, 2, starts=2, steps=50, diagonal="independent")
    value = expected_loss(
        "margin", best.embedding, best.labels, noise, beta=best.beta, diagonal="independent"
    )
    assert best.value == pytest.approx(float(value), rel=1e-9)


def test_a_generator_makes_other_starts_and_the_same_one_the_same():
    noise = NoiseModel(2, 0.8)
    runs = [
        minimise("triplet", noise, 6, 2, steps=20, generator=torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    ]
    assert torch.equal(runs[0].embedding, runs[1].embedding)
    assert runs[0].values != runs[2].values


def test_many_classes_in_too_few_dimensions_are_still_minimised():
    noise = NoiseModel(4, 0.8)
    best = minimise("triplet", noise, 8, 1, starts=2, steps=200)
    value = expected_loss("triplet", best.embedding, best.labels, noise)
    assert best.value == pytest.approx(float(value), rel=1e-9)
    assert best.value > triplet_bound(noise, 8, diagonal="distinct")


def test_contrastive_collapses_classes_at_the_margin():
    best = minimise("contrastive", NoiseModel(3, 0.8), 9, 2, starts=3, steps=600)
    assert best.collapsed
    assert best.beta is None
    assert best.class_gap == pytest.approx(1.0, abs=0.01)


def test_an_unknown_objective_is_named():
    with refused("objective"):
        minimise("proxy", NoiseModel(2, 0.8), 8, 2)
