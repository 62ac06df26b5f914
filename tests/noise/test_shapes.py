import pytest
import torch

from support.errors import refused
from uncollapse.distances import pairwise_distances
from uncollapse.noise import NoiseModel, blobs, simplex


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_corners_of_the_simplex_are_equally_far_apart(count):
    d = pairwise_distances(simplex(count, 2.5))
    assert torch.allclose(d, 2.5 * (1 - torch.eye(count, dtype=torch.float64)), atol=1e-12)


def test_two_modes_split_the_first_class_alone():
    z, labels = blobs(NoiseModel(3, 0.8), 12, modes=2, distance=2.0)
    places = [z[labels == c].unique(dim=0) for c in range(3)]
    assert [len(p) for p in places] == [2, 1, 1]
    d = pairwise_distances(z)
    assert torch.allclose(d[d > 0], torch.tensor(2.0, dtype=torch.float64))
    assert torch.equal(z[0], z[1])
    assert not torch.equal(z[1], z[2])


def test_more_modes_than_samples_are_refused():
    with refused("modes"):
        blobs(NoiseModel(2, 0.8), 4, modes=3)
