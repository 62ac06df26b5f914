from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score

from support.errors import refuses
from uncollapse.metrics import clustering, kmeans, normalized_mutual_information, pairwise_f1

LABELLINGS = st.integers(1, 40).flatmap(
    lambda n: st.tuples(*(st.lists(st.integers(0, 5), min_size=n, max_size=n) for _ in range(2)))
)


@given(LABELLINGS)
def test_nmi_equals_scikit_learn(pair):
    expected = normalized_mutual_info_score(*pair)
    assert normalized_mutual_information(*pair) == pytest.approx(expected, abs=1e-9)


@given(LABELLINGS)
def test_f1_equals_a_loop_over_pairs(pair):
    a, b = pair
    pairs = list(combinations(range(len(a)), 2))
    both = sum(a[i] == a[j] and b[i] == b[j] for i, j in pairs)
    true, predicted = (sum(g[i] == g[j] for i, j in pairs) for g in pair)
    expected = 0.0
    if both:
        precision, recall = both / predicted, both / true
        expected = 2 * precision * recall / (precision + recall)
    assert pairwise_f1(a, b) == pytest.approx(expected, abs=1e-12)


def blobs(classes, modes, per, seed=0):
    """Each class has several far modes."""
    rng = np.random.default_rng(seed)
    middles = 40 * rng.normal(size=(classes, modes, 8))
    x = (middles[:, :, None] + rng.normal(size=(classes, modes, per, 8))).reshape(-1, 8)
    return x, np.repeat(np.arange(classes), modes * per)


def test_nmi_plus_lets_a_class_keep_its_modes():
    x, labels = blobs(classes=4, modes=5, per=6)
    plain = clustering(x, labels)
    plus = clustering(x, labels, multiplier=5)
    assert (plain.clusters, plus.clusters, plus.clusters_used) == (4, 20, 20)
    # Twenty pure clusters: I = H(labels) = log 4 over (log 4 + log 20)/2.
    assert plus.nmi == pytest.approx(2 * np.log(4) / (np.log(4) + np.log(20)), abs=1e-9)


def test_the_scores_are_those_of_the_clusters_found():
    x, labels = blobs(classes=5, modes=2, per=5)
    names = np.array(["p", "q", "r", "s", "t"])[labels]
    result = clustering(x, names, 8, ami=True, seed=3)
    groups = kmeans(x, 8, restarts=3, seed=3).labels
    assert result.nmi == pytest.approx(normalized_mutual_info_score(labels, groups))
    assert result.ami == pytest.approx(adjusted_mutual_info_score(labels, groups))
    assert result.f1 == pairwise_f1(labels, groups)
    assert "ami" in result.to_dict()
    assert clustering(x, names).ami is None  # only on request
    assert "ami" not in clustering(x, names).to_dict()


def test_a_collapsed_embedding_has_no_information():
    result = clustering(np.full((40, 3), 2.5), np.arange(40) % 4)
    assert (result.nmi, result.clusters, result.clusters_used) == (0.0, 4, 1)
    assert kmeans(np.ones((30, 4)), 5).inertia == 0.0


@pytest.mark.parametrize("seed", range(2))  # neither of which leaves a cluster empty
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


def test_clusters_far_from_the_origin_at_a_tiny_spread_are_found():
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(4), 25)
    x = 1000 + 1e-6 * (np.eye(4)[truth] + 0.02 * rng.normal(size=(100, 4)))
    run = kmeans(x, 4)
    assert len(set(zip(truth.tolist(), run.labels.tolist(), strict=True))) == 4


def test_more_restarts_never_give_a_worse_inertia_and_the_seed_decides():
    x = np.random.default_rng(0).normal(size=(300, 2))
    runs = [kmeans(x, 30, restarts=r, seed=3).inertia for r in (1, 2, 5)]
    assert runs == sorted(runs, reverse=True)
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


def test_wrong_arguments_are_refused_by_name():
    points = {"x": [[0.0], [1.0], [2.0], [3.0]], "labels": [0, 0, 1, 1]}
    x = [[0.0], [1.0], [np.nan], [2.0]]
    refuses(clustering, points, multiplier=[9], clusters=[5], x=[x], labels=[[1, 2]])
    refuses(clustering, points | {"clusters": 2}, multiplier=[2])
    three = {"x": [[0.0], [1.0], [2.0]], "clusters": 2}
    refuses(kmeans, three, clusters=[9, 0], init=["best", [[1.0, 2.0]]], restarts=[0])
