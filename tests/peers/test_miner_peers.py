"""Where pytorch-metric-learning 2.9 defines the same choice, the same choice is made."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from pytorch_metric_learning import losses, miners
from pytorch_metric_learning.utils import loss_and_miner_utils as lmu
from torch.nn.functional import normalize

from support.errors import refused
from uncollapse._base.check import InputError
from uncollapse.mining import Miner, Triplets, as_pairs, as_triplets


def batch(seed, n=90, dim=16, classes=9, spread=0.7):
    """Normalised: PML's distances normalise by default, ours take what they are given."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (n,), generator=g)
    centres = torch.randn(classes, dim, generator=g)
    x = torch.randn(n, dim, generator=g) + spread * centres[y]
    return normalize(x.double(), dim=1), y


def rows(indices):
    return sorted(zip(*(index.tolist() for index in indices), strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_hard_with_hard_is_the_batch_hard_miner(seed):
    x, y = batch(seed)
    assert rows(Miner("hard", "hard")(x, y)) == rows(miners.BatchHardMiner()(x, y))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("positives", "negatives"),  # PML refuses "all" with "semihard"
    [
        pair
        for pair in product(("easy", "hard", "all"), ("easy", "hard", "semihard", "all"))
        if pair != ("all", "semihard")
    ],
)
def test_the_easy_hard_miner_agrees(seed, positives, negatives):
    x, y = batch(seed)
    theirs = miners.BatchEasyHardMiner(positives, negatives)(x, y)
    assert rows(Miner(positives, negatives)(x, y)) == rows(as_triplets(theirs, y))


@pytest.mark.parametrize("seed", range(3))
def test_inside_with_hard_is_their_semihard_positive_where_that_exists(seed):
    x, y = batch(seed)
    a, p, _, n = miners.BatchEasyHardMiner("semihard", "hard")(x, y)
    ours = rows(Miner("inside", "hard")(x, y))
    assert set(rows((a, p, n))) <= set(ours)
    assert len(a) > 40


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("theirs", "keep"), [("all", "violating"), ("hard", "hard"), ("semihard",) * 2]
)
def test_all_with_all_is_the_triplet_margin_miner(seed, theirs, keep):
    x, y = batch(seed)
    expected = miners.TripletMarginMiner(margin=0.2, type_of_triplets=theirs)(x, y)
    assert rows(Miner("all", "all", margin=0.2, keep=keep)(x, y)) == rows(expected)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.4])
def test_multi_similarity_is_the_multi_similarity_miner(seed, epsilon):
    x, y = batch(seed)
    a, p, b, n = miners.MultiSimilarityMiner(epsilon)(x.clone(), y)
    triplets = Miner("multi_similarity", "multi_similarity", epsilon=epsilon)(x, y)
    ours = as_pairs(triplets, y, unique=True)
    assert rows(ours[:2]) == rows((a, p))
    assert rows(ours[2:]) == rows((b, n))


@pytest.mark.slow
@pytest.mark.parametrize("dim", [2, 8, 32])
def test_distance_draws_as_the_distance_weighted_miner_does(dim):
    torch.manual_seed(dim)
    x, y = batch(dim, n=24, dim=dim, classes=4)
    theirs, ours = np.zeros((24, 24)), np.zeros((24, 24))
    peer, miner = miners.DistanceWeightedMiner(), Miner("all", "distance")
    for _ in range(250):
        a, _, n = peer(x, y)
        np.add.at(theirs, (a.numpy(), n.numpy()), 1)
        triplets = miner(x, y)
        np.add.at(ours, (triplets.anchor.numpy(), triplets.negative.numpy()), 1)
    theirs = theirs / np.maximum(theirs.sum(1, keepdims=True), 1)
    ours = ours / np.maximum(ours.sum(1, keepdims=True), 1)
    # About 1000 draws a row each: a frequency has a standard deviation of at most 0.016 here.
    assert np.abs(theirs - ours).max() < 0.11
    assert np.array_equal(theirs.sum(1) > 0, ours.sum(1) > 0)


@pytest.mark.parametrize("loss", [losses.TripletMarginLoss(), losses.ContrastiveLoss()])
def test_their_losses_accept_our_triplets(loss):
    x, y = batch(1)
    triplets = Miner("easy", "hard")(x, y)
    plain = tuple(triplets)
    assert float(loss(x, y, triplets)) == float(loss(x, y, plain)) > 0


@pytest.mark.parametrize("seed", range(3))
def test_tuples_convert_as_theirs_do(seed):
    x, y = batch(seed, n=30)
    four = miners.MultiSimilarityMiner(0.1)(x.clone(), y)
    ours, theirs = as_triplets(four, y), lmu.convert_to_triplets(four, y)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    three = miners.BatchHardMiner()(x, y)
    assert all(map(torch.equal, as_triplets(three, y), three))
    assert all(map(torch.equal, as_pairs(three, y), lmu.convert_to_pairs(three, y)))
    assert all(map(torch.equal, as_pairs(four, y), four))
    assert rows(as_triplets(None, y)) == rows(lmu.get_all_triplets_indices(y))
    assert all(map(torch.equal, as_pairs(None, y), lmu.get_all_pairs_indices(y)))


def test_tuples_without_rows_stay_so():
    none = torch.empty(0, dtype=torch.int64)
    assert [len(index) for index in as_triplets((none, none, none, none), [0, 1])] == [0, 0, 0]
    assert [len(index) for index in as_pairs((none, none, none), [0, 1], unique=True)] == [0] * 4
    assert [len(index) for index in as_triplets(None, [0, 1])] == [0, 0, 0]


def test_tuples_that_do_not_fit_are_refused():
    one, two = torch.tensor([0]), torch.tensor([0, 1])
    with refused("tuples"):
        as_triplets((one, two, one), [0, 0])
    for outside in (2, -1):
        with pytest.raises(InputError, match=rf"rows of the batch, 0 to 1, got index {outside}"):
            as_pairs(Triplets(one, one, torch.tensor([outside])), [0, 0])
