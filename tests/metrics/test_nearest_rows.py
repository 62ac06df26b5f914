"""Nearest rows: choosing the first few is the same as sorting all."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from support.errors import refused
from uncollapse.distances import pairwise_distances
from uncollapse.metrics.nearest_rows import nearest


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.sampled_from([5, 70, 200]))
def test_it_is_a_stable_sort_of_all_distances_also_with_ties(seed, k, size):
    generator = torch.Generator().manual_seed(seed)
    gallery = torch.randint(0, 4, (size, 2), generator=generator).double()
    queries, k = gallery[: size // 2], min(k, size - 1)
    itself = torch.arange(len(queries))
    distances = pairwise_distances(queries, gallery)
    distances[itself, itself] = torch.inf
    order = torch.argsort(distances, dim=1, stable=True)[:, :k]
    result = nearest(queries, gallery, k, exclude=itself)
    assert torch.equal(result.rows, order)
    assert torch.equal(result.distances, distances.gather(1, order))


def test_progress_is_told_and_too_many_are_refused():
    seen: list[tuple[int, int]] = []
    x = torch.arange(300.0)[:, None]
    nearest(x, x, 1, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(256, 300), (300, 300)]
    with refused("k"):
        nearest(x, x, 300, exclude=torch.arange(300))
