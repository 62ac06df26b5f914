"""Re-ranking: the numbers of the dense formulae, from neighbour lists and sparse encodings."""

import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metrics.reid_protocol import market_1501
from support.errors import refused, refuses
from uncollapse._base.extras import without_kernels
from uncollapse.distances.frame import device_path
from uncollapse.metrics import ReRanking, reid, rerank


def dense(x, y, k1=20, k2=6, lambda_value=0.3):
    """The method of Zhong et al. on whole matrices in float64, one row and one pair at a time."""
    points = np.concatenate([x, y]).astype(np.float64)
    n, asked = len(points), len(x)
    square = ((points[:, None] - points) ** 2).sum(axis=2)
    most = square.max(axis=1)
    scaled = square / np.where(most > 0, most, 1.0)[:, None]
    # A row leads its own list; then the nearer one, of equals the lower one.
    order = [sorted(range(n), key=lambda j, i=i: (j != i, square[i, j], j)) for i in range(n)]

    def mutual(i, k):
        return {j for j in order[i][: k + 1] if i in order[j][: k + 1]}

    half = int(np.around(k1 / 2))
    v = np.zeros((n, n))
    for i in range(n):
        own = mutual(i, k1)
        members = set(own)
        for j in own:
            theirs = mutual(j, half)
            if 3 * len(theirs & own) > 2 * len(theirs):
                members |= theirs
        for j in members:
            v[i, j] = math.exp(-scaled[i, j])
        v[i] /= v[i].sum()
    v = np.array([v[order[i][:k2]].mean(axis=0) for i in range(n)])
    jaccard = np.array(
        [
            [1 - np.minimum(a, b).sum() / np.maximum(a, b).sum() for b in v[asked:]]
            for a in v[:asked]
        ]
    )
    return (1 - lambda_value) * jaccard + lambda_value * scaled[:asked, asked:]


def clustered(seed, queries, size, dim=6, people=8, spread=0.4):
    rng = np.random.default_rng(seed)
    middles = rng.normal(size=(people, dim))
    return tuple(
        middles[rng.integers(0, people, n)] + spread * rng.normal(size=(n, dim))
        for n in (queries, size)
    )


def by(engine: str):
    return {"compiled": nullcontext, "torch": without_kernels, "device": device_path}[engine]()


@pytest.mark.parametrize("engine", ["compiled", "torch", "device"])
@given(
    st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 60), st.integers(1, 30),
    st.integers(1, 12), st.sampled_from([0.0, 0.3, 1.0]),
)  # fmt: skip
def test_clustered_rows_agree_with_the_dense_formulae(engine, seed, queries, size, k1, k2, weight):
    x, y = clustered(seed, queries, size)
    with by(engine):
        result = rerank(x, y, k1=k1, k2=k2, lambda_value=weight, progress=False).distances()
    assert result.numpy() == pytest.approx(dense(x, y, k1, k2, weight), abs=1e-12)


@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 40), st.integers(1, 20))
def test_ties_and_copies_go_to_the_lower_row(seed, queries, size, k1):
    rng = np.random.default_rng(seed)
    x, y = (rng.integers(-1, 2, (n, 2)).astype(np.float64) for n in (queries, size))
    result = rerank(x, y, k1=k1, k2=3, progress=False).distances().numpy()
    assert result == pytest.approx(dense(x, y, k1, 3), abs=1e-12)


def test_more_rows_than_a_block_and_than_groups_of_columns():
    x, y = clustered(0, 30, 400, dim=24, people=60)
    expected, reports = dense(x, y), []
    for max_memory in ("1KB", "256MB"):
        ranked = rerank(x, y, max_memory=max_memory, progress=lambda *p: reports.append(p))
        result = ranked.distances().numpy()
        assert result == pytest.approx(expected, abs=1e-12)
        assert (np.argsort(result, axis=1) == np.argsort(expected, axis=1)).all()
        assert reports[-1] == (430, 430)


def test_float32_far_from_the_origin_keeps_its_neighbours():
    x, y = (1000 + 1e-3 * part for part in clustered(0, 5, 90))
    x, y = x.astype(np.float32), y.astype(np.float32)
    result = rerank(x, y, k1=8, progress=False).distances().numpy()
    assert result == pytest.approx(dense(x, y, k1=8), abs=1e-9)
    assert len(np.unique(result)) > 200  # not one point


def test_neighbours_that_a_float32_product_cannot_tell_apart():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(40, 3)) * 1e-6, 1 + rng.normal(size=(40, 3)) * 1e-6])
    result = rerank(x[::8], x[1::2], k1=5, k2=2, progress=False).distances().numpy()
    assert result == pytest.approx(dense(x[::8], x[1::2], 5, 2), abs=1e-9)


def test_directions_are_compared_if_normalized():
    x, y = clustered(1, 7, 50)
    unit_x, unit_y = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (x, y))
    result = rerank(3 * x, y, k1=6, normalize=True, progress=False).distances().numpy()
    assert result == pytest.approx(dense(unit_x, unit_y, k1=6), abs=1e-9)
    with refused("gallery"):
        rerank(x, np.where(np.arange(50)[:, None] == 2, 0.0, y), normalize=True)


@pytest.mark.parametrize("normalize", [False, True])
def test_a_collapsed_embedding_gives_finite_distances(normalize):
    result = rerank(np.ones((3, 4)), np.ones((40, 4)), k1=5, normalize=normalize, progress=False)
    assert torch.isfinite(result.distances()).all()


def test_the_nearest_are_those_of_the_distances_and_blocks_join_to_them():
    x, y = clustered(2, 21, 150)
    ranked = rerank(x, y, k1=9, max_memory="100KB", progress=False)
    whole = ranked.distances()
    assert ranked.block_rows < 21
    assert (len(ranked), ranked.gallery_size) == (21, 150)
    joined = torch.cat([block for _, block in ranked.blocks()])
    torch.testing.assert_close(joined, whole, rtol=0, atol=1e-14)
    result = ranked.nearest(7)
    assert torch.equal(result.rows, torch.argsort(whole, dim=1, stable=True)[:, :7])
    torch.testing.assert_close(result.distances, whole.gather(1, result.rows), rtol=0, atol=1e-14)
    torch.testing.assert_close(ranked.distances([3, 1]), whole[[3, 1]], rtol=0, atol=1e-14)
    with refused("k"):
        ranked.nearest(151)


# Re-identification in the new order.


def people(seed, queries=30, size=260):
    rng = np.random.default_rng(seed)
    ids, there = rng.integers(1, 12, queries), rng.integers(-1, 14, size)
    middles = rng.normal(size=(15, 8))
    x, y = (middles[who] + 0.8 * rng.normal(size=(len(who), 8)) for who in (ids, there))
    return x, ids, rng.integers(0, 4, queries), y, there, rng.integers(0, 4, size)


@pytest.mark.parametrize("weight", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(2))
def test_reid_scores_the_new_order_by_the_same_protocol(seed, weight):
    x, ids, cams, y, there, met = people(seed)
    kept = there != -1
    expected = market_1501(dense(x, y[kept], 10, 4, weight), ids, cams, there[kept], met[kept])
    how = ReRanking(k1=10, k2=4, lambda_value=weight)
    result = reid(x, ids, cams, y, there, met, rerank=how, progress=False)
    answer = (result.map, result.cmc[1], result.cmc[5], result.minp)
    assert answer == pytest.approx(expected, abs=1e-12)
    assert (result.junk, result.gallery_size) == ((~kept).sum(), kept.sum())


@pytest.mark.parametrize("ties", ["pessimistic", "optimistic"])
def test_with_all_weight_on_the_original_distance_nothing_changes(ties):
    arguments = people(7)
    plain = reid(*arguments, ties=ties, progress=False)
    same = reid(*arguments, ties=ties, rerank=ReRanking(lambda_value=1.0), progress=False)
    assert same.to_dict() == pytest.approx(plain.to_dict(), abs=1e-12)


def test_wrong_arguments_are_refused_by_name():
    three = {"queries": np.eye(3), "gallery": np.eye(3)}
    refuses(rerank, three, gallery=[np.ones((4, 2))], queries=[[[np.nan]]], max_memory=["much"])
    refuses(rerank, three, k1=[0], k2=[2.5], lambda_value=[1.5, math.nan])
