import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from support.errors import refuses
from support.oracles import distance_matrix, hausdorff_distance, separation_margin, triplets
from uncollapse.geometry.diameters import diameter
from uncollapse.geometry.isometry import hausdorff_like
from uncollapse.geometry.nearest import gradient_descent_separated, nearest_separated
from uncollapse.geometry.triplet_separation import hard_mined_loss, is_triplet_separated

pytestmark = pytest.mark.slow

CROSS = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
CROSS_IDS = np.array([0, 0, 1, 1])


def measured(x, z, ids, objective):
    """(12) and (14) by their definitions."""
    if objective == "iso":
        return float(np.abs(distance_matrix(x) - distance_matrix(z)).max())
    return max(hausdorff_distance(x[ids == c], z[ids == c]) for c in np.unique(ids))


def exact_on_a_line(x, ids, alpha, objective):
    """Least value over all orders of the points, one linear program each, (5) written out."""
    n, best = len(x), math.inf
    unit = np.eye(n + 1)  # the points, then the value
    for order in itertools.permutations(range(n)):
        rank = np.argsort(order)

        def length(i, j, rank=rank):
            return unit[i] - unit[j] if rank[i] > rank[j] else unit[j] - unit[i]

        rows = [(unit[i] - unit[j], 0.0) for i, j in itertools.pairwise(order)]
        for a, p, m in triplets(ids, self_positive=True):
            rows.append(((0.0 if a == p else length(a, p)) - length(a, m), -alpha))
        if objective == "iso":
            for i, j in itertools.combinations(range(n), 2):
                d = abs(x[i] - x[j])
                rows += [(length(i, j) - unit[n], d), (-length(i, j) - unit[n], -d)]
        else:
            for i in range(n):
                rows += [(unit[i] - unit[n], x[i]), (-unit[i] - unit[n], -x[i])]
        matrix, rhs = (np.array(part) for part in zip(*rows, strict=True))
        bounds = [(None, None)] * n + [(0.0, None)]
        answer = linprog(unit[n], matrix, rhs, bounds=bounds, method="highs")
        if answer.status == 0:
            best = min(best, answer.fun)
    return best


def best_of_many_descents(x, ids, objective, starts=10):
    """Sequential quadratic programming on the points and the value, from many starts."""
    n, dim = x.shape
    rng = np.random.default_rng(0)
    a, p, m = np.array(triplets(ids)).T
    i, j = np.triu_indices(n, 1)

    def room(v):
        """At least 0 where the points are separated and no farther away than the value."""
        z, value = v[:-1].reshape(n, dim), v[-1]
        d = np.sqrt(((z[:, None] - z) ** 2).sum(-1) + 1e-18)
        if objective == "iso":
            gap = (d - distance_matrix(x))[i, j]
            return np.r_[d[a, m] - d[a, p], value - gap, value + gap]
        return np.r_[d[a, m] - d[a, p], value**2 - ((z - x) ** 2).sum(1)]

    best = math.inf
    means = np.array([x[ids == c].mean(0) for c in ids])
    for _ in range(starts):
        z = x + rng.uniform(0, 0.9) * (means - x) + 0.3 * rng.standard_normal(x.shape)
        start = np.append(z.ravel(), measured(x, z, ids, objective))
        answer = minimize(
            lambda v: v[-1],
            start,
            constraints={"type": "ineq", "fun": room},
            method="SLSQP",
            options={"maxiter": 200, "ftol": 1e-10},
        )
        z = answer.x[:-1].reshape(n, dim)
        if np.abs(z).max() < 1e3 and separation_margin(z, ids) > -1e-6:
            best = min(best, measured(x, z, ids, objective))
    return best


@st.composite
def labelled(draw, max_points=6, max_dim=3):
    n, dim = draw(st.integers(2, max_points)), draw(st.integers(1, max_dim))
    ids = np.array([0, 1] + [draw(st.integers(0, 2)) for _ in range(n - 2)])
    cells = draw(st.lists(st.integers(-4, 4), min_size=n * dim, max_size=n * dim))
    noise = draw(st.sampled_from([0.0, 0.13]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return np.array(cells, float).reshape(n, dim) + noise * rng.standard_normal((n, dim)), ids


@pytest.mark.parametrize(
    ("count", "objective", "value"),
    [(4, "iso", 3.0), (4, "haus", 1.5), (5, "iso", 4.0), (5, "haus", 2.0)],
)
def test_coincident_singletons_on_a_line_must_be_spread_by_the_margin(count, objective, value):
    x, ids = np.zeros((count, 1)), np.arange(count)
    assert hard_mined_loss(x, ids, 1.0) == 1.0
    result = nearest_separated(x, ids, 1.0, objective)
    assert result.value == pytest.approx(value, rel=1e-8)
    assert result.lower_bound == pytest.approx(value, rel=1e-8)
    assert result.method == "exact on the line"


def test_the_cross_is_farther_from_separated_than_its_loss():
    assert hard_mined_loss(CROSS, CROSS_IDS) == pytest.approx(2 - math.sqrt(2))
    result = nearest_separated(CROSS, CROSS_IDS)
    assert result.value == pytest.approx(0.9107, rel=1e-3)
    assert result.value > hard_mined_loss(CROSS, CROSS_IDS)
    # Free to use more dimensions, A and B could each shrink by a third and lift by sqrt(2)/3.
    assert result.lower_bound == pytest.approx(1 / math.sqrt(3), rel=1e-5)


@pytest.mark.parametrize(
    ("seed", "labels", "objective", "share"),
    [
        (2, [0, 0, 0, 1, 1], "iso", 0.66672),  # more than half of the loss, as few have
        (10, [0, 0, 0, 1, 1], "haus", None),
        (11, [0, 0, 1, 1, 2], "haus", None),
        (12, [0, 1, 0, 1, 0], "iso", None),
    ],
)
def test_tiny_planar_sets_match_a_dense_multistart(seed, labels, objective, share):
    x, ids = np.random.default_rng(seed).standard_normal((5, 2)), np.array(labels)
    result = nearest_separated(x, ids, 0.0, objective)
    assert result.value <= best_of_many_descents(x, ids, objective) * (1 + 1e-4)
    if share:
        assert result.value == pytest.approx(share * hard_mined_loss(x, ids), rel=1e-4)


def test_the_paper_s_figure_fifty_steps_go_farther_and_shrink_the_points_more():
    x, ids = np.random.default_rng(1).standard_normal((20, 2)), np.repeat([0, 1], 10)
    end, nearest = gradient_descent_separated(x, ids), nearest_separated(x, ids)
    assert diameter(x) == pytest.approx(4.94, abs=0.01)
    assert diameter(nearest.points) == pytest.approx(3.2, abs=0.15)  # not collapsed
    assert end.separated
    assert is_triplet_separated(end.points, ids)
    assert 1.2 < end.value / nearest.value < 1.7
    assert diameter(end.points) < diameter(nearest.points)
    assert end.lower_bound <= nearest.value < nearest_separated(x, ids, starts=0).value


@given(labelled(), st.sampled_from([0.0, 0.5, 3.0]), st.sampled_from(["haus", "iso"]))
def test_the_points_are_separated_and_the_value_is_measured_on_them(case, alpha, objective):
    x, ids = case
    result = nearest_separated(x, ids, alpha, objective, starts=2)
    z = result.points.numpy()
    assert result.points.dtype == torch.float64
    assert result.separated
    assert is_triplet_separated(z, ids, alpha)
    scale = alpha + distance_matrix(z).max()
    assert separation_margin(z, ids) >= alpha - 1e-9 * scale
    assert result.value == pytest.approx(measured(x, z, ids, objective), rel=1e-9, abs=1e-12)
    loss = max(0.0, alpha - separation_margin(x, ids))
    least = loss / (2 if objective == "iso" else 4)
    assert least * (1 - 1e-6) - 1e-12 <= result.lower_bound <= result.value


@given(labelled(max_points=5, max_dim=2), st.sampled_from([0.0, 1.0]), st.integers(0, 10**6))
def test_no_separated_points_are_nearer_than_the_lower_bound(case, alpha, seed):
    x, ids = case
    rng = np.random.default_rng(seed)
    bounds = {
        objective: nearest_separated(x, ids, alpha, objective, starts=0).lower_bound
        for objective in ("haus", "iso")
    }
    means = np.array([x[ids == c].mean(0) for c in ids])
    for _ in range(40):
        share, spread = rng.uniform(0, 1), rng.uniform(1, 3)
        z = spread * (x + share * (means - x)) + rng.uniform(0, 2) * rng.standard_normal(x.shape)
        if separation_margin(z, ids) >= alpha:
            for objective, bound in bounds.items():
                assert measured(x, z, ids, objective) >= bound - 1e-9


@settings(max_examples=10, deadline=None)
@given(
    st.sampled_from([[0, 0, 1], [0, 0, 1, 1], [0, 1, 2, 0], [0, 0, 0, 1]]),
    st.lists(st.integers(-6, 6), min_size=4, max_size=4),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from(["haus", "iso"]),
)
def test_a_line_is_solved_exactly(ids, places, alpha, objective):
    ids = np.array(ids)
    x = np.array(places[: len(ids)], float)
    result = nearest_separated(x[:, None], ids, alpha, objective)
    exact = exact_on_a_line(x, ids, alpha, objective)
    assert result.value == pytest.approx(exact, rel=1e-6, abs=1e-6)  # the solver stops at 1e-7
    assert result.lower_bound == pytest.approx(exact, rel=1e-7, abs=1e-7)


def test_separated_points_are_returned_as_they_are():
    x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [9.0, 0.0]], dtype=torch.float64)
    result = nearest_separated(x, ["a", "a", "b"], 1.0)
    assert torch.equal(result.points, x)
    assert (result.value, result.lower_bound, result.method) == (0.0, 0.0, "already separated")


@pytest.mark.parametrize("objective", ["haus", "iso"])
def test_scale_and_place_do_not_matter_and_the_seed_decides(objective):
    x, ids = np.random.default_rng(1).standard_normal((8, 2)), np.arange(8) % 2
    plain, again = (nearest_separated(x, ids, 0.2, objective, starts=4) for _ in range(2))
    assert torch.equal(plain.points, again.points)
    far = nearest_separated(1e-4 * x + 100.0, ids, 0.2e-4, objective, starts=4)
    assert is_triplet_separated(far.points, ids, 0.2e-4)
    assert far.value == pytest.approx(1e-4 * plain.value, rel=1e-3)


def test_float32_points_far_from_the_origin_are_separated_in_float64():
    x = (1e3 + 1e-3 * np.random.default_rng(2).standard_normal((10, 3))).astype(np.float32)
    result = nearest_separated(torch.from_numpy(x), np.arange(10) % 2, 0.0)
    assert is_triplet_separated(result.points, np.arange(10) % 2)
    assert 0 < result.lower_bound <= result.value < 1e-2


@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_points_that_all_coincide_can_be_separated(alpha):
    result = nearest_separated(np.ones((6, 2)), [0, 0, 1, 1, 2, 2], alpha)
    assert is_triplet_separated(result.points, [0, 0, 1, 1, 2, 2], alpha)
    # Three points 2 apart lie on a circle of radius 2/sqrt(3).
    assert result.value == pytest.approx(alpha / math.sqrt(3), abs=1e-6)


def test_many_dimensions_are_cut_down_to_those_that_matter():
    x, ids = np.random.default_rng(0).standard_normal((10, 400)), np.arange(10) % 2
    result = nearest_separated(x, ids, 40.0, starts=2)
    assert result.points.shape == (10, 400)
    assert is_triplet_separated(result.points, ids, 40.0)
    assert result.value == pytest.approx(measured(x, result.points.numpy(), ids, "haus"))
    assert result.value <= 1.5 * result.lower_bound


@pytest.mark.parametrize("objective", ["haus", "iso"])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_large_sets_get_a_bracket_without_an_optimiser(objective, alpha):
    x = np.random.default_rng(0).standard_normal((400, 24))
    ids = np.arange(400) % 20
    result = nearest_separated(x, ids, alpha, objective)
    assert result.method == "shrink"
    assert is_triplet_separated(result.points, ids, alpha)
    assert 0 < result.lower_bound < result.value < 2 * diameter(x)


def slow_step(z, ids, alpha, lr):
    """One step of the summed loss (4) of every anchor's hardest triplet, by its definition."""
    gradient = np.zeros_like(z)
    for a in range(len(z)):
        d = np.linalg.norm(z - z[a], axis=1)
        p = max((j for j in range(len(z)) if ids[j] == ids[a]), key=lambda j: d[j])
        n = min((j for j in range(len(z)) if ids[j] != ids[a]), key=lambda j: d[j])
        if d[p] - d[n] + alpha > 0:
            for j, sign in ((p, 1.0), (n, -1.0)):
                unit = (z[a] - z[j]) / d[j] if d[j] > 0 else np.zeros(z.shape[1])
                gradient[a] += sign * unit
                gradient[j] -= sign * unit
    return z - lr * gradient


@pytest.mark.parametrize("alpha", [0.0, 0.4])
def test_each_step_descends_the_hardest_triplet_of_every_anchor(alpha):
    x, ids = np.random.default_rng(0).standard_normal((9, 2)), np.arange(9) % 3
    z = x
    for _ in range(3):
        z = slow_step(z, ids, alpha, 0.03)
    end = gradient_descent_separated(x, ids, alpha, steps=3, lr=0.03)
    np.testing.assert_allclose(end.points.numpy(), z, rtol=0, atol=1e-12)
    assert not end.separated
    assert end.value == pytest.approx(hausdorff_like(x, end.points, ids))


def test_no_steps_leave_the_points_alone_and_coincident_ones_stay_finite():
    x = torch.tensor([[0.0, 0.0], [3.0, 0.0], [1.0, 0.0]])
    end = gradient_descent_separated(x, [0, 0, 1], steps=0)
    assert torch.equal(end.points, x.double())
    assert (end.value, end.lower_bound) == (0.0, hard_mined_loss(x, [0, 0, 1]) / 4)
    end = gradient_descent_separated(np.ones((4, 2)), [0, 0, 1, 1], 0.5)
    assert torch.isfinite(end.points).all()
    assert not end.separated


def test_wrong_arguments_are_refused_by_name():
    two = {"x": [[0.0], [1.0]], "labels": [0, 1]}
    refuses(nearest_separated, two, x=[[[0.0], [math.nan]]], labels=[[0, 0], [0, 1, 1]])
    refuses(nearest_separated, two | {"labels": [0]}, x=[[[0.0]]])
    refuses(nearest_separated, two, alpha=[-1.0, math.inf], objective=["sup"])
    refuses(nearest_separated, two, starts=[-1], seed=[1.5])
    refuses(gradient_descent_separated, two, steps=[-1], lr=[-0.1], alpha=[-1.0])
