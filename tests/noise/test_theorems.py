import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.errors import refuses
from uncollapse._base.check import InputError
from uncollapse.noise import (
    NoiseModel,
    blobs,
    check_claims_eps,
    expected_loss,
    margin_bound,
    smallest_m,
    theorem_1,
    theorem_2,
    triplet_bound,
    zero_margin_boundaries,
    zero_triplet_margin,
)
from uncollapse.noise.expected import first_positive
from uncollapse.noise.theorems import claim_4_gap, mode_gain

P = st.sampled_from([0.05, 0.2, 0.45, 0.6, 0.8, 0.99])


@given(st.integers(2, 4), st.integers(2, 4), P, st.integers(0, 99), st.sampled_from([0.1, 0.5, 2]))
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
    value = float(expected_loss("margin", z, labels, two, beta=1.0))
    assert value == pytest.approx(margin_bound(two, 8))
    z, labels = blobs(three, 9, distance=2.0)
    assert float(expected_loss("margin", z, labels, three, beta=1.0)) == pytest.approx(50.40)
    point = float(expected_loss("margin", torch.zeros(9, 2), labels, three, beta=-1.0))
    assert point == pytest.approx(46.08)
    assert point == pytest.approx(margin_bound(three, 9))


@pytest.mark.parametrize(
    ("t", "p", "dim", "diagonal", "holds"),
    [
        (2, 1.0, 2, "independent", False),  # clean labels
        (4, 0.25, 3, "independent", False),  # labels say nothing
        (4, 0.1, 3, "independent", True),  # below 1/t they say something again
        (4, 0.8, 2, "independent", None),  # no room for equidistant classes
        (2, 0.6, 2, "distinct", True),
        (2, 0.8, 7, "true", False),
        (2, 0.8, 7, "distinct", False),  # so many dimensions that wide classes do as well
        (2, 0.8, 7, "independent", True),
        (2, 0.65, 2, "true", False),  # splitting a class pays under strong noise
        (2, 0.7, 2, "true", None),
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
        (2, 0.8, 8, 7, "distinct", False),
        (3, 0.6, 27, 2, "true", None),  # 0.96: one point does not yet cost less
        (3, 0.6, 30, 2, "true", False),  # 1.08
    ],
)
def test_theorem_2_states_its_conditions(t, p, n, dim, diagonal, holds):
    assert theorem_2(NoiseModel(t, p), n, dim, diagonal=diagonal).holds is holds


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
        for b in torch.linspace(0, 12, 49).tolist()
    )
    assert (boundaries is None) == (margin < 1.0)
    if boundaries is None:
        assert low_loss > 0
    for b in boundaries or ():
        assert float(expected_loss("margin", z, labels, clean, beta=b, margin=0.5)) < 1e-12


LEVELS = (0.55, 0.6, 0.7, 0.8, 0.9, 0.95)


def claim_3_gap(model, anchor, others):
    """E[1 − δ] − E[Φ] of each sample, nearest first; positive: it is pushed away."""
    chosen = first_positive(torch.tensor(anchor), torch.tensor(others), model).sum(-1)
    table = model.probabilities
    return (1 - table[others] @ table[anchor] - chosen).tolist()


@pytest.mark.parametrize(("t", "p"), [(2, 0.55), (2, 0.9), (3, 0.7), (5, 0.9), (3, 0.2)])
def test_the_closed_form_of_the_gain_is_the_difference_of_the_expected_losses(t, p):
    noise, halves = NoiseModel(t, p), [1, 2, 3, 7]
    for claim in (1, 2):
        objective, beta = ("eps-triplet", None) if claim == 1 else ("eps-margin", 0.7)
        slow = []
        for half in halves:
            collapsed, split = (
                expected_loss(
                    objective,
                    *blobs(noise, 2 * t * half, modes=modes, distance=0.7),
                    noise,
                    margin=0.7,
                    beta=beta,
                )
                for modes in (1, 2)
            )
            slow.append(float(collapsed - split))
        np.testing.assert_allclose(mode_gain(claim, noise, halves, margin=0.7), slow, atol=1e-9)


@pytest.mark.parametrize(
    ("t", "first", "second"),
    [
        (2, [12] * 6, [8] * 6),
        (3, [30, 30, 24, 18, 18, 18], [6, 6, 12, 12, 12, 12]),
        (5, [140, 150, 180, 240, 410, 740], [10, 10, 20, 20, 20, 20]),
    ],
)
def test_the_number_of_samples_from_which_claims_1_and_2_hold(t, first, second):
    assert [smallest_m(1, p, t) for p in LEVELS] == first
    assert [smallest_m(2, p, t) for p in LEVELS] == second


def test_two_modes_can_win_lose_again_and_win_for_good():
    gains = mode_gain(1, NoiseModel(5, 0.9), [2, 3, 22, 41])
    assert np.sign(gains).tolist() == [-1, 1, -1, 1]


def test_claim_3_in_the_worst_order_and_with_its_own_class_first():
    assert [smallest_m(3, p) for p in (0.8, 0.9, 0.95, 0.99)] == [4, 15, 44, 389]
    assert {smallest_m(3, p, order="own-first") for p in (*LEVELS, 0.99)} == {1}


@pytest.mark.parametrize(("t", "p"), [(2, 0.8), (2, 0.7), (3, 0.7), (3, 0.6)])
def test_claim_3_worst_order_is_the_worst_of_all_orders(t, p):
    noise, longest = NoiseModel(t, p), 7
    failing = 0
    for others in itertools.product(range(t), repeat=longest):
        gaps = claim_3_gap(noise, 0, list(others))
        failing = max([failing, *(rank for rank, gap in enumerate(gaps, 1) if gap <= 1e-12)])
    assert failing == smallest_m(3, p, t)
    assert failing < longest


@pytest.mark.parametrize("p", [0.6, 0.8, 0.9])
@pytest.mark.parametrize("t", [2, 3])
def test_claim_4_needs_two_ranks_at_most_between_samples_of_one_class(p, t):
    assert smallest_m(4, p, t, order="same-class") + 1 <= 2
    noise = NoiseModel(t, p)
    for near, inner, own in itertools.product((0, 1, 3), (0, 1, 2, 3), range(t)):
        for between in itertools.product(range(t), repeat=inner):
            others = [1] * near + [own, *between, own]
            gap = claim_4_gap(noise, 0, others, near, len(others) - 1)
            assert abs(gap) < 1e-15 if inner == 0 else gap > 0


@pytest.mark.parametrize(("t", "p"), [(2, 0.6), (2, 0.7), (3, 0.55), (2, 0.3)])
def test_claim_4_for_any_classes_holds_beyond_m_and_fails_at_m_for_some_rank(t, p):
    noise, m = NoiseModel(t, p), smallest_m(4, p, t)
    high = 0 if p > 1 / t else 1  # the class most likely to get label 0, and one least likely
    low = 1 - high
    worst = []
    for rank in (0, 5, 60):
        closer = [low if t == 2 or s % 2 else 2 for s in range(rank)]
        for j in (m, m + 1):
            others = [*closer, low, *[low] * (j - 1), high]
            gap = claim_4_gap(noise, 0, others, rank, rank + j)
            scale = claim_4_gap(noise, 0, [*closer, 0, 0, 0], rank, rank + 2)
            if j > m:
                assert gap > 0
            else:
                worst.append(gap / scale)
    assert min(worst) < 0


@pytest.mark.slow
def test_the_truth_table_holds_the_recomputed_numbers():
    rows = {row.where: row for row in check_claims_eps()}
    assert "84.42 < 92.16" in rows["Theorem 1, δ_ii = 1"].evidence
    assert "46.08 (found 46.08) < collapsed 50.40" in rows["Theorem 2, t >= 3"].evidence
    assert "122.88 = lower bound 122.88" in rows["Theorem 1, fresh label at j = i"].evidence
    assert "class diameter 0.5 costs 80.64 too" in rows["Theorem 1, distinct samples"].evidence
    assert "M = 12 (t=2), 18 to 30 (t=3), 140 to 740 (t=5)" in rows["Claim 1"].evidence
    assert "M = 8 (t=2), 6 to 12 (t=3), 10 to 20 (t=5)" in rows["Claim 2"].evidence
    assert "4/15/44/389" in rows["Claim 3"].evidence
    statuses = {row.status for row in rows.values()}
    assert statuses == {"true", "true if", "false", "misprint"}
    assert "2 < 3, loss 4.0" in rows["§4.1 triplet"].evidence
    assert "loss 2.0 at β = 1, 0.0 in [2, 8]" in rows["§4.1 margin"].evidence


def test_wrong_arguments_are_refused_by_name():
    noise = NoiseModel(2, 0.8)
    refuses(zero_triplet_margin, {"embedding": [[0.0], [1.0]]}, labels=[[0, 0]])
    refuses(theorem_1, {"model": NoiseModel(3, 0.8), "dim": 2}, n=[5])
    refuses(mode_gain, {"claim": 1, "model": noise}, half=[[0]])
    refuses(smallest_m, {"claim": 3, "p": 0.8}, claim=[5], p=[1.0, 1 - 1e-9], order=["random"])
    refuses(smallest_m, {"claim": 4, "p": 0.8}, order=["own-first"])
    with pytest.raises(InputError, match="near, far"):
        claim_4_gap(noise, 0, [0, 1], 1, 1)
