"""Maps: distances in a plane are kept, wherever and however small it is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncollapse.report.parts import project


def distances(x: np.ndarray) -> np.ndarray:
    return np.array([[np.linalg.norm(a - b) for b in x] for a in x])


@given(
    st.integers(3, 20), st.integers(3, 12), st.sampled_from([1e-6, 1.0, 1e6]), st.integers(0, 99)
)
def test_a_plane_in_many_dimensions_is_drawn_without_distortion(
    n: int, dim: int, scale: float, seed: int
):
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(dim, 2)))[0]
    plane = rng.normal(size=(n, 2)) * scale
    drawn = project(plane @ basis.T + 5.0)
    np.testing.assert_allclose(
        distances(drawn), distances(plane), rtol=1e-6, atol=1e-8 + 1e-7 * scale
    )


def test_two_dimensions_stay_as_they_are_and_one_gets_a_second():
    rows = [[1.0, 2.0], [3.0, 5.0]]
    assert project(rows).tolist() == rows
    assert project([[1.0], [4.0]]).tolist() == [[1.0, 0.0], [4.0, 0.0]]


def test_two_rows_in_many_dimensions_and_equal_rows_can_be_drawn():
    assert project(np.eye(5)[:2]).shape == (2, 2)
    assert np.array_equal(project(np.ones((4, 5))), np.zeros((4, 2)))


@pytest.mark.parametrize("scale", [1e-6, 1.0])
def test_tsne_keeps_two_far_groups_apart_and_is_repeatable(scale: float):
    rng = np.random.default_rng(0)
    rows = scale * (rng.normal(size=(40, 6)) + 30 * (np.arange(40) % 2)[:, None])
    drawn = project(rows, tsne=True, seed=3)
    gap = distances(drawn) + np.diag(np.full(40, np.inf))
    assert (gap.argmin(1) % 2 == np.arange(40) % 2).all()
    assert np.array_equal(drawn, project(rows, tsne=True, seed=3))
