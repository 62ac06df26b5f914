from __future__ import annotations

import math

import numpy as np
import pytest

from uncollapse._base.check import InputError
from uncollapse.metrics import alpha_req, effective_rank, pcf, rankme, rho_spectrum


def gaussian(seed=0, n=200, dim=8, scales=1.0):
    return np.random.default_rng(seed).normal(size=(n, dim)) * scales


def orthogonal(values, rows, seed=0):
    """Centred rows whose singular values are these, in random directions."""
    rng = np.random.default_rng(seed)
    dim = len(values)
    about = rng.normal(size=(rows, dim))
    left = np.linalg.qr(about - about.mean(axis=0))[0]
    right = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    return left * values @ right.T


@pytest.mark.parametrize("seed", range(3))
def test_rankme_is_the_sum_of_its_paper(seed):
    x = gaussian(seed, 50, 7) + seed
    values = np.sqrt(np.linalg.eigvalsh(x.T @ x))
    entropy = 0.0
    for value in values:
        p = value / values.sum() + 1e-7
        entropy -= p * math.log(p)
    assert rankme(x) == pytest.approx(math.exp(entropy), rel=1e-9)


def test_rankme_of_an_isotropic_gaussian_is_nearly_its_dimension():
    assert 15.9 < rankme(gaussian(n=5000, dim=16)) < 16.001


def test_rankme_of_equal_singular_values_is_their_number():
    x = orthogonal(np.array([3.0] * 5 + [0.0] * 7), 40)
    assert rankme(x, eps=0.0) == pytest.approx(5, rel=1e-12)
    assert rankme(x) == pytest.approx(5, rel=1e-4)


def test_rankme_does_not_see_scale_but_place():
    x = gaussian()
    for scale in (1e-200, 1e-6, 1e200):
        assert rankme(x * scale) == pytest.approx(rankme(x), rel=1e-12)
    assert rankme(x + 1e6) < 1.01
    assert effective_rank(x + 1e6) == pytest.approx(effective_rank(x), rel=1e-6)


def test_rankme_of_one_point_is_one_and_of_the_origin_nothing():
    assert rankme(np.full((20, 5), 0.1)) == pytest.approx(1, abs=1e-4)
    assert rankme(np.full((20, 5), 0.1), eps=0) == 1.0
    assert rankme(np.zeros((20, 5))) == 0.0


@pytest.mark.parametrize("value", [0.1, 1 / 3, 0.7, 1e300, 1e-300])
@pytest.mark.parametrize("n", [3, 7, 12, 80, 300])
def test_one_point_anywhere_has_effective_rank_0_and_no_axis_in_use(value, n):
    """The mean of equal numbers need not be that number: what is left is not an axis."""
    x = np.full((n, 3), value)
    assert (effective_rank(x), pcf(x)) == (0.0, 0.0)


@pytest.mark.parametrize("skip", [0, 1, 3])
def test_rho_is_the_divergence_of_the_uniform_from_the_spectrum(skip):
    x = gaussian(n=60, dim=6, scales=np.arange(1, 7)) + 0.5
    values = np.sort(np.sqrt(np.linalg.eigvalsh(x.T @ x)))[::-1][skip:]
    share = values / values.sum()
    divergence = sum((1 / len(share)) * math.log((1 / len(share)) / p) for p in share)
    assert rho_spectrum(x, skip=skip) == pytest.approx(divergence, rel=1e-9)


def test_rho_of_equal_singular_values_is_0_and_of_two_to_one_is_known():
    assert rho_spectrum(orthogonal(np.full(5, 2.0), 30)) == pytest.approx(0, abs=1e-14)
    # shares 2/3 and 1/3: (log(3/4) + log(3/2)) / 2
    assert rho_spectrum(np.diag([2.0, 1.0])) == pytest.approx(math.log(9 / 8) / 2, rel=1e-12)


def test_rho_is_infinite_where_a_direction_is_not_used():
    assert rho_spectrum(gaussian(dim=5) @ np.diag([1, 1, 1, 1, 0])) == math.inf
    assert rho_spectrum(np.full((9, 4), 0.3)) == math.inf
    assert rho_spectrum(np.zeros((9, 4))) == math.inf
    assert rho_spectrum(np.full((9, 1), 0.3)) == 0.0


def test_rho_does_not_see_scale():
    x = gaussian(scales=np.arange(1, 9))
    assert rho_spectrum(x * 1e-180) == pytest.approx(rho_spectrum(x), rel=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.3])
@pytest.mark.parametrize("ranks", [(1, 40), (4, 100), (5, 20)])
def test_alpha_of_a_power_law_is_its_exponent(alpha, ranks):
    x = orthogonal(np.arange(1.0, 61.0) ** (-alpha / 2), 200)
    for moved in (x, x * 1e-150, x + 1e3):
        assert alpha_req(moved, ranks=ranks) == pytest.approx(alpha, abs=1e-6)


def test_alpha_is_the_weighted_line_of_the_authors_code():
    x = gaussian(3, 80, 12, np.linspace(3, 0.2, 12))
    about = x - x.mean(axis=0)
    eigenvalues = np.sort(np.linalg.eigvalsh(about.T @ about / len(x)))[::-1]
    ranks = np.arange(4, 13)
    design = np.c_[-np.log(ranks), np.ones(len(ranks))]
    weight = np.sqrt(1 / ranks)
    line = np.linalg.lstsq(design * weight[:, None], np.log(eigenvalues[3:]) * weight, rcond=None)[
        0
    ]
    assert alpha_req(x) == pytest.approx(line[0], rel=1e-9)


def test_alpha_is_infinite_without_variance_and_unknown_without_axes():
    assert alpha_req(np.full((50, 10), 0.1)) == math.inf
    assert alpha_req(orthogonal(np.array([1.0] * 6 + [0.0] * 6), 40)) == math.inf
    assert math.isnan(alpha_req(gaussian(dim=4)))
    assert math.isnan(alpha_req(gaussian(n=4, dim=40)))
    assert math.isfinite(alpha_req(gaussian(n=7, dim=40)))  # ranks 4 to 6


@pytest.mark.parametrize(
    ("variance", "expected"), [(0.5, 0.25), (0.9, 0.45)], ids=["half", "nine tenths"]
)
def test_pcf_is_that_of_the_published_test(variance, expected):
    half = np.eye(300, 10)
    assert pcf(np.concatenate([half, half], axis=1), variance=variance) == expected


@pytest.mark.parametrize("variance", [0.0, 0.3, 0.7, 0.99])
def test_pcf_counts_the_axes_that_hold_more_than_the_variance(variance):
    x = gaussian(5, 70, 9, np.linspace(2, 0.1, 9))
    about = x - x.mean(axis=0)
    squares = np.linalg.svd(about, compute_uv=False) ** 2
    axes, held = 0, 0.0
    while held <= variance:
        held += squares[axes] / squares.sum()
        axes += 1
    assert pcf(x, variance=variance) == axes / 9
    assert pcf(x * 1e-160 + 0, variance=variance) == axes / 9


def test_pcf_of_equal_axes_is_not_moved_by_rounding():
    for seed in range(20):
        x = orthogonal(np.array([1.0] * 4 + [0.0] * 4), 30, seed)
        assert pcf(x, variance=0.5) == 3 / 8
        assert pcf(x, variance=1.0) == 4 / 8


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: rankme(gaussian(), eps=-1), "eps: expected"),
        (lambda: rho_spectrum(gaussian(dim=3), skip=3), "skip: expected fewer than the 3"),
        (lambda: rho_spectrum(gaussian(), skip=-1), "skip: expected"),
        (lambda: alpha_req(gaussian(), ranks=(5, 5)), "ranks: expected two whole numbers"),
        (lambda: alpha_req(gaussian(), ranks=3), "ranks: expected two whole numbers"),
        (lambda: alpha_req(gaussian(), ranks=(0, 5)), "ranks: expected a whole number"),
        (lambda: pcf(gaussian(), variance=1.5), "variance: expected"),
        (lambda: rankme([[math.nan]]), "NaN"),
    ],
)
def test_what_cannot_be_used_is_said(call, words):
    with pytest.raises(InputError, match=words):
        call()
