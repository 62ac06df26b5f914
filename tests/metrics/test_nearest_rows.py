"""Nearest rows: choosing the first few is the same as sorting all."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.errors import refused
from uncollapse.metrics.nearest_rows import near_lists, nearest


def sorted_rows(queries, gallery, k, exclude=None):
    """By differences of all pairs in float64; ties go to the lower row."""
    gaps = queries.double()[:, None] - gallery.double()
    squares = gaps.square().sum(2)
    if exclude is not None:
        squares[torch.arange(len(queries)), exclude] = torch.inf
    order = torch.argsort(squares, dim=1, stable=True)[:, :k]
    return order, squares.gather(1, order).sqrt()


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.sampled_from([5, 70, 200]))
def test_it_is_a_stable_sort_of_all_distances_also_with_ties(seed, k, size):
    generator = torch.Generator().manual_seed(seed)
    gallery = torch.randint(0, 4, (size, 2), generator=generator).double()
    queries, k = gallery[: size // 2], min(k, size - 1)
    itself = torch.arange(len(queries))
    order, distances = sorted_rows(queries, gallery, k, itself)
    result = nearest(queries, gallery, k, exclude=itself)
    assert torch.equal(result.rows, order)
    assert torch.equal(result.distances, distances)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("place", [0.0, 100.0])
def test_no_product_decides_what_differences_would_decide_otherwise(dtype, place):
    generator = torch.Generator().manual_seed(0)
    gallery = torch.randn(5_000, 24, generator=generator, dtype=torch.float64)
    gallery[1_000:3_000] *= 1e-3  # close to each other, beside the rest
    gallery[3_000:3_500] = gallery[7]
    gallery[3_500:3_600] = 0.0
    gallery[4_999] = 1e4  # and one far from all
    gallery = (gallery + place).to(dtype)
    queries = torch.cat([gallery[::50], gallery[3_000:3_010]])
    order, distances = sorted_rows(queries, gallery, 12)
    result = nearest(queries, gallery, 12)
    assert torch.equal(result.rows, order)
    assert torch.allclose(result.distances.double(), distances, rtol=1e-6)


def test_rows_of_zeros_have_no_direction_to_search_by():
    rows = torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, 2.0]])
    with refused("queries"):
        nearest(rows, rows, 2, normalize=True)
    with refused("gallery"):
        nearest(rows[1:], rows, 2, normalize=True)


def test_lists_of_all_rows_begin_with_the_row_and_know_the_farthest():
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 5, (300, 3), generator=generator).float()
    options = {"normalize": False, "max_memory": 1 << 20, "report": lambda *_: None}
    lists, farthest = near_lists(x, 6, **options)
    own = torch.arange(len(x))
    assert lists[:, 0].tolist() == own.tolist()
    assert lists[:, 1:].tolist() == sorted_rows(x, x, 5, own)[0].tolist()
    assert farthest.tolist() == torch.cdist(x.double(), x.double()).argmax(1).tolist()


def test_progress_is_told_and_too_many_are_refused():
    seen: list[tuple[int, int]] = []
    x = torch.arange(600.0)[:, None]
    nearest(x, x, 1, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(512, 600), (600, 600)]
    with refused("k"):
        nearest(x, x, 600, exclude=torch.arange(600))
