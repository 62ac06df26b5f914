import math
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.reid_protocol import market_1501
from support.errors import refuses
from support.oracles import distance_matrix
from uncollapse._base.extras import without_kernels
from uncollapse.metrics import reid

ENGINES = ["compiled", "torch"]


def by(engine, *args, **options):
    with without_kernels() if engine == "torch" else nullcontext():
        return reid(*args, **options)


@pytest.mark.parametrize("engine", ENGINES)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 40))
def test_random_sets_with_ties_agree_with_the_loop(engine, seed, queries, size):
    rng = np.random.default_rng(seed)
    x, y = (np.round(rng.normal(size=(n, 2)) * 2) for n in (queries, size))
    ids, y_ids = rng.integers(1, 5, queries), rng.integers(-1, 5, size)
    y_ids[0] = 1
    cams, y_cams = (rng.integers(0, 3, n) for n in (queries, size))
    expected = market_1501(distance_matrix(x, y), ids, cams, y_ids, y_cams)
    result = by(engine, x, ids, cams, y, y_ids, y_cams)
    if expected is None:
        assert result.queries_without_match == queries
        assert math.isnan(result.map)
    else:
        answer = (result.map, result.cmc[1], result.cmc[5], result.minp)
        assert answer == pytest.approx(expected, abs=1e-12)


def test_string_ids_have_neither_junk_nor_distractors():
    result = reid([[0.0]], ["ann"], ["c1"], [[1.0], [2.0]], ["bob", "ann"], ["c1", "c2"])
    assert (result.map, result.junk) == (0.5, 0)


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


def test_wrong_arguments_are_refused_by_name():
    names = ("queries", "query_ids", "query_cams", "gallery", "gallery_ids", "gallery_cams")
    good = dict(zip(names, made_set(), strict=True))
    refuses(reid, good, query_ids=[np.arange(24), np.arange(24) - 1], gallery_ids=[[-1] * 150])
    refuses(reid, good, query_cams=[[1]], gallery_cams=[["a"] * 150], rerank=[True])
    refuses(reid, good, queries=[np.full((24, 8), np.inf)])
