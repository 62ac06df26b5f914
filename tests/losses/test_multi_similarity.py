import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from losses.loss_oracles import (
    MINERS,
    assert_same,
    batches,
    distances,
    measured,
    sets,
    unit,
)
from uncollapse.losses import (
    MultiSimilarityLoss,
)
from uncollapse.mining import Miner, as_pairs

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")


def by_pairs(loss, z, labels):
    """The loss by its listed pairs: those of its miner, or all of them."""
    tuples = as_pairs(None, labels) if loss.miner is None else loss.miner(unit(z.double()), labels)
    return loss(z, labels, tuples)


@given(batches(), MINERS, st.sampled_from([0.5, 1.0]))
def test_multi_similarity_equals_the_definition(batch, miner, base):
    x, labels = batch
    x = x + 0.1  # no row is zero: a zero row has no cosine

    def truth(wide):
        y = unit(wide)
        s = 1 - distances(y).square() / 2
        tuples = None if miner is None else miner(y, labels)
        each = []
        for i, (own, other) in enumerate(sets(labels, len(x), tuples)):
            pull = sum((torch.exp(-2 * (s[i, j] - base)) for j in own), torch.ones(()).double())
            push = sum((torch.exp(50 * (s[i, j] - base)) for j in other), torch.ones(()).double())
            each.append(torch.log(pull) / 2 + torch.log(push) / 50)
        return torch.stack(each).sum() / len(x) + wide.sum() * 0

    loss = MultiSimilarityLoss(base=base, miner=miner)
    assert_same(lambda z: loss(z, labels), truth, x, 1e-6)
    assert_same(lambda z: by_pairs(loss, z, labels), truth, x, 1e-6)


@pytest.mark.parametrize(
    "words",
    [("multi_similarity", "multi_similarity"), ("easy", "multi_similarity"), ("all", "all")],
)
@pytest.mark.parametrize("tight", [1.0, 1e-3])
def test_fused_multi_similarity_equals_the_listed_pairs_on_a_large_float32_batch(words, tight):
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 60, (300,), generator=g)
    centre = torch.randn(20, 32, generator=g)  # three classes share a centre
    x = tight * torch.randn(300, 32, generator=g) + centre[labels % 20]
    loss = MultiSimilarityLoss(miner=Miner(*words))
    fused = measured(lambda z: loss(z, labels), x)
    listed = measured(lambda z: by_pairs(loss, z, labels), x)
    assert fused[0] == pytest.approx(listed[0], rel=1e-5)
    assert float((fused[1] - listed[1]).norm() / listed[1].norm()) < 5e-5
