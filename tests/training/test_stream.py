"""Batches without end: the same ones from any place, with workers or without, on any rank."""

import itertools

import pytest
import torch

from uncollapse.data import LabelledImages, TensorSource
from uncollapse.samplers import PKSampler
from uncollapse.training.distributed import Ranks
from uncollapse.training.session import BatchStream, endless

ROWS = 24
DATA = LabelledImages(
    TensorSource(torch.arange(ROWS, dtype=torch.float32)[:, None]), torch.arange(ROWS) % 4
)


def sampler():
    return PKSampler(DATA.label_index, 2, 3, seed=5)


def taken(stream, count):
    return [next(stream) for _ in range(count)]


def test_images_are_those_of_the_rows():
    for images, rows in taken(BatchStream(DATA, sampler()), 3):
        assert images[:, 0].tolist() == rows.tolist()
        assert len(rows) == 6


@pytest.mark.parametrize("place", [1, 3, 4, 9])
def test_a_stream_begun_at_a_place_goes_on_as_one_that_came_there(place):
    length = len(sampler())
    assert length < 9  # some places lie in later epochs
    whole = taken(BatchStream(DATA, sampler()), place + 3)
    stream = BatchStream(DATA, sampler(), place=place)
    for (_, found), (_, expected) in zip(taken(stream, 3), whole[place:], strict=True):
        assert torch.equal(found, expected)
    assert stream.place == place + 3


def test_workers_read_ahead_without_moving_the_place():
    plain, ahead = BatchStream(DATA, sampler()), BatchStream(DATA, sampler(), workers=1)
    for (a, rows), (b, same) in zip(taken(plain, 5), taken(ahead, 5), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(rows, same)
    assert ahead.place == plain.place == 5


def test_ranks_know_the_whole_batch_and_read_their_share():
    (_, whole), *_ = taken(BatchStream(DATA, sampler()), 1)
    shares = []
    for rank in range(2):
        images, rows = next(BatchStream(DATA, sampler(), ranks=Ranks(rank, 2)))
        assert torch.equal(rows, whole)
        shares += images[:, 0].tolist()
    assert shares == whole.tolist()


def test_epochs_follow_one_another_and_differ():
    length = len(sampler())
    batches = list(itertools.islice(endless(sampler()), 2 * length))
    assert batches[:length] != batches[length:]
