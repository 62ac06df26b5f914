import numpy as np
import pytest
import torch

from support.errors import refuses
from uncollapse.noise import NoiseModel, estimate_noise
from uncollapse.noise.estimate import _deviation, _nearest


def clusters(t, n, seed):
    g = torch.Generator().manual_seed(seed)
    labels = NoiseModel(t, 1.0).labels(n)
    z = torch.cat([torch.randn(n, 3, generator=g), 50 * torch.eye(t)[labels]], 1)
    return z, labels, g


@pytest.mark.slow
@pytest.mark.parametrize(("t", "p"), [(2, 0.7), (3, 0.55), (10, 0.9), (3, 0.99)])
def test_p_is_found_within_its_interval_on_most_seeds(t, p):
    z, labels, g = clusters(t, 400, seed=0)
    noise = NoiseModel(t, p)
    result = [estimate_noise(z, noise.sample(labels, g), classes=t) for _ in range(60)]
    hits = sum(e.low <= p <= e.high for e in result)
    # 95 % of 60 are 57; fewer than 50 has probability 1e-3
    assert hits >= 50
    # the mean of 60 is within 0.02 of p: several standard errors at every level here
    assert float(np.mean([e.p for e in result])) == pytest.approx(p, abs=0.02)


def test_the_deviation_is_that_of_the_agreement_over_sampled_labels():
    z, labels, g = clusters(3, 300, seed=1)
    noise, near = NoiseModel(3, 0.7), _nearest(z, 4)
    draws = [noise.sample(labels, g).numpy() for _ in range(1500)]
    agreement = [(y[near] == y[:, None]).mean() for y in draws]
    # the deviation of 1500 draws is known to 2 %; 8 % is four of these
    assert np.std(agreement) == pytest.approx(_deviation(near, 3)(0.7), rel=0.08)
    assert np.mean(agreement) == pytest.approx(noise.same, abs=0.005)


def test_clean_labels_give_p_1_with_an_interval_below_it():
    z, labels, _ = clusters(3, 300, seed=3)
    result = estimate_noise(z, labels)
    assert result.p == result.high == 1.0
    assert 0.97 < result.low < 0.999


def test_touching_classes_make_p_too_small():
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(400) % 2
    z = torch.randn(400, 2, generator=g) + labels[:, None]
    assert estimate_noise(z, labels).high < 1.0


def test_labels_that_say_nothing_give_one_over_t():
    g = torch.Generator().manual_seed(5)
    z, labels = torch.randn(500, 2, generator=g), torch.randint(0, 4, (500,), generator=g)
    result = estimate_noise(z, labels)
    assert result.low == 0.25
    assert result.low <= result.p <= result.high < 0.45


def test_agreement_far_below_chance_is_answered_with_one_over_t():
    z = torch.arange(200.0)[:, None]
    result = estimate_noise(z, torch.arange(200) % 2, neighbours=1)
    assert (result.agreement, result.p, result.low, result.high) == (0.0, 0.5, 0.5, 0.5)


def test_neighbours_are_the_nearest_others_in_blocks_too():
    z = torch.randn(1100, 2, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    d = torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(torch.inf)
    assert np.array_equal(np.sort(_nearest(z, 3)), np.sort(d.topk(3, largest=False).indices))


def test_wrong_arguments_are_refused_by_name():
    good = {"embeddings": [[0.0], [1.0], [2.0], [3.0]], "labels": [0, 1, 0, 1], "neighbours": 1}
    refuses(estimate_noise, good, neighbours=[4], confidence=[1.0], classes=[1])
    refuses(estimate_noise, good, labels=[[0, 0, 0, 0]])
