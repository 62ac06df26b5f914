from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from uncollapse._base.check import InputError
from uncollapse.geometry.diameters import diameter
from uncollapse.geometry.nearest import nearest_separated
from uncollapse.geometry.triplet_separation import hard_mined_loss, is_triplet_separated

pytestmark = pytest.mark.slow

CROSS = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
CROSS_IDS = np.array([0, 0, 1, 1])


def distances(z):
    return np.sqrt(((z[:, None] - z[None]) ** 2).sum(-1))


def measured(x, z, ids, objective):
    """(12) and (14) by their definitions."""
    if objective == "iso":
        return float(np.abs(distances(x) - distances(z)).max())
    worst = 0.0
    for c in np.unique(ids):
        d = np.sqrt(((x[ids == c][:, None] - z[ids == c][None]) ** 2).sum(-1))
        worst = max(worst, d.min(0).max(), d.min(1).max())
    return float(worst)


def margin(z, ids):
    """The largest alpha of (5), by its definition: the positive may be the anchor itself."""
    d = distances(z)
    return min(
        d[a, n] - d[a, p]
        for a, p, n in itertools.product(range(len(z)), repeat=3)
        if ids[a] == ids[p] and ids[a] != ids[n]
    )


def exact_on_a_line(x, ids, alpha, objective):
    """Least value over all orders of the points, one linear program each, (5) written out."""
    n, best = len(x), math.inf
    unit = np.eye(n + 1)  # the points, then the value
    for order in itertools.permutations(range(n)):
        rank = np.argsort(order)

        def length(i, j, rank=rank):
            return unit[i] - unit[j] if rank[i] > rank[j] else unit[j] - unit[i]

        rows = [(unit[i] - unit[j], 0.0) for i, j in itertools.pairwise(order)]
        for a, p, m in itertools.product(range(n), repeat=3):
            if ids[a] == ids[p] and ids[a] != ids[m]:
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


def best_of_many_descents(x, ids, objective, starts=20):
    """Sequential quadratic programming on the points, from many starts, analytic derivatives."""
    n, dim = x.shape
    rng = np.random.default_rng(0)
    triplets = np.array(
        [t for t in itertools.permutations(range(n), 3) if ids[t[0]] == ids[t[1]] != ids[t[2]]]
    )
    pairs = np.array(list(itertools.combinations(range(n), 2)))
    target = distances(x)[pairs[:, 0], pairs[:, 1]]

    def length(v, i, j):
        """Distances of pairs of rows and their derivatives."""
        z = v[:-1].reshape(n, dim)
        step = z[i] - z[j]
        d = np.sqrt((step**2).sum(1) + 1e-18)
        slope = np.zeros((len(i), n, dim))
        slope[np.arange(len(i)), i] += step / d[:, None]
        slope[np.arange(len(i)), j] -= step / d[:, None]
        return d, np.hstack([slope.reshape(len(i), -1), np.zeros((len(i), 1))])

    def constraints(v):
        near, near_slope = length(v, triplets[:, 0], triplets[:, 1])
        far, far_slope = length(v, triplets[:, 0], triplets[:, 2])
        values, slopes = [far - near], [far_slope - near_slope]
        last = np.eye(len(v))[-1]
        if objective == "iso":
            d, slope = length(v, pairs[:, 0], pairs[:, 1])
            values += [v[-1] - d + target, v[-1] + d - target]
            slopes += [last - slope, last + slope]
        else:
            step = v[:-1].reshape(n, dim) - x
            slope = np.zeros((n, n, dim))
            slope[np.arange(n), np.arange(n)] = -2 * step
            values.append(v[-1] ** 2 - (step**2).sum(1))
            slopes.append(np.hstack([slope.reshape(n, -1), np.full((n, 1), 2 * v[-1])]))
        return np.concatenate(values), np.vstack(slopes)

    best = math.inf
    means = np.array([x[ids == c].mean(0) for c in ids])
    for _ in range(starts):
        share = rng.uniform(0, 0.9)
        z = x + share * (means - x) + 0.3 * rng.standard_normal(x.shape)
        answer = minimize(
            lambda v: v[-1],
            np.append(z.ravel(), measured(x, z, ids, objective)),
            jac=lambda v: np.eye(len(v))[-1],
            constraints={
                "type": "ineq",
                "fun": lambda v: constraints(v)[0],
                "jac": lambda v: constraints(v)[1],
            },
            method="SLSQP",
            options={"maxiter": 200, "ftol": 1e-10},
        )
        z = answer.x[:-1].reshape(n, dim)
        if np.abs(z).max() < 1e3 and margin(z, ids) > -1e-6:
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
    found = nearest_separated(x, ids, 1.0, objective)
    assert found.value == pytest.approx(value, rel=1e-8)
    assert found.lower_bound == pytest.approx(value, rel=1e-8)
    assert found.method == "exact on the line"


def test_the_cross_is_farther_from_separated_than_its_loss():
    assert hard_mined_loss(CROSS, CROSS_IDS) == pytest.approx(2 - math.sqrt(2))
    found = nearest_separated(CROSS, CROSS_IDS)
    assert found.value == pytest.approx(0.9107, rel=1e-3)
    assert found.value > hard_mined_loss(CROSS, CROSS_IDS)
    # Free to use more dimensions, A and B could each shrink by a third and lift by sqrt(2)/3.
    assert found.lower_bound == pytest.approx(1 / math.sqrt(3), rel=1e-5)


def test_a_quarter_of_the_loss_is_attained_on_a_line():
    found = nearest_separated([[0.0], [3.0], [-1.0]], [0, 0, 1])
    assert found.value == pytest.approx(0.5, rel=1e-8)
    assert found.value == pytest.approx(hard_mined_loss([[0.0], [3.0], [-1.0]], [0, 0, 1]) / 4)


def test_five_points_in_the_plane_mostly_have_an_isometric_error_of_half_the_loss():
    ids = np.array([0, 0, 0, 1, 1])
    halves = 0
    for seed in range(8):
        x = np.random.default_rng(seed).standard_normal((5, 2))
        loss = hard_mined_loss(x, ids)
        iso, haus = nearest_separated(x, ids, 0.0, "iso"), nearest_separated(x, ids)
        halves += iso.value <= loss / 2 * (1 + 1e-5)
        assert 0.5 - 1e-6 <= haus.value / iso.value <= 1.5
    assert halves == 7


def test_five_points_in_the_plane_can_have_a_larger_isometric_error_than_half_the_loss():
    x, ids = np.random.default_rng(2).standard_normal((5, 2)), np.array([0, 0, 0, 1, 1])
    found = nearest_separated(x, ids, 0.0, "iso")
    assert found.value == pytest.approx(0.66672 * hard_mined_loss(x, ids), rel=1e-4)
    assert found.value == pytest.approx(best_of_many_descents(x, ids, "iso"), rel=1e-4)


def test_the_nearest_separated_points_of_the_paper_s_figure_are_not_collapsed():
    ids = np.repeat([0, 1], 10)
    for seed, before, after in ((0, 3.81, 2.22), (1, 4.94, 3.2)):
        x = np.random.default_rng(seed).standard_normal((20, 2))
        found = nearest_separated(x, ids)
        assert diameter(x) == pytest.approx(before, abs=0.01)
        assert diameter(found.points) == pytest.approx(after, abs=0.15)


@given(labelled(), st.sampled_from([0.0, 0.5, 3.0]), st.sampled_from(["haus", "iso"]))
def test_the_points_are_separated_and_the_value_is_measured_on_them(case, alpha, objective):
    x, ids = case
    found = nearest_separated(x, ids, alpha, objective, starts=2)
    z = found.points.numpy()
    assert found.points.dtype == torch.float64
    assert found.separated
    assert is_triplet_separated(z, ids, alpha)
    scale = alpha + distances(z).max()
    assert margin(z, ids) >= alpha - 1e-9 * scale
    assert found.value == pytest.approx(measured(x, z, ids, objective), rel=1e-9, abs=1e-12)
    loss = max(0.0, alpha - margin(x, ids))
    least = loss / (2 if objective == "iso" else 4)
    assert least * (1 - 1e-6) - 1e-12 <= found.lower_bound <= found.value


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
        if margin(z, ids) >= alpha:
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
    found = nearest_separated(x[:, None], ids, alpha, objective)
    exact = exact_on_a_line(x, ids, alpha, objective)
    assert found.value == pytest.approx(exact, rel=1e-6, abs=1e-6)  # the solver stops at 1e-7
    assert found.lower_bound == pytest.approx(exact, rel=1e-7, abs=1e-7)


def test_five_points_on_a_line_are_solved_exactly():
    x, ids = np.array([0.0, 2.5, 1.0, 4.0, 3.0]), np.array([0, 0, 1, 1, 2])
    for objective in ("haus", "iso"):
        found = nearest_separated(x[:, None], ids, 0.3, objective)
        assert found.value == pytest.approx(exact_on_a_line(x, ids, 0.3, objective), rel=1e-7)


@pytest.mark.parametrize("objective", ["haus", "iso"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_tiny_planar_sets_match_a_dense_multistart(objective, seed):
    ids = np.array([[0, 0, 0, 1, 1], [0, 0, 1, 1, 2], [0, 1, 0, 1, 0]][seed])
    x = np.random.default_rng(seed + 10).standard_normal((5, 2))
    found = nearest_separated(x, ids, 0.0, objective)
    assert found.value <= best_of_many_descents(x, ids, objective) * (1 + 1e-4)


def test_separated_points_are_returned_as_they_are():
    x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [9.0, 0.0]], dtype=torch.float64)
    found = nearest_separated(x, ["a", "a", "b"], 1.0)
    assert torch.equal(found.points, x)
    assert (found.value, found.lower_bound, found.method) == (0.0, 0.0, "already separated")


def test_the_same_seed_gives_the_same_points():
    x, ids = np.random.default_rng(5).standard_normal((9, 2)), np.arange(9) % 3
    first, second = (nearest_separated(x, ids, 0.1, seed=3, starts=4) for _ in range(2))
    assert torch.equal(first.points, second.points)


@pytest.mark.parametrize("objective", ["haus", "iso"])
def test_scale_and_place_do_not_matter(objective):
    x, ids = np.random.default_rng(1).standard_normal((8, 2)), np.arange(8) % 2
    plain = nearest_separated(x, ids, 0.2, objective)
    far = nearest_separated(1e-4 * x + 100.0, ids, 0.2e-4, objective)
    assert is_triplet_separated(far.points, ids, 0.2e-4)
    assert far.value == pytest.approx(1e-4 * plain.value, rel=1e-3)


def test_float32_points_far_from_the_origin_are_separated_in_float64():
    x = (1e3 + 1e-3 * np.random.default_rng(2).standard_normal((10, 3))).astype(np.float32)
    found = nearest_separated(torch.from_numpy(x), np.arange(10) % 2, 0.0)
    assert is_triplet_separated(found.points, np.arange(10) % 2)
    assert 0 < found.lower_bound <= found.value < 1e-2


@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_points_that_all_coincide_can_be_separated(alpha):
    found = nearest_separated(np.ones((6, 2)), [0, 0, 1, 1, 2, 2], alpha)
    assert is_triplet_separated(found.points, [0, 0, 1, 1, 2, 2], alpha)
    # Three points 2 apart lie on a circle of radius 2/sqrt(3).
    assert found.value == pytest.approx(alpha / math.sqrt(3), abs=1e-6)


def test_many_dimensions_are_cut_down_to_those_that_matter():
    x, ids = np.random.default_rng(0).standard_normal((10, 400)), np.arange(10) % 2
    found = nearest_separated(x, ids, 40.0)
    assert found.points.shape == (10, 400)
    assert is_triplet_separated(found.points, ids, 40.0)
    assert found.value == pytest.approx(measured(x, found.points.numpy(), ids, "haus"))
    assert found.value <= 1.5 * found.lower_bound


@pytest.mark.parametrize("objective", ["haus", "iso"])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_large_sets_get_a_bracket_without_an_optimiser(objective, alpha):
    x = np.random.default_rng(0).standard_normal((700, 24))
    ids = np.arange(700) % 20
    found = nearest_separated(x, ids, alpha, objective)
    assert found.method == "shrink"
    assert is_triplet_separated(found.points, ids, alpha)
    assert 0 < found.lower_bound < found.value < 2 * diameter(x)


def test_shrinking_never_beats_the_optimiser_s_answer():
    x, ids = np.random.default_rng(3).standard_normal((14, 2)), np.arange(14) % 2
    shrunk, best = nearest_separated(x, ids, starts=0), nearest_separated(x, ids)
    assert shrunk.method == "shrink"
    assert best.method == "convex-concave"
    assert best.value < shrunk.value


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"x": [[0.0], [math.nan]]}, "x"),
        ({"x": [[0.0]], "labels": [0]}, "x"),
        ({"labels": [0, 0]}, "labels"),
        ({"labels": [0, 1, 1]}, "labels"),
        ({"alpha": -1.0}, "alpha"),
        ({"alpha": math.inf}, "alpha"),
        ({"objective": "sup"}, "objective"),
        ({"starts": -1}, "starts"),
        ({"seed": 1.5}, "seed"),
    ],
)
def test_bad_input_is_named(arguments, word):
    with pytest.raises(InputError, match=f"^{word}: expected"):
        nearest_separated(**{"x": [[0.0], [1.0]], "labels": [0, 1], **arguments})
