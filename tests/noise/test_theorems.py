import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.errors import refused
from uncollapse.noise import (
    NoiseModel,
    blobs,
    expected_loss,
    margin_bound,
    theorem_1,
    theorem_2,
    triplet_bound,
    zero_margin_boundaries,
    zero_triplet_margin,
)

pytestmark = pytest.mark.slow

P = st.sampled_from([0.05, 0.2, 0.45, 0.6, 0.8, 0.99])


@given(
    t=st.integers(2, 4),
    size=st.integers(2, 4),
    p=P,
    seed=st.integers(0, 10_000),
    scale=st.sampled_from([0.1, 0.5, 2.0]),
)
def test_no_embedding_is_below_the_bounds(t, size, p, seed, scale):
    noise, n = NoiseModel(t, p), t * size
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(n, 3, generator=g, dtype=torch.float64) * scale
    beta = torch.randn(n, generator=g, dtype=torch.float64)
    labels = noise.labels(n)
    for diagonal in ("independent", "distinct", "true"):
        value = expected_loss("triplet", z, labels, noise, margin=0.8, diagonal=diagonal)
        assert float(value) >= triplet_bound(noise, n, margin=0.8, diagonal=diagonal) - 1e-9
        value = expected_loss("margin", z, labels, noise, beta=beta, margin=0.8, diagonal=diagonal)
        assert float(value) >= margin_bound(noise, n, margin=0.8, diagonal=diagonal) - 1e-9


@pytest.mark.parametrize("t", [2, 3, 5])
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("p", [0.1, 0.6, 0.9])
def test_collapsed_classes_reach_the_triplet_bound_on_either_side_of_one_over_t(t, size, p):
    noise, n = NoiseModel(t, p), t * size
    z, labels = blobs(noise, n)
    for diagonal in ("independent", "distinct"):
        value = float(expected_loss("triplet", z, labels, noise, diagonal=diagonal))
        assert value == pytest.approx(triplet_bound(noise, n, diagonal=diagonal), rel=1e-12)


def test_the_margin_bound_is_reached_by_collapsed_classes_or_by_one_point():
    two, three = NoiseModel(2, 0.6), NoiseModel(3, 0.6)
    z, labels = blobs(two, 8, distance=2.0)
    assert float(expected_loss("margin", z, labels, two, beta=1.0)) == pytest.approx(
        margin_bound(two, 8)
    )
    z, labels = blobs(three, 9, distance=2.0)
    assert float(expected_loss("margin", z, labels, three, beta=1.0)) == pytest.approx(50.40)
    point = float(expected_loss("margin", torch.zeros(9, 2), labels, three, beta=-1.0))
    assert point == pytest.approx(46.08)
    assert point == pytest.approx(margin_bound(three, 9))


def test_in_enough_dimensions_wide_classes_are_as_good_as_collapsed_ones(
    equidistant_classes,
):
    noise = NoiseModel(2, 0.8)
    assert theorem_1(noise, 8, 7, diagonal="distinct").holds is False
    assert theorem_1(noise, 8, 7, diagonal="independent").holds is True
    spread = equidistant_classes(2, 4, inside=0.7, between=1.7)
    bound = triplet_bound(noise, 8, diagonal="distinct")
    assert float(expected_loss("triplet", spread, noise.labels(8), noise)) == pytest.approx(bound)
    own = float(expected_loss("triplet", spread, noise.labels(8), noise, diagonal="independent"))
    assert own > triplet_bound(noise, 8) + 0.1
    assert theorem_2(noise, 8, 7).holds is False
    spread = equidistant_classes(2, 4, inside=0.7, between=2.7)
    value = expected_loss("margin", spread, noise.labels(8), noise, beta=1.7)
    assert float(value) == pytest.approx(margin_bound(noise, 8))


def test_splitting_a_class_pays_when_the_anchor_is_its_own_positive_and_noise_is_strong():
    for p, pays in ((0.6, True), (0.95, False)):
        noise = NoiseModel(2, p)
        labels = noise.labels(8)
        z = torch.zeros(8, 2, dtype=torch.float64)
        z[labels == 1, 0] = 1.0
        split = z.clone()
        split[:2, 1] = 1e-3
        before, after = (
            expected_loss("triplet", x, labels, noise, diagonal="true") for x in (z, split)
        )
        assert (float(after) < float(before)) is pays
        verdict = theorem_1(noise, 8, 2, diagonal="true")
        assert verdict.holds is (False if pays else None)


@pytest.mark.parametrize(
    ("t", "p", "dim", "diagonal", "holds"),
    [
        (2, 1.0, 2, "independent", False),  # clean labels
        (4, 0.25, 3, "independent", False),  # labels say nothing
        (4, 0.1, 3, "independent", True),  # below 1/t they say something again
        (4, 0.8, 2, "independent", None),  # no room for equidistant classes
        (2, 0.6, 2, "distinct", True),
        (2, 0.8, 7, "true", False),
    ],
)
def test_theorem_1_states_its_conditions(t, p, dim, diagonal, holds):
    assert theorem_1(NoiseModel(t, p), 8, dim, diagonal=diagonal).holds is holds


@pytest.mark.parametrize(
    ("t", "p", "n", "dim", "diagonal", "holds"),
    [
        (2, 0.6, 8, 2, "distinct", True),
        (2, 0.5, 8, 2, "distinct", False),
        (2, 1.0, 8, 2, "distinct", False),
        (3, 0.8, 9, 2, "true", True),
        (3, 0.6, 9, 2, "independent", False),
        (3, 0.6, 9, 2, "true", None),  # (n/t − 1)(1 − 2 S_same) = 0.24 < 1
        (3, 0.6, 60, 2, "true", False),
        (4, 0.8, 8, 2, "distinct", None),
        (2, 0.8, 8, 7, "independent", True),
    ],
)
def test_theorem_2_states_its_conditions(t, p, n, dim, diagonal, holds):
    assert theorem_2(NoiseModel(t, p), n, dim, diagonal=diagonal).holds is holds


def test_one_point_costs_less_just_when_the_condition_says_so_with_the_anchor_paired():
    for n in (9, 30, 60, 90):
        noise = NoiseModel(3, 0.6)
        z, labels = blobs(noise, n, distance=2.0)
        collapsed = expected_loss("margin", z, labels, noise, beta=1.0, diagonal="true")
        point = expected_loss(
            "margin", torch.zeros(n, 2), labels, noise, beta=-1.0, diagonal="true"
        )
        says = theorem_2(noise, n, 2, diagonal="true").holds is False
        assert (float(point) < float(collapsed)) is says


@given(seed=st.integers(0, 10_000), gap=st.sampled_from([0.0, 1.0, 3.0, 8.0]))
def test_the_corrected_conditions_of_section_4_1_give_zero_loss(seed, gap):
    clean = NoiseModel(2, 1.0)
    z = torch.randn(6, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    labels = clean.labels(6)
    z[labels == 1] += gap
    margin = zero_triplet_margin(z, labels)
    if margin >= 0:
        assert float(expected_loss("triplet", z, labels, clean, margin=margin)) < 1e-12
    boundaries = zero_margin_boundaries(z, labels, margin=0.5)
    low_loss = min(
        float(expected_loss("margin", z, labels, clean, beta=b, margin=0.5))
        for b in torch.linspace(0, 12, 97).tolist()
    )
    assert (boundaries is None) == (margin < 1.0)
    if boundaries is None:
        assert low_loss > 0
    for b in boundaries or ():
        assert float(expected_loss("margin", z, labels, clean, beta=b, margin=0.5)) < 1e-12


def test_the_printed_conditions_of_section_4_1_do_not():
    clean = NoiseModel(2, 1.0)
    # diam = 2 < 2α + dist = 3
    assert float(expected_loss("triplet", [[0.0], [2.0], [1.0]], [0, 0, 1], clean)) > 0
    assert float(expected_loss("margin", [[0.0], [1.0], [10.0]], [0, 0, 1], clean, beta=1.0)) > 0


def test_zero_loss_needs_two_classes_and_theorems_two_samples_a_class():
    with refused("labels"):
        zero_triplet_margin([[0.0], [1.0]], [0, 0])
    with refused("n"):
        theorem_1(NoiseModel(3, 0.8), 5, 2)
