import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from losses.loss_oracles import (
    assert_same,
    batches,
    mean,
)
from uncollapse.losses import (
    NPairLoss,
)
from uncollapse.mining import Miner

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")


@given(batches(), st.booleans(), st.sampled_from([0.0, 0.02]))
def test_n_pair_equals_the_definition(batch, easy, l2):
    x, labels = batch
    miner = Miner("easy", "hard") if easy else None

    def truth(wide):
        if miner is None:
            firsts = [(labels == c).nonzero().flatten().tolist() for c in labels.unique()]
            pairs = [(rows[0], rows[1]) for rows in firsts if len(rows) > 1]
        else:
            t = miner(wide, labels)
            pairs = sorted(zip(t.anchor.tolist(), t.positive.tolist(), strict=True))
        each = []
        for a, p in pairs:
            other = [wide[a] @ (wide[q] - wide[p]) for b, q in pairs if labels[b] != labels[a]]
            if other:
                gaps = torch.stack([torch.zeros(()).double(), *other])
                squares = wide[a] @ wide[a] + wide[p] @ wide[p]
                each.append(torch.logsumexp(gaps, 0) + l2 * squares / 2)
        return mean(each, wide)

    loss = NPairLoss(miner=miner, l2=l2)
    assert_same(lambda z: loss(z, labels), truth, x, 1e-7)
