from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score

from uncollapse._base.check import InputError
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


def test_a_collapsed_embedding_has_no_information():
    result = clustering(np.full((40, 3), 2.5), np.arange(40) % 4)
    assert (result.nmi, result.clusters, result.clusters_used) == (0.0, 4, 1)


def test_ami_is_given_only_on_request():
    x, labels = blobs(classes=2, modes=1, per=5)
    assert clustering(x, labels).ami is None
    assert "ami" not in clustering(x, labels).to_dict()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"multiplier": 9}, "multiplier: expected at most 4 clusters"),
        ({"multiplier": 2, "clusters": 2}, "multiplier: expected 1 when clusters is given, got 2"),
        ({"clusters": 5}, "clusters: expected at most 4"),
        ({"x": [[0.0], [1.0], [np.nan], [2.0]]}, "x: expected finite numbers, got NaN.* row 2"),
        ({"labels": [1, 2]}, "labels: expected 4, one for each row"),
    ],
)
def test_bad_input_names_the_argument(change, message):
    arguments = {"x": [[0.0], [1.0], [2.0], [3.0]], "labels": [0, 0, 1, 1], **change}
    with pytest.raises(InputError, match=message):
        clustering(**arguments)
