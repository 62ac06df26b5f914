import itertools

import numpy as np
import pytest
import torch

from support.errors import refused
from uncollapse._base.check import InputError
from uncollapse.noise import (
    NoiseModel,
    blobs,
    check_claims_eps,
    expected_loss,
    smallest_m,
)
from uncollapse.noise.expected import first_positive
from uncollapse.noise.theorems import claim_4_gap, mode_gain

pytestmark = pytest.mark.slow

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
        slow = []
        for half in halves:
            values = []
            for modes in (1, 2):
                z, labels = blobs(noise, 2 * t * half, modes=modes, distance=0.7)
                if claim == 1:
                    value = expected_loss("eps-triplet", z, labels, noise, margin=0.7)
                else:
                    value = expected_loss("eps-margin", z, labels, noise, margin=0.7, beta=0.7)
                values.append(float(value))
            slow.append(values[0] - values[1])
        np.testing.assert_allclose(mode_gain(claim, noise, halves, margin=0.7), slow, atol=1e-9)


def test_claims_1_and_2_hold_from_12_and_from_8_samples_on_for_two_classes():
    assert {smallest_m(1, p) for p in LEVELS} == {12}
    assert {smallest_m(2, p) for p in LEVELS} == {8}


def test_claims_1_and_2_for_three_and_five_classes():
    assert [smallest_m(1, p, 3) for p in LEVELS] == [30, 30, 24, 18, 18, 18]
    assert [smallest_m(2, p, 3) for p in LEVELS] == [6, 6, 12, 12, 12, 12]
    assert [smallest_m(1, p, 5) for p in LEVELS] == [140, 150, 180, 240, 410, 740]
    assert [smallest_m(2, p, 5) for p in LEVELS] == [10, 10, 20, 20, 20, 20]


@pytest.mark.parametrize(("t", "p"), [(2, 0.8), (3, 0.6), (5, 0.8), (5, 0.9)])
def test_two_modes_win_from_m_on_and_lose_just_before(t, p):
    noise = NoiseModel(t, p)
    for claim in (1, 2):
        m = smallest_m(claim, p, t) // (2 * t)
        assert np.all(mode_gain(claim, noise, np.arange(m, 20 * m)) > 0)
        assert m == 1 or float(mode_gain(claim, noise, [m - 1])[0]) <= 0


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


def test_a_sample_pushed_away_has_its_minimum_at_beta_plus_alpha():
    # the pair's own term of the margin loss, over its distance
    noise, beta = NoiseModel(2, 0.8), 1.0
    grid = torch.linspace(0, 4, 401, dtype=torch.float64)
    for rank, gap in enumerate(claim_3_gap(noise, 0, [1, 1, 1, 1, 0, 0])):
        others = [1, 1, 1, 1, 0, 0]
        push = 1 - float(noise.probabilities[0] @ noise.probabilities[others[rank]])
        pull = push - gap
        cost = pull * (grid - beta + 1).relu() + push * (beta - grid + 1).relu()
        best = float(grid[cost.argmin()])
        assert best == pytest.approx(beta + 1 if gap > 0 else beta - 1, abs=0.011)


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


def test_a_sample_pushed_beyond_another_has_its_minimum_at_plus_alpha():
    noise = NoiseModel(2, 0.9)
    others = [0, 0, 1, 0, 0]
    farther_chosen = float(first_positive(torch.tensor(0), torch.tensor(others), noise)[4].sum())
    nearer_chosen = farther_chosen + claim_4_gap(noise, 0, others, 1, 4)
    x = torch.linspace(0, 3, 301, dtype=torch.float64)  # how far beyond
    cost = nearer_chosen * (1 - x).relu() + farther_chosen * (1 + x).relu()
    assert nearer_chosen > farther_chosen
    assert float(x[cost.argmin()]) == pytest.approx(1.0, abs=0.011)


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"claim": 5, "p": 0.8}, "claim: expected one of"),
        ({"claim": 1, "p": 1.0}, "p: expected a number strictly between 0 and 1"),
        ({"claim": 3, "p": 0.8, "order": "random"}, "order: expected one of 'worst', 'own-first'"),
        ({"claim": 4, "p": 0.8, "order": "own-first"}, "order: expected one of 'worst', 'same-cl"),
        ({"claim": 3, "p": 1 - 1e-9}, "p: expected"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        smallest_m(**arguments)


def test_ranks_and_sizes_are_checked():
    with refused("half"):
        mode_gain(1, NoiseModel(2, 0.8), [0])
    with pytest.raises(InputError, match="near, far: expected ranks"):
        claim_4_gap(NoiseModel(2, 0.8), 0, [0, 1], 1, 1)
