"""Retrieval scores against loops over all pairs in float64, and cases known by hand."""

import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

from support.errors import refuses
from support.precision import rounded_products
from uncollapse._base.extras import without_kernels
from uncollapse.distances import screen_dtype
from uncollapse.metrics import ranking, retrieval


def retrieval_oracle(x, labels, gallery=None, gallery_labels=None, ties="pessimistic"):
    """Every metric of `retrieval` by loops over all pairs."""
    x, same = np.asarray(x, np.float64), gallery is None
    y, y_labels = (x, labels) if same else (np.asarray(gallery, np.float64), gallery_labels)
    per_query = []
    for i, label in enumerate(labels):
        square = ((x[i] - y) ** 2).sum(1)
        other = np.arange(len(y)) != i if same else np.ones(len(y), bool)
        positives = np.sort(square[other & (y_labels == label)])
        negatives = square[other & (y_labels != label)]
        if not len(positives):
            continue
        ranks = []
        for rank, p in enumerate(positives):
            tied = np.abs(negatives - p) <= 1e-12 * p
            nearer = (negatives < p) & ~tied
            ranks.append(rank + nearer.sum() + (tied.sum() if ties == "pessimistic" else 0))
        r = len(ranks)
        precision = [(j + 1) / (rank + 1) for j, rank in enumerate(ranks)]
        terms = {"mAP": sum(precision) / r, "mrr": 1 / (ranks[0] + 1)}
        terms["r_precision"] = sum(rank < r for rank in ranks) / r
        terms["map@r"] = sum(p for p, rank in zip(precision, ranks, strict=True) if rank < r) / r
        for k in (1, 2, 4, 8):
            terms[f"recall@{k}"] = float(ranks[0] < k)
            terms[f"precision@{k}"] = sum(rank < k for rank in ranks) / min(k, other.sum())
        per_query.append(terms)
    return {name: np.mean([t[name] for t in per_query]) for name in (per_query or [{}])[0]}


ENGINES = ["compiled", "torch"]


def by(engine, *args, **options):
    with without_kernels() if engine == "torch" else nullcontext():
        return retrieval(*args, **options)


def scores(result):
    return {k: v for k, v in result.to_dict().items() if isinstance(v, float)}


def full(engine, *args, **options):
    """Every metric; those that are given without mAP are the same without it."""
    result = scores(by(engine, *args, full_map=True, **options))
    less = scores(by(engine, *args, **options))
    assert less == {name: value for name, value in result.items() if name != "mAP"}
    return result


def cloud(seed, n=90, d=6, classes=7, spread=1.0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    x = rng.normal(size=(classes, d))[labels] * spread + rng.normal(size=(n, d))
    return x, labels


CLOUDS = {
    "plain": lambda x: x,
    "ties and duplicates": lambda x: np.round(x),
    "one point": lambda x: np.zeros_like(x) + 3.25,
    "few points": lambda x: np.sign(x[:, :1]) * np.ones_like(x),
    "spread 1e-4 far away": lambda x: x * 1e-4 + 10,
    "spread 1e-6 far away": lambda x: x * 1e-6 + 1000,
    "two tight groups far apart": lambda x: x * 1e-6 + np.sign(x[:, :1]),
    "one far outlier": lambda x: np.where(np.arange(len(x))[:, None] == 3, 1e5, x * 1e-3),
    "tiny": lambda x: x * 1e-30,
    "huge": lambda x: x * 1e30,
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", CLOUDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_metric_equals_the_float64_loop(kind, dtype, engine):
    x, labels = cloud(1)
    x = CLOUDS[kind](x).astype(dtype)
    for ties in ("pessimistic", "optimistic"):
        result = full(engine, x, labels, ties=ties)
        assert result == pytest.approx(retrieval_oracle(x, labels, ties=ties), abs=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_large_classes_agree_with_the_loop(engine):
    x, labels = cloud(4, n=200, d=3, classes=2)
    result = full(engine, x, labels)
    assert result == pytest.approx(retrieval_oracle(x, labels), abs=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
@given(
    st.integers(0, 10**6),
    st.integers(2, 40),
    st.integers(1, 4),
    st.integers(1, 8),
    st.sampled_from([1.0, 2.0, 1e9]),
    st.booleans(),
)
def test_ties_and_singletons_agree_with_the_loop(engine, seed, n, d, classes, grid, separate):
    rng = np.random.default_rng(seed)
    x = np.round(rng.normal(size=(n, d)) * grid) / grid
    labels = rng.integers(0, classes, n)
    half = n // 2
    queries = (x[:half], labels[:half]) if separate else (x, labels)
    split = (x[half:], labels[half:]) if separate else ()
    for ties in ("pessimistic", "optimistic"):
        expected = retrieval_oracle(*queries, *split, ties=ties)
        result = by(engine, *queries, *split, ties=ties, full_map=True)
        if expected:
            assert scores(result) == pytest.approx(expected, abs=1e-12)
            assert result.map == scores(result)["mAP"]
        else:
            assert result.queries_without_match == len(queries[0])
            assert math.isnan(result.mrr)


@pytest.mark.parametrize("engine", ENGINES)
def test_several_tiles_and_several_ranges_of_queries_agree_with_the_loop(engine, monkeypatch):
    x, labels = cloud(2, n=230, classes=5)
    expected = retrieval_oracle(x, labels)
    monkeypatch.setattr(ranking, "TILE", 37)
    whole = by(engine, x, labels, full_map=True)
    monkeypatch.setattr(ranking, "_BYTES_PER_POSITIVE", 10**5)  # now few queries fit together
    plan = []
    original = ranking._plan
    monkeypatch.setattr(ranking, "_plan", lambda *a: plan.append(original(*a)) or plan[-1])
    ranges = by(engine, x, labels, full_map=True)
    assert len(plan[0].ranges) > 3
    assert scores(whole) == pytest.approx(expected, abs=1e-12)
    assert scores(ranges) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_streamed_copy_gives_the_same_result(engine, monkeypatch):
    x, labels = cloud(3, n=200, d=300)
    original = ranking._plan
    monkeypatch.setattr(ranking, "_plan", lambda *a: original(*a)._replace(resident=False))
    streamed = by(engine, x, labels)
    monkeypatch.undo()
    assert streamed == by(engine, x, labels)


@pytest.mark.parametrize("engine", ENGINES)
def test_reduced_precision_products_do_not_change_the_result(engine):
    x, labels = cloud(5)
    x = x.astype(np.float32)
    exact = retrieval(x, labels)
    with rounded_products():
        assert screen_dtype() == torch.float64
        assert by(engine, x, labels) == exact


def test_it_agrees_with_pytorch_metric_learning():
    x, labels = cloud(6, n=400, d=16, classes=20)
    x = x.astype(np.float32)
    names = ("precision_at_1", "r_precision", "mean_average_precision_at_r")
    names += ("mean_reciprocal_rank", "mean_average_precision")
    calculator = AccuracyCalculator(include=names, k=399, device=torch.device("cpu"))
    theirs = calculator.get_accuracy(torch.from_numpy(x), torch.from_numpy(labels))
    ours = retrieval(x, labels, full_map=True)
    result = (ours.precision[1], ours.r_precision, ours.map_at_r, ours.mrr, ours.map)
    assert result == pytest.approx([theirs[name] for name in names], abs=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_unit_rows_that_differ_by_their_rounding_are_one_point(engine):
    x = torch.from_numpy(np.random.default_rng(0).normal(size=7))
    x = torch.stack([x * (1 + i / 7) for i in range(12)])
    labels = [0, 1] * 6
    worst = by(engine, x, labels, normalize=True, full_map=True)
    best = by(engine, x, labels, normalize=True, ties="optimistic", full_map=True)
    assert (worst.recall[1], worst.map_at_r, best.recall[1], best.map) == (0.0, 0.0, 1.0, 1.0)


def test_normalised_rows_are_ranked_by_cosine():
    x, labels = cloud(7)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    result = retrieval(x, labels, normalize=True, full_map=True)
    assert scores(result) == pytest.approx(retrieval_oracle(unit, labels), abs=1e-12)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([2**62, 2**62 + 1], [2**62 + 1, 2**62]),
        (["a" * 300, "b"], ["b", "a" * 300]),
        (np.array([1, 2], np.uint64), np.array([2, 1], np.int64)),
        ([True, False], [False, True]),
    ],
)
def test_labels_of_any_size_and_kind_are_told_apart(first, second):
    result = retrieval([[0.0], [1.0]], first, [[1.0], [0.0]], second, ks=(1,))
    assert result.recall[1] == 1.0


def test_queries_without_a_relevant_item_are_counted_and_left_out():
    result = retrieval([[0.0], [1.0], [9.0]], ["a", "a", "alone"], ks=(1,))
    assert (result.queries, result.queries_without_match, result.recall[1]) == (3, 1, 1.0)
    assert "1 of 3 queries have no relevant item" in str(result)
    assert "mAP" not in str(result)
    assert np.isnan(result.per_query["mrr"]).tolist() == [False, False, True]
    assert math.isnan(retrieval([[1.0, 2.0]], [0]).recall[1])


def test_a_k_beyond_the_gallery_finds_everything():
    result = retrieval([[0.0], [1.0], [9.0]], ["a", "b", "a"], ks=(1, 50))
    assert result.recall == {1: 0.0, 50: 1.0}
    assert result.precision[50] == 0.5  # 1 relevant of the 2 other items


@pytest.mark.parametrize("engine", ENGINES)
def test_a_class_missing_from_the_gallery_does_not_disturb_the_next_one(engine):
    result = by(engine, [[0.0], [0.0]], [3, 4], [[1.0], [0.0]], [2, 4], ks=(1,))
    assert result.per_query["mrr"].tolist()[1] == 1.0
    assert result.queries_without_match == 1


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_score_a_share_as_the_whole_does(engine):
    x, labels = cloud(4, n=120)
    rows = np.random.default_rng(0).permutation(len(x))[:31]
    whole = by(engine, x, labels)
    part = by(engine, x, labels, rows=rows)
    assert part.gallery_size == whole.gallery_size == 119
    for name, values in whole.per_query.items():
        np.testing.assert_array_equal(part.per_query[name], values[rows])


X = np.random.default_rng(0).normal(size=(60, 3))
LABELS = np.array(["cat", "dog", "ant"])[np.random.default_rng(1).integers(0, 3, 60)]


def test_figures_per_class_are_the_means_over_the_queries_of_the_class():
    result = retrieval(X, LABELS, full_map=True)
    assert list(result.per_class) == ["ant", "cat", "dog"]
    assert set(retrieval(X, LABELS, rows=[3, 5]).per_class) == {LABELS[3], LABELS[5]}
    for label, figures in result.per_class.items():
        own = label == LABELS
        assert figures["queries"] == own.sum()
        for name, terms in result.per_query.items():
            assert figures[name] == pytest.approx(terms[own].mean(), abs=1e-12)


def test_a_class_without_a_match_has_no_figure():
    result = retrieval([[0.0], [1.0], [5.0]], [10**18, 10**18, 7])
    assert list(result.per_class) == [7, 10**18]
    assert math.isnan(result.per_class[7]["recall@1"])
    assert result.per_class[10**18]["recall@1"] == 1.0


def test_a_gallery_does_not_change_whose_classes_are_told():
    result = retrieval([[0.0], [9.0]], ["a", "b"], [[0.1], [8.0], [3.0]], ["a", "a", "b"])
    assert {label: row["recall@1"] for label, row in result.per_class.items()} == {"a": 1, "b": 0}


def test_wrong_arguments_are_refused_by_name():
    good = {"queries": [[1.0], [2.0]], "query_labels": [0, 1]}
    refuses(retrieval, good, ks=[(), 3, (0,), (1.5,)], ties=["none"], progress=[3])
    refuses(retrieval, good, max_memory=["lots", True, "1MB"], rows=[[], [0, 2]])
    refuses(retrieval, good, query_labels=[[1]], queries=[[[1.0], [math.nan]]])
    refuses(retrieval, good | {"normalize": True}, queries=[[[0.0], [1.0]]])
    refuses(retrieval, good | {"gallery": [[1.0]]}, gallery_labels=[None, ["a"]])
    there = good | {"gallery": [[1.0]], "gallery_labels": [1]}
    refuses(retrieval, there, gallery=[[[1.0, 2.0]]], rows=[[0]])


@pytest.mark.parametrize("each", [5, 400])
def test_the_nearest_matches_alone_give_the_same_recall_precision_and_mrr(each):
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], each)
    z = rng.normal(size=(len(labels), 6)) + 0.3 * labels[:, None]
    z[:each] = z[rng.integers(0, 3, each)]  # copies, and ties with other classes
    z[-1] = z[0]
    full = retrieval(z, labels, ks=(1, 4), full_map=True)
    few = retrieval(z, labels, ks=(1, 4), all_matches=False)
    assert (few.map_at_r, few.r_precision, few.map) == (None, None, None)
    for name, values in few.per_query.items():
        assert values.tolist() == full.per_query[name].tolist()


def test_rows_of_ten_thousand_columns_are_ranked():
    z = np.random.default_rng(0).normal(size=(40, 10_000)).astype(np.float32)
    assert 0 <= retrieval(z, np.arange(40) % 4).recall[1] <= 1
