import math

import numpy as np
import pytest

from support.errors import refuses
from uncollapse.geometry.claims import check_claims
from uncollapse.geometry.nearest import nearest_separated

CROSS = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
CROSS_IDS = np.array([0, 0, 1, 1])


def by_name(*args, **kwargs):
    return {claim.name: claim for claim in check_claims(*args, **kwargs)}


def simplices(count):
    """Two regular simplices in orthogonal spaces, one centre."""
    centred = np.eye(count) - 1 / count
    simplex = centred @ np.linalg.svd(centred)[0][:, : count - 1]
    zero = np.zeros_like(simplex)
    return np.block([[simplex, zero], [zero, simplex]]), np.repeat([0, 1], count)


def test_theorem_3_3_is_false_with_a_margin():
    claims = by_name(np.zeros((4, 1)), np.arange(4), 1.0)
    upper = claims["Thm 3.3, upper"]
    assert upper.status == claims["Cor. 3.4, upper"].status == "violated"
    assert upper.left[1] == pytest.approx(3.0)
    assert upper.right[1] == 2.0
    assert upper.ratio == pytest.approx(1.5)
    assert claims["Thm 3.2, upper"].status == "vacuous"
    assert "flat" in claims["Thm 3.2, upper"].sentence


def test_the_lower_bounds_are_attained_on_a_line():
    claims = by_name([[0.0], [3.0], [-1.0]], [0, 0, 1])
    for name in ("Thm 3.2, lower", "Thm 3.3, lower", "Cor. 3.4, lower"):
        assert claims[name].status == "holds"
        assert claims[name].ratio == pytest.approx(1.0)


@pytest.mark.slow
def test_an_upper_bound_alone_never_violates_a_claim():
    claims = by_name(CROSS, CROSS_IDS)
    claim = claims["Cor. 3.4, upper"]
    assert claim.left[1] == pytest.approx(0.9107, rel=1e-3)
    assert claim.left[1] > claim.right[1] > claim.left[0]
    assert claim.status == "undecided"
    # Without an end point nothing certifies that these are the nearest ones.
    assert claims["(17)"].status == "undecided"


@pytest.mark.slow
def test_17_fails_for_the_cross_at_its_nearest_separated_points():
    end = nearest_separated(CROSS, CROSS_IDS).points
    claim = by_name(CROSS, CROSS_IDS, end=end, starts=0)["(17)"]
    assert claim.status == "violated"
    assert claim.left[1] == pytest.approx(2 - 2 * (2 - math.sqrt(2)))
    assert claim.right[1] < claim.left[1]


def test_the_constant_of_17_is_used():
    claims = by_name(CROSS, CROSS_IDS, c=4.0, starts=1)
    assert claims["Cor. 3.4, upper"].status == "holds"
    assert claims["Cor. 3.4, upper"].right[1] == pytest.approx(2 * (2 - math.sqrt(2)))
    assert claims["(17)"].status == "vacuous"


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 5])
def test_corollary_3_4_fails_without_a_margin_by_more_in_more_dimensions(count):
    x, ids = simplices(count)
    claim = by_name(x, ids, starts=1)["Cor. 3.4, upper"]
    assert claim.status == "violated"
    # The certified ratio is at least sqrt(n/2), n = 2 (count - 1).
    assert claim.left[0] / claim.right[1] >= 0.99 * math.sqrt(count - 1)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.0, 0.3])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_statements_that_are_proved_always_hold(alpha, dim):
    x = np.random.default_rng(dim).standard_normal((6, dim))
    claims = by_name(x, np.arange(6) % 3, alpha, starts=1)
    for name in ("Thm 3.2, lower", "Thm 3.3, lower", "Cor. 3.4, lower", "(16)"):
        assert claims[name].status == "holds", name
        assert claims[name].left[0] <= claims[name].right[1] * (1 + 1e-6)


def test_16_is_false_for_an_arbitrary_separated_end_point():
    x = np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 0.0], [5.0, 1.0]])
    claims = by_name(x, CROSS_IDS, end=np.zeros_like(x))
    assert claims["(16)"].status == claims["(17)"].status == "violated"
    assert claims["(16)"].ratio == math.inf


def test_16_and_17_say_nothing_of_an_end_point_that_is_not_separated():
    claims = by_name(CROSS, CROSS_IDS, end=0.9 * CROSS, starts=0)
    assert claims["(16)"].status == claims["(17)"].status == "vacuous"
    assert "did not end" in claims["(17)"].sentence


def test_17_is_vacuous_where_its_bound_is_not_positive():
    x = np.random.default_rng(0).standard_normal((20, 2))
    claim = by_name(x, np.repeat([0, 1], 10), starts=0)["(17)"]
    assert claim.status == "vacuous"
    assert claim.left[1] < 0


def test_separated_points_satisfy_every_numbered_statement():
    claims = check_claims([[0.0, 0.0], [1.0, 0.0], [9.0, 0.0], [9.0, 1.0]], CROSS_IDS, 0.5)
    laws = ("Thm 3.2", "Thm 3.3", "Cor. 3.4")
    names = [f"{law}, {side}" for law in laws for side in ("lower", "upper")]
    assert [claim.name for claim in claims] == [*names, "(16)", "(17)"]
    assert {claim.status for claim in claims} == {"holds"}
    assert math.isnan(claims[0].ratio)


def test_wrong_arguments_are_refused_by_name():
    cross = {"x": CROSS, "labels": CROSS_IDS}
    refuses(check_claims, cross, end=[np.zeros((3, 2))], alpha=[-1.0], c=[-1.0])
