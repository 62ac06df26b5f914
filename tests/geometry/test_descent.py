from __future__ import annotations

import numpy as np
import pytest
import torch

from uncollapse._base.check import InputError
from uncollapse.geometry.diameters import diameter
from uncollapse.geometry.isometry import hausdorff_like
from uncollapse.geometry.nearest import gradient_descent_separated, nearest_separated
from uncollapse.geometry.triplet_separation import hard_mined_loss, is_triplet_separated


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


def test_fifty_steps_overestimate_the_distance_and_shrink_the_points_as_in_the_figure():
    ids = np.repeat([0, 1], 10)
    for seed in (0, 1, 3):
        x = np.random.default_rng(seed).standard_normal((20, 2))
        end, nearest = gradient_descent_separated(x, ids), nearest_separated(x, ids)
        assert end.separated
        assert is_triplet_separated(end.points, ids)
        assert 1.2 < end.value / nearest.value < 1.7
        assert diameter(end.points) < diameter(nearest.points)
        assert end.lower_bound <= nearest.value


def test_an_end_point_that_is_not_separated_is_called_so():
    x, ids = np.random.default_rng(1).standard_normal((20, 2)), np.repeat([0, 1], 10)
    end = gradient_descent_separated(x, ids, steps=5, lr=0.01)
    assert not end.separated
    assert end.value == pytest.approx(hausdorff_like(x, end.points, ids))


def test_no_steps_leave_the_points_alone():
    x = torch.tensor([[0.0, 0.0], [3.0, 0.0], [1.0, 0.0]])
    end = gradient_descent_separated(x, [0, 0, 1], steps=0)
    assert torch.equal(end.points, x.double())
    assert end.value == 0.0
    assert end.lower_bound == hard_mined_loss(x, [0, 0, 1]) / 4


def test_coincident_points_stay_finite():
    end = gradient_descent_separated(np.ones((4, 2)), [0, 0, 1, 1], 0.5)
    assert torch.isfinite(end.points).all()
    assert not end.separated


@pytest.mark.parametrize("argument", [{"steps": -1}, {"lr": -0.1}, {"alpha": -1.0}])
def test_bad_settings_are_named(argument):
    with pytest.raises(InputError, match=f"^{next(iter(argument))}: expected"):
        gradient_descent_separated([[0.0], [1.0]], [0, 1], **argument)
