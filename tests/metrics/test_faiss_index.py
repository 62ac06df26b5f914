from __future__ import annotations

import sys

import numpy as np
import pytest

from uncollapse._base.check import InputError
from uncollapse._base.extras import MissingExtraError
from uncollapse.metrics import retrieval


def cloud(n=3000, classes=300, d=8, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    x = rng.normal(size=(classes, d))[labels] + 0.35 * rng.normal(size=(n, d))
    return x.astype(np.float32), labels


def test_an_index_that_visits_every_cell_equals_the_exact_result():
    x, labels = cloud(1500)
    exact = retrieval(x, labels)
    found = retrieval(x, labels, index="faiss", target_recall=1.0)
    assert found.index_recall == 1.0
    assert exact.index_recall is None
    for k in exact.recall:
        assert found.recall[k] == exact.recall[k]
    assert found.map_at_r == pytest.approx(exact.map_at_r, abs=1e-12)
    assert found.r_precision == exact.r_precision


def test_the_recall_reached_is_reported_and_the_scores_are_near():
    x, labels = cloud()
    exact = retrieval(x, labels)
    found = retrieval(x, labels, index="faiss", target_recall=0.9)
    assert 0.9 <= found.index_recall <= 1.0
    assert found.recall[1] == pytest.approx(exact.recall[1], abs=0.03)
    assert "index_recall" in str(found)


def test_a_separate_gallery_and_normalised_rows_are_searched_too():
    x, labels = cloud()
    sets = (x[:500], labels[:500], x[500:], labels[500:])
    exact = retrieval(*sets, normalize=True)
    found = retrieval(*sets, normalize=True, index="faiss", target_recall=1.0)
    assert found.recall == exact.recall
    assert found.queries_without_match == exact.queries_without_match


def test_ties_are_pessimistic_in_the_list():
    x = np.repeat(np.eye(4, dtype=np.float32), 100, axis=0)
    found = retrieval(x, np.arange(400) % 100, index="faiss", target_recall=1.0, ks=(1,))
    assert found.recall[1] == 0.0


def test_ties_are_optimistic_in_the_list_only_if_asked():
    x, labels = np.zeros((60, 2)), np.arange(60) % 2
    best = retrieval(x, labels, index="faiss", ties="optimistic", ks=(1, 60))  # the list holds all
    assert (best.recall[1], best.mrr) == (1.0, 1.0)
    x = np.array([[0.0], [0.1], [-0.1 * (1 + 1e-14)]])  # a tie up to rounding
    near = retrieval(x, [0, 0, 1], index="faiss", ks=(1, 3))
    assert near.recall == retrieval(x, [0, 0, 1], ks=(1, 3)).recall == {1: 0.5, 3: 1.0}


def test_a_missing_faiss_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    x, labels = cloud(100, 10)
    with pytest.raises(MissingExtraError, match=r"'faiss'.*uncollapse\[faiss\]"):
        retrieval(x, labels, index="faiss")


def test_classes_too_large_for_a_list_are_refused():
    with pytest.raises(InputError, match="index: expected 'exact' for lists over 2048"):
        retrieval(np.zeros((2100, 1), np.float32), np.zeros(2100, int), index="faiss")


def test_the_target_is_a_share():
    x, labels = cloud(100, 10)
    with pytest.raises(InputError, match="target_recall: expected a finite number in"):
        retrieval(x, labels, index="faiss", target_recall=2)
