"""Tiles shared between threads: every one once, no query counted twice at a time, one result."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from uncollapse._base.extras import compiled
from uncollapse.metrics import ranking as _ranks
from uncollapse.metrics import reid, retrieval
from uncollapse.metrics.rank_tasks import make_task
from uncollapse.metrics.ranking import Turns, in_turn

needs_numba = pytest.mark.skipif(compiled.kernels is None, reason="needs numba")


@contextmanager
def torch_threads(count):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def cloud(n=700, classes=40, seed=0):
    rng = np.random.default_rng(seed)
    labels = 1 + rng.integers(classes, size=n)
    x = rng.normal(size=(n, 12)) + 0.7 * rng.normal(size=(classes + 1, 12))[labels]
    x[::17] = x[5]  # ties
    return x.astype(np.float32), labels


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_tile_is_done_once_and_no_two_count_for_the_same_queries(both, threads):
    rows, columns = range(0, 45, 5), range(0, 45 if both else 30, 5)
    lock, busy, clashes, done = threading.Lock(), [], [], []
    met = threading.Barrier(threads)

    def worker():
        met.wait(timeout=60)  # all are at work before the first tile is done

        def work(a, c):
            mine = {a, c} if both else {a}
            with lock:
                clashes.extend(mine & other for other in busy if mine & other)
                busy.append(mine)
            np.linalg.svd(np.ones((60, 60)))  # gives others the chance to run
            with lock:
                busy.remove(mine)
                done.append((a, c))

        return work

    assert len(list(in_turn(Turns(rows, columns, both=both), worker, threads))) == len(done)
    assert clashes == []
    assert sorted(done) == [(a, c) for a in rows for c in columns if c >= a or not both]


def test_an_error_in_a_thread_reaches_the_caller_and_torch_keeps_its_threads():
    def worker():
        def work(a, c):
            if (a, c) == (2, 3):
                raise ValueError("tile (2, 3)")

        return work

    with torch_threads(2):
        with pytest.raises(ValueError, match=r"tile \(2, 3\)"):
            list(in_turn(Turns(range(6), range(6), both=True), worker, 2))
        assert torch.get_num_threads() == 2


def test_who_stops_listening_stops_the_threads():
    done = []
    tiles = in_turn(Turns(range(50), range(50), both=True), lambda: lambda *t: done.append(t), 2)
    next(tiles)
    before = threading.active_count()
    tiles.close()
    assert threading.active_count() < before


@needs_numba
@pytest.mark.parametrize("limits", [{}, {"_BYTES_PER_ENTRY": 10**5}])
@pytest.mark.parametrize("full_map", [False, True])
def test_results_are_the_same_to_the_bit_on_any_number_of_threads(limits, full_map, monkeypatch):
    x, labels = cloud()
    monkeypatch.setattr(_ranks, "TILE", 53)
    for name, value in limits.items():
        monkeypatch.setattr(_ranks, name, value)
    used = []
    original = _ranks.in_turn
    monkeypatch.setattr(_ranks, "in_turn", lambda *a: used.append(a[2]) or original(*a))
    found = {}
    for threads in (1, 2, 3):
        with torch_threads(threads):
            alone = retrieval(x, labels, full_map=full_map).per_query
            pair = retrieval(x[:300], labels[:300], x[300:], labels[300:]).per_query
            cameras = np.arange(len(x)) % 4
            people = reid(
                x[:300], labels[:300], cameras[:300], x[300:], labels[300:], cameras[300:]
            )
        found[threads] = [*alone.values(), *pair.values(), *people.per_query.values()]
    assert max(used) == 3
    for threads in (2, 3):
        for one, many in zip(found[1], found[threads], strict=True):
            np.testing.assert_array_equal(one, many)


@needs_numba
def test_progress_counts_every_tile_whatever_the_threads(monkeypatch):
    x, labels = cloud()
    monkeypatch.setattr(_ranks, "TILE", 53)
    seen = []
    with torch_threads(3):
        retrieval(x, labels, progress=lambda *p: seen.append(p))
    total = 14 * 15 // 2
    assert seen == [(n, total) for n in range(1, total + 1)]


@needs_numba
def test_inference_mode_is_no_hindrance(monkeypatch):
    x, labels = cloud()
    monkeypatch.setattr(_ranks, "TILE", 53)
    expected = retrieval(x, labels)
    with torch_threads(2), torch.inference_mode():
        assert retrieval(torch.from_numpy(x) * 1, labels) == expected


def test_threads_take_no_more_than_the_memory_that_is_there():
    x, labels = cloud()
    everyone = np.arange(len(x))
    task = make_task(torch.from_numpy(x), labels, None, labels, everyone, everyone, lambda r: r)
    with torch_threads(4):
        assert _ranks._plan(task, 10**9).threads == 4
        assert _ranks._plan(task, 30 * 10**6).threads < 4
    with torch_threads(1):
        assert _ranks._plan(task, 10**9).threads == 1
