from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from uncollapse._base.check import InputError
from uncollapse.metrics import kmeans


@pytest.mark.parametrize("seed", range(5))  # none of which leaves a cluster empty
@pytest.mark.parametrize(("n", "clusters"), [(200, 4), (300, 40), (150, 75), (2500, 600)])
def test_the_same_start_ends_where_scikit_learn_ends(seed, n, clusters):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 5))
    start = x[rng.permutation(n)[:clusters]]
    theirs = KMeans(clusters, init=start, n_init=1, tol=0.0, max_iter=300).fit(x)
    ours = kmeans(x, clusters, init=start, max_iter=300)
    assert ours.converged
    assert np.array_equal(ours.labels, theirs.labels_)
    assert ours.inertia == pytest.approx(theirs.inertia_, rel=1e-6)
    assert ours.centres == pytest.approx(theirs.cluster_centers_, abs=1e-5)


@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 3), st.integers(1, 60))
def test_the_result_is_a_fixed_point_of_lloyd(seed, n, d, clusters):
    rng = np.random.default_rng(seed)
    x = np.round(rng.normal(size=(n, d)) * 2) / 2  # many duplicates
    clusters = min(clusters, n)
    run = kmeans(x, clusters, init=x[rng.permutation(n)[:clusters]])
    square = ((x[:, None] - run.centres) ** 2).sum(2)
    own = square[np.arange(n), run.labels]
    assert own.sum() == pytest.approx(run.inertia, abs=1e-4)
    assert (own <= square.min(1) + 1e-4).all()
    if run.converged:
        for label in np.unique(run.labels):
            mean = x[run.labels == label].mean(0)
            assert mean == pytest.approx(run.centres[label], abs=1e-5)


def test_a_start_drawn_in_rounds_reaches_classes_that_a_random_one_misses():
    rng = np.random.default_rng(0)
    x = np.repeat(rng.normal(size=(200, 6)), 5, axis=0) + 0.05 * rng.normal(size=(1000, 6))
    random = kmeans(x, 200, init=x[rng.permutation(1000)[:200]])
    assert kmeans(x, 200).inertia < 0.7 * random.inertia


def test_no_cluster_is_empty_if_there_are_enough_distinct_points():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 3))
    start = np.repeat(x[:1], 20, axis=0)  # nineteen of twenty centres begin empty
    run = kmeans(x, 20, init=start)
    assert len(np.unique(run.labels)) == 20


def test_one_distinct_point_fills_one_cluster():
    run = kmeans(np.ones((30, 4)), 5)
    assert len(np.unique(run.labels)) == 1
    assert run.inertia == 0.0


def test_clusters_far_from_the_origin_at_a_tiny_spread_are_found():
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(4), 25)
    x = 1000 + 1e-6 * (np.eye(4)[truth] + 0.02 * rng.normal(size=(100, 4)))
    run = kmeans(x, 4)
    assert len(set(zip(truth.tolist(), run.labels.tolist(), strict=True))) == 4


def test_more_restarts_never_give_a_worse_inertia():
    x = np.random.default_rng(0).normal(size=(300, 2))
    runs = [kmeans(x, 30, restarts=r, seed=3).inertia for r in (1, 2, 5)]
    assert runs == sorted(runs, reverse=True)


def test_the_seed_decides():
    x = np.random.default_rng(0).normal(size=(300, 2))
    a, b, c = (kmeans(x, 30, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(a.labels, b.labels)
    assert a.inertia != c.inertia


def test_normalised_rows_are_clustered_by_direction():
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1], 30)
    x = np.array([[1.0, 0.0], [0.0, 1.0]])[truth] * rng.uniform(0.1, 50, (60, 1))
    run = kmeans(x, 2, normalize=True)
    assert run.inertia == pytest.approx(0.0, abs=1e-12)
    assert sorted(np.linalg.norm(run.centres, axis=1)) == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clusters": 9}, "clusters: expected at most 3, the number of rows, got 9"),
        ({"clusters": 0}, "clusters: expected a whole number of at least 1"),
        ({"init": "best"}, "init: expected a 2-D array of numbers"),
        ({"init": [[1.0, 2.0]]}, "init: expected x"),
        ({"restarts": 0}, "restarts: expected a whole number"),
    ],
)
def test_bad_input_names_the_argument(change, message):
    with pytest.raises(InputError, match=message):
        kmeans(**{"x": [[0.0], [1.0], [2.0]], "clusters": 2, **change})
