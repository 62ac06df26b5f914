import numpy as np
import pytest
import torch

from support.errors import refused
from uncollapse._base.check import InputError
from uncollapse.noise import NoiseModel, expected_loss


@pytest.mark.parametrize(("t", "p"), [(2, 0.7), (3, 0.4), (7, 0.9), (4, 0.0)])
def test_pair_probabilities_are_the_sums_over_labels(t, p):
    noise = NoiseModel(t, p)
    table = noise.probabilities
    assert torch.allclose(table.sum(1), torch.ones(t, dtype=torch.float64))
    assert noise.same == pytest.approx(float(table[0] @ table[0]), abs=1e-15)
    assert noise.different == pytest.approx(float(table[0] @ table[1]), abs=1e-15)
    assert noise.same - noise.different == pytest.approx((noise.p - noise.q) ** 2, abs=1e-15)


@pytest.mark.parametrize("seed", range(3))
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


def test_labels_may_be_a_numpy_array_and_are_kept_without_noise():
    own = np.array([1, 0, 1])
    assert NoiseModel(2, 1.0).sample(own, torch.Generator()).tolist() == [1, 0, 1]


@pytest.mark.parametrize("labels", [[0, 3], [-1, 0], [0.0, 1.0], [[0, 1]]])
def test_labels_outside_the_classes_are_refused(labels):
    with refused("labels"):
        NoiseModel(3, 0.5).sample(labels, torch.Generator())


@pytest.mark.parametrize(("t", "p"), [(1, 0.5), (2, 1.2), (2, -0.1), (2, float("nan"))])
def test_impossible_models_are_refused(t, p):
    with pytest.raises(InputError):
        NoiseModel(t, p)


def test_more_classes_than_the_model_has_are_refused():
    with refused("labels"):
        expected_loss("triplet", [[0.0], [1.0], [2.0]], [0, 1, 2], NoiseModel(2, 0.5))


def test_true_classes_are_as_even_as_possible():
    counts = NoiseModel(4, 0.5).labels(11).bincount()
    assert sorted(counts.tolist()) == [2, 3, 3, 3]
