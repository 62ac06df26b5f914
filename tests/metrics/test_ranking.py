"""Tiles shared between threads: every one once, no query counted twice at a time, one result."""

import threading
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from uncollapse._base.extras import compiled
from uncollapse.metrics import ranking, reid, retrieval
from uncollapse.metrics.ranking import Comparison, each_tile, equal_rows

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
    lock, busy, clashes, done, ticks = threading.Lock(), [], [], [], []
    met = threading.Barrier(threads)

    def worker():
        waited = []

        def do_tiles(a, some):
            if not waited:
                waited.append(met.wait(timeout=60))  # all are at work before the first is done
            for c in some:
                queries = {a, c} if both else {a}
                with lock:
                    clashes.extend(queries & other for other in busy if queries & other)
                    busy.append(queries)
                np.linalg.svd(np.ones((60, 60)))  # gives others the chance to run
                with lock:
                    busy.remove(queries)
                    done.append((a, c))

        return do_tiles

    options = {"both": both, "threads": threads}
    each_tile(worker, rows, columns, **options, tick=lambda: ticks.append(len(done)))
    assert len(ticks) == len(done)
    assert clashes == []
    assert sorted(done) == [(a, c) for a in rows for c in columns if c >= a or not both]


def test_an_error_in_a_thread_reaches_the_caller_and_torch_keeps_its_threads():
    def do_tiles(a, some):
        if a == 2 and 3 in some:
            raise ValueError("tile (2, 3)")

    with torch_threads(2):
        with pytest.raises(ValueError, match=r"tile \(2, 3\)"):
            each_tile(lambda: do_tiles, range(6), range(6), both=True, threads=2, tick=lambda: None)
        assert torch.get_num_threads() == 2


def test_an_error_in_the_caller_stops_the_threads():
    done = []
    at_work = threading.active_count()

    def do_tiles(a, some):
        done.append(a)
        np.linalg.svd(np.ones((60, 60)))

    def refuse():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        each_tile(lambda: do_tiles, range(500), range(500), both=True, threads=2, tick=refuse)
    assert len(done) < 500
    assert threading.active_count() == at_work


@needs_numba
@pytest.mark.parametrize("bytes_per_positive", [ranking._BYTES_PER_POSITIVE, 10**5])
@pytest.mark.parametrize("full_map", [False, True])
def test_any_number_of_threads_gives_the_same_bits(bytes_per_positive, full_map, monkeypatch):
    x, labels = cloud()
    monkeypatch.setattr(ranking, "TILE", 53)
    monkeypatch.setattr(ranking, "_BYTES_PER_POSITIVE", bytes_per_positive)
    used = []

    def each_tile_seen(*args, threads, **options):
        used.append(threads)
        each_tile(*args, threads=threads, **options)

    monkeypatch.setattr(ranking, "each_tile", each_tile_seen)
    result = {}
    for threads in (1, 2, 3):
        with torch_threads(threads):
            alone = retrieval(x, labels, full_map=full_map).per_query
            pair = retrieval(x[:300], labels[:300], x[300:], labels[300:]).per_query
            cameras = np.arange(len(x)) % 4
            columns = (x, labels, cameras)
            people = reid(*(v[:300] for v in columns), *(v[300:] for v in columns))
        result[threads] = [*alone.values(), *pair.values(), *people.per_query.values()]
    assert max(used) == 3
    for threads in (2, 3):
        for alone, shared in zip(result[1], result[threads], strict=True):
            np.testing.assert_array_equal(alone, shared)


@needs_numba
def test_progress_counts_every_tile_whatever_the_threads(monkeypatch):
    x, labels = cloud()
    monkeypatch.setattr(ranking, "TILE", 53)
    seen = []
    with torch_threads(3):
        retrieval(x, labels, progress=lambda *p: seen.append(p))
    total = 14 * 15 // 2
    assert seen == [(n, total) for n in range(1, total + 1)]


@needs_numba
def test_inference_mode_is_no_hindrance(monkeypatch):
    x, labels = cloud()
    monkeypatch.setattr(ranking, "TILE", 53)
    expected = retrieval(x, labels)
    with torch_threads(2), torch.inference_mode():
        assert retrieval(torch.from_numpy(x) * 1, labels) == expected


def test_threads_take_no_more_than_the_memory_that_is_there():
    x, labels = cloud()
    everyone = np.arange(len(x))
    task = Comparison.of(torch.from_numpy(x), None, (labels, labels), (everyone, everyone), 1)
    with torch_threads(4):
        assert ranking._plan(task, 10**9).threads == 4
        assert ranking._plan(task, 30 * 10**6).threads < 4
    with torch_threads(1):
        assert ranking._plan(task, 10**9).threads == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_equal_rows_of_two_sets_share_a_number_and_others_do_not(dtype):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(0, 3, (400, 5), generator=generator).to(dtype)
    numbers = np.concatenate(equal_rows(rows[:250], rows[250:]))
    same = (rows[:, None] == rows).all(2).numpy()
    assert np.array_equal(numbers[:, None] == numbers, same)
