import math

import pytest
import torch

from losses.loss_oracles import Definition, measured, unit
from uncollapse.losses import MultiSimilarityLoss
from uncollapse.mining import Miner, as_pairs


def multi_similarity(given, alpha, beta, base):
    """Wang et al. 2019, mean over all rows."""
    s, each, one = given.cosine, [], torch.ones(()).double()
    for i, (own, other) in enumerate(given.sets):
        pull = sum((torch.exp(-alpha * (s[i, j] - base)) for j in own), one)
        push = sum((torch.exp(beta * (s[i, j] - base)) for j in other), one)
        each.append(torch.log(pull) / alpha + torch.log(push) / beta)
    return torch.stack(each).sum() / len(s) + given.rows.sum() * 0


DEFINITIONS = {
    MultiSimilarityLoss: Definition(
        multi_similarity,
        drawn={"alpha": [2.0, 3.0], "beta": [50.0, 10.0], "base": [0.5, 1.0]},
        refused={"alpha": 0, "beta": 0, "base": math.inf},
        collapsed=[
            ({}, math.log(3) / 2 + math.log(10) / 50),
            ({"miner": Miner("easy", "multi_similarity")}, math.log(2) / 2 + math.log(10) / 50),
        ],
    )
}


@pytest.mark.parametrize(
    "words", [None, ("multi_similarity",) * 2, ("easy", "multi_similarity"), ("all", "all")]
)
@pytest.mark.parametrize("tight", [1.0, 1e-3])
def test_the_fused_loss_is_that_of_the_listed_pairs_on_a_large_float32_batch(words, tight):
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 60, (300,), generator=g)
    centre = torch.randn(20, 32, generator=g)  # three classes share a centre
    x = tight * torch.randn(300, 32, generator=g) + centre[labels % 20]
    loss = MultiSimilarityLoss(miner=words and Miner(*words))
    pairs = loss.miner(unit(x.double()), labels) if words else as_pairs(None, labels)
    fused = measured(lambda z: loss(z, labels), x)
    listed = measured(lambda z: loss(z, labels, pairs), x)
    assert fused[0] == pytest.approx(listed[0], rel=1e-5)
    assert float((fused[1] - listed[1]).norm() / listed[1].norm()) < 5e-5
