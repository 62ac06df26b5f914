"""Rows that spoil figures: counted, named, told apart; hubs against a count by brute force."""

import numpy as np
import pytest
import torch

from support.dirty_files import clean, spoilt
from support.errors import refused
from uncollapse.metrics import find_spoiled, retrieval


def test_each_kind_is_told_from_the_others():
    z, _ = clean(rows=300, classes=10, dim=16)
    z[4], z[5, 3], z[6, 0] = 0, np.nan, np.inf
    z[[20, 30]] = z[10]
    z[40] = z[41] + 1e-6
    spoiled = find_spoiled(z)
    assert spoiled.zero.tolist() == [4]
    assert spoiled.invalid.tolist() == [5, 6]
    assert spoiled.duplicates.tolist() == [20, 30]
    assert spoiled.near_duplicates.tolist() == [40, 41]
    assert len(spoiled.equal) == 3
    assert sorted({*range(300)} - {*spoiled.kept().tolist()}) == [4, 5, 6, 20, 30]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_clean_file_has_none_in_any_precision(dtype):
    z, _ = clean(rows=500, dim=32)
    spoiled = find_spoiled(torch.from_numpy(z).to(dtype))
    assert not spoiled.sentences()
    assert spoiled.figures()["hubs"] == 0


def test_hubs_are_those_of_a_count_by_brute_force():
    z = spoilt("hub", clean(rows=800)[0])
    apart = np.linalg.norm(z[:, None].astype(np.float64) - z, axis=2)
    np.fill_diagonal(apart, np.inf)
    lists = np.argsort(apart, axis=1)[:, :10]
    share = np.bincount(lists.ravel(), minlength=len(z)) / len(z)
    spoiled = find_spoiled(z)
    assert spoiled.hubs.tolist() == np.flatnonzero(share >= 20 * 10 / 800).tolist()
    assert spoiled.reach.tolist() == [share.max()]
    assert spoiled.reach[0] >= 0.25


def test_without_them_the_figures_are_those_of_the_clean_file():
    z, labels = clean()
    right = retrieval(z, labels).to_dict()["recall@1"]
    for kind in ("zero", "copies", "hub"):
        dirty = spoilt(kind, z)
        rows = find_spoiled(dirty).kept()
        assert retrieval(dirty, labels).to_dict()["recall@1"] < right - 0.2
        assert retrieval(dirty[rows], labels[rows]).to_dict()["recall@1"] > right - 0.02


def test_dimensions_that_never_change_are_counted():
    z, _ = clean(rows=50, classes=5, dim=8)
    assert find_spoiled(spoilt("dead dimensions", z)).constant_dims == 4
    assert find_spoiled(z).constant_dims == 0


def test_an_unknown_kind_is_refused():
    with refused("drop"):
        find_spoiled(np.eye(4)).kept(["zeros"])


@pytest.mark.parametrize("name", ["duplicates", "neighbours"])
def test_words_are_no_switches(name):
    with refused(name):
        find_spoiled(np.eye(4), **{name: "no"})


def test_sentences_name_the_first_rows_and_count_the_others():
    z = np.eye(12)
    z[:7] = 0
    words = find_spoiled(z, neighbours=False).sentences([f"s{i}" for i in range(12)])
    assert words["zero"] == "7 of 12 rows are zero (s0, s1, s2, s3, s4 and 2 more)"


def test_copies_are_looked_for_only_where_they_are_asked_for(monkeypatch):
    z = np.array([[0.0, 0.0], [1.0, 2.0], [np.nan, 1.0], [1.0, 2.0], [4.0, 5.0]])
    monkeypatch.setattr("uncollapse.metrics.spoiled_rows.equal_rows", None)
    spoiled = find_spoiled(z, duplicates=False, neighbours=False)
    assert (spoiled.invalid.tolist(), spoiled.zero.tolist()) == ([2], [0])
    assert not len(spoiled.duplicates)
    with pytest.raises(TypeError):
        find_spoiled(z, neighbours=False)
