from __future__ import annotations

import math
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncollapse._base.check import InputError
from uncollapse._base.extras import without_kernels
from uncollapse.metrics import ReidResult, reid

ENGINES = ["compiled", "torch"]


def by(engine: str, *args, **options) -> ReidResult:
    with without_kernels() if engine == "torch" else nullcontext():
        return reid(*args, **options)


def market():
    """Two persons, cameras 1 to 3, by hand; the gallery is ranked by its coordinate.

    Query A (id 7, camera 1, at 0): 0.1 same camera (out), 0.2 junk (out), 0.3 distractor (wrong),
    0.4 match, 0.5 person 9 (wrong), 0.6 match. Ranks of the matches: 2 and 4.
    Query B (id 9, camera 3, at 10): 0.6 match is the nearest (9.4), then 0.5 person 9 ...
    """
    gallery = [[0.1], [0.2], [0.3], [0.4], [0.5], [0.6]]
    ids = [7, -1, 0, 7, 9, 7]
    cams = [1, 2, 2, 2, 1, 3]
    return [[0.0], [10.0]], [7, 9], [1, 3], gallery, ids, cams


@pytest.mark.parametrize("engine", ENGINES)
def test_the_market_1501_example_by_hand(engine):
    result = by(engine, *market(), ks=(1, 2, 5))
    # A: AP = (1/2 + 2/4)/2 = 0.5, INP = 2/4. B: 0.6 is wrong, 0.5 the match: AP = 1/2, INP = 1/2.
    assert result.per_query["mAP"].tolist() == [0.5, 0.5]
    assert result.map == 0.5
    assert result.cmc == {1: 0.0, 2: 1.0, 5: 1.0}
    assert result.per_query["mINP"].tolist() == [0.5, 0.5]
    assert (result.gallery_size, result.junk, result.queries_without_match) == (5, 1, 0)


def loop(x, ids, cams, y, y_ids, y_cams):
    """The protocol, one query at a time."""
    out = []
    for q in range(len(x)):
        square = ((x[q] - y) ** 2).sum(1)
        good = (y_ids == ids[q]) & (y_cams != cams[q])
        ignored = ((y_ids == ids[q]) & (y_cams == cams[q])) | (y_ids == -1)
        listed = np.flatnonzero(~ignored)
        # Wrong items first among equals.
        ranking = sorted(listed, key=lambda g: (square[g], good[g]))
        ranks = [place for place, g in enumerate(ranking) if good[g]]
        if ranks:
            precision = [(k + 1) / (rank + 1) for k, rank in enumerate(ranks)]
            out.append(
                (np.mean(precision), ranks[0] < 1, ranks[0] < 5, len(ranks) / (ranks[-1] + 1))
            )
    return np.mean(out, axis=0) if out else None


@pytest.mark.parametrize("engine", ENGINES)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 40))
def test_random_sets_with_ties_agree_with_the_loop(engine, seed, queries, size):
    rng = np.random.default_rng(seed)
    x, y = (np.round(rng.normal(size=(n, 2)) * 2) for n in (queries, size))
    ids, y_ids = rng.integers(1, 5, queries), rng.integers(-1, 5, size)
    y_ids[0] = 1
    cams, y_cams = (rng.integers(0, 3, n) for n in (queries, size))
    expected = loop(x, ids, cams, y, y_ids, y_cams)
    result = by(engine, x, ids, cams, y, y_ids, y_cams)
    if expected is None:
        assert result.queries_without_match == queries
        assert math.isnan(result.map)
    else:
        found = (result.map, result.cmc[1], result.cmc[5], result.minp)
        assert found == pytest.approx(expected, abs=1e-12)


def test_string_ids_have_neither_junk_nor_distractors():
    result = reid([[0.0]], ["ann"], ["c1"], [[1.0], [2.0]], ["bob", "ann"], ["c1", "c2"])
    assert (result.map, result.junk) == (0.5, 0)


def test_a_collapsed_embedding_puts_every_match_last():
    result = reid(
        np.zeros((2, 3)), [1, 2], [0, 0], np.zeros((6, 3)), [1, 2, 3, 4, 0, 0], [1] * 6, ks=(1, 5)
    )
    assert (result.cmc[1], result.cmc[5], result.minp) == (0.0, 0.0, 1 / 6)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (1, [7, 0], "query_ids: expected ids of persons only, got -1 or 0 in row 1"),
        (1, [-1, 9], "query_ids: .* row 0"),
        (4, [-1] * 6, "gallery_ids: expected at least one item that is not junk"),
        (2, [1], "query_cams: expected 2, one for each row"),
        (5, ["a"] * 6, "gallery_cams: expected labels of one kind"),
        (0, [[0.0], [np.inf]], "queries: expected finite numbers"),
    ],
)
def test_bad_input_names_the_argument(place, value, message):
    arguments = list(market())
    arguments[place] = value
    with pytest.raises(InputError, match=message):
        reid(*arguments)


# Other people's code, on rows anybody can make again.

COLUMN = np.arange(1, 9)


def made_rows(count, shift, ids):
    row = np.arange(count)[:, None]
    wave = np.sin(1 + shift + 0.7 * row * COLUMN) / COLUMN
    return wave + 0.25 * np.cos(ids[:, None] * (COLUMN + 1.0))


def made_set():
    """24 queries of 6 persons; a gallery of 150 with junk (-1), distractors (0), and persons."""
    ids, cams = 1 + np.arange(24) % 6, np.arange(24) % 3
    there, met = np.arange(150) % 9 - 1, np.arange(150) // 9 % 4
    return made_rows(24, 0.0, ids), ids, cams, made_rows(150, 0.5, there), there, met


@pytest.mark.parametrize("engine", ENGINES)
def test_the_figures_that_torchreid_and_fast_reid_give(engine):
    # From running their `eval_market1501`, whose loaders leave junk out; CMC is float32 there.
    result = by(engine, *made_set(), ks=(1, 5, 10))
    assert result.cmc == pytest.approx({1: 5 / 24, 5: 5 / 24, 10: 6 / 24}, abs=1e-12)
    assert result.map == pytest.approx(0.2931558671566462, abs=1e-12)
    assert result.minp == pytest.approx(0.33648858050926295, abs=1e-12)  # fast-reid alone has it
    assert (result.junk, result.gallery_size) == (17, 133)


def by_distance_matrix(x, ids, cams, y, there, met, ks):
    """The protocol in their form: a sorted matrix of distances, and rows of hits.

    Junk is dropped first; then, of each query's list, its own person under its own camera.
    """
    kept = there != -1
    y, there, met = y[kept], there[kept], met[kept]
    order = np.argsort(np.linalg.norm(x[:, None] - y[None], axis=2), axis=1)
    curves, precisions, hardest = [], [], []
    for row, identity, camera in zip(order, ids, cams, strict=True):
        own = (there[row] == identity) & (met[row] == camera)
        hits = (there[row] == identity)[~own].astype(float)
        if not hits.any():
            continue
        found, rank = np.cumsum(hits), np.arange(1, len(hits) + 1)
        curves.append(found[np.minimum(ks, len(hits)) - 1] > 0)
        precisions.append((found / rank * hits).sum() / hits.sum())
        last = np.flatnonzero(hits)[-1]
        hardest.append(found[last] / rank[last])
    return np.mean(curves, axis=0), np.mean(precisions), np.mean(hardest)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(5))
def test_a_set_like_market_agrees_with_the_sorted_distance_matrix(engine, seed):
    rng = np.random.default_rng(seed)
    ids, there = rng.integers(1, 40, 90), rng.integers(-1, 45, 700)
    there[rng.random(700) < 0.15] = 0
    cams, met = rng.integers(1, 7, 90), rng.integers(1, 7, 700)
    centres = rng.normal(size=(46, 16))
    x, y = (centres[who] + rng.normal(size=(len(who), 16)) for who in (ids, there))
    ks = np.array([1, 5, 10])
    cmc, mean_ap, minp = by_distance_matrix(x, ids, cams, y, there, met, ks)
    result = by(engine, x, ids, cams, y, there, met, ks=(1, 5, 10))
    assert list(result.cmc.values()) == pytest.approx(cmc.tolist(), abs=1e-12)
    assert (result.map, result.minp) == pytest.approx((mean_ap, minp), abs=1e-12)
    assert 0.05 < mean_ap < 0.95  # neither all nor nothing is found
