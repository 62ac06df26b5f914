from __future__ import annotations

import math

import numpy as np
import pytest

from uncollapse.metrics import RetrievalResult, retrieval

X = np.random.default_rng(0).normal(size=(60, 3))
LABELS = np.array(["cat", "dog", "ant"])[np.random.default_rng(1).integers(0, 3, 60)]


def test_figures_per_class_are_the_means_over_the_queries_of_the_class():
    result = retrieval(X, LABELS, full_map=True)
    assert list(result.per_class) == ["ant", "cat", "dog"]
    for label, figures in result.per_class.items():
        mine = label == LABELS
        assert figures["queries"] == mine.sum()
        for name, terms in result.per_query.items():
            assert figures[name] == pytest.approx(terms[mine].mean(), abs=1e-12)


def test_the_mean_over_classes_weighted_by_their_queries_is_the_mean():
    result = retrieval(X, LABELS)
    rows = result.per_class.values()
    mean = sum(row["queries"] * row["recall@1"] for row in rows) / len(X)
    assert mean == pytest.approx(result.recall[1], abs=1e-12)
    assert "mAP" not in result.per_class["cat"]


def test_a_class_without_a_match_has_no_figure():
    result = retrieval([[0.0], [1.0], [5.0]], [10**18, 10**18, 7])
    assert list(result.per_class) == [7, 10**18]
    assert math.isnan(result.per_class[7]["recall@1"])
    assert result.per_class[10**18]["recall@1"] == 1.0


def test_a_gallery_does_not_change_whose_classes_are_told():
    result = retrieval([[0.0], [9.0]], ["a", "b"], [[0.1], [8.0], [3.0]], ["a", "a", "b"])
    assert {label: row["recall@1"] for label, row in result.per_class.items()} == {"a": 1, "b": 0}


def test_rows_have_their_own_classes():
    result = retrieval(X, LABELS, rows=[3, 5])
    assert sorted(result.per_class) == sorted({LABELS[3], LABELS[5]})


def test_terms_without_labels_have_no_classes():
    whole = retrieval(X, LABELS)
    again = RetrievalResult.of_terms(whole.per_query, gallery_size=59, ties="pessimistic")
    assert again == whole
    assert again.per_class == {}


def test_it_prints_as_a_table_with_map_where_it_was_asked_for():
    assert "mAP" not in str(retrieval(X, LABELS))
    lines = str(retrieval(X, LABELS, full_map=True)).splitlines()
    assert any(line.startswith("mAP ") for line in lines)
    text = str(retrieval([[0.0], [1.0], [5.0]], [1, 1, 2]))
    assert "1 of 3 queries have no relevant item" in text
