import numpy as np
import pytest
import torch

from support.errors import refuses
from uncollapse.distances import pairwise_distances
from uncollapse.noise import NoiseModel, blobs, simplex


@pytest.mark.parametrize(("t", "p"), [(2, 0.7), (3, 0.4), (7, 0.9), (4, 0.0)])
def test_pair_probabilities_are_the_sums_over_labels(t, p):
    noise = NoiseModel(t, p)
    table = noise.probabilities
    assert torch.allclose(table.sum(1), torch.ones(t, dtype=torch.float64))
    assert noise.same == pytest.approx(float(table[0] @ table[0]), abs=1e-15)
    assert noise.different == pytest.approx(float(table[0] @ table[1]), abs=1e-15)
    assert noise.same - noise.different == pytest.approx((noise.p - noise.q) ** 2, abs=1e-15)


@pytest.mark.parametrize("seed", range(2))
def test_sampled_labels_have_the_probabilities_of_the_model(seed):
    noise, n = NoiseModel(4, 0.7), 40_000
    own = noise.labels(n)
    noisy = noise.sample(own, torch.Generator().manual_seed(seed))
    counts = torch.zeros(4, 4, dtype=torch.float64)
    counts.index_put_((own, noisy), torch.ones(n, dtype=torch.float64), accumulate=True)
    # 10,000 draws a class: five standard deviations are 5·sqrt(0.21/10000) = 0.023
    assert torch.allclose(counts / 10_000, noise.probabilities, atol=0.023)


def test_sampling_repeats_with_the_seed_and_leaves_the_global_state_alone():
    noise = NoiseModel(3, 0.5)
    before = torch.get_rng_state()
    a, b = (noise.sample([0, 1, 2] * 9, torch.Generator().manual_seed(4)) for _ in range(2))
    assert torch.equal(a, b)
    assert torch.equal(before, torch.get_rng_state())


def test_true_classes_are_as_even_as_possible():
    counts = NoiseModel(4, 0.5).labels(11).bincount()
    assert sorted(counts.tolist()) == [2, 3, 3, 3]


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


def test_wrong_arguments_are_refused_by_name():
    given = {"labels": [0, 1], "generator": torch.Generator()}
    refuses(NoiseModel(3, 0.5).sample, given, labels=[[0, 3], [-1, 0], [0.0, 1.0], [[0, 1]]])
    refuses(NoiseModel, {"classes": 2, "p": 0.5}, classes=[1], p=[1.2, -0.1, float("nan")])
    refuses(blobs, {"model": NoiseModel(2, 0.8), "n": 4}, modes=[3])
    assert NoiseModel(2, 1.0).sample(np.array([1, 0, 1]), torch.Generator()).tolist() == [1, 0, 1]
