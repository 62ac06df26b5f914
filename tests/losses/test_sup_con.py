import pytest
import torch
from hypothesis import given

from losses.loss_oracles import (
    MINERS,
    assert_same,
    batches,
    distances,
    mean,
    sets,
    unit,
)
from uncollapse.losses import (
    SupConLoss,
)

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")


@given(batches(), MINERS)
def test_sup_con_equals_the_definition(batch, miner):
    x, labels = batch
    x = x + 0.1

    def truth(wide):
        y = unit(wide)
        s = (1 - distances(y).square() / 2) / 0.3
        tuples = None if miner is None else miner(y, labels)
        each = []
        for i, (own, other) in enumerate(sets(labels, len(x), tuples)):
            if own:
                log_sum = torch.logsumexp(torch.stack([s[i, j] for j in own + other]), 0)
                each.append(torch.stack([log_sum - s[i, p] for p in own]).mean())
        return mean(each, wide)

    loss = SupConLoss(temperature=0.3, miner=miner)
    assert_same(lambda z: loss(z, labels), truth, x, 1e-7)
