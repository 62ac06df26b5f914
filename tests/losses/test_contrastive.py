import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytorch_metric_learning import distances as pml_distances
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning import reducers as pml_reducers

from losses.loss_oracles import (
    MINERS,
    assert_same,
    batches,
    distances,
    mean,
    sets,
    unit,
)
from losses.pml_tester import assert_is_pml_s
from uncollapse.losses import (
    ContrastiveLoss,
)

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")


@given(batches(), MINERS, st.booleans())
def test_contrastive_equals_the_definition(batch, miner, normalize):
    x, labels = batch

    def truth(wide):
        y = unit(wide) if normalize else wide
        d = distances(y)
        if miner is None:
            pairs = sets(labels, len(x))
            positive = [d[i, j] for i, (own, _) in enumerate(pairs) for j in own]
            negative = [(1.3 - d[i, j]).clamp(min=0) for i, (_, o) in enumerate(pairs) for j in o]
        else:
            t = list(zip(*miner(y, labels), strict=True))
            positive = [d[a, p] for a, p, _ in t]
            negative = [(1.3 - d[a, n]).clamp(min=0) for a, _, n in t]
        return mean(positive, wide) + mean(negative, wide)

    loss = ContrastiveLoss(margin=1.3, miner=miner, normalize=normalize)
    assert_same(lambda z: loss(z, labels), truth, x, 1e-7)


def test_pml_contrastive_in_plain_mean_is_the_default_here():
    theirs = pml_losses.ContrastiveLoss(
        distance=pml_distances.LpDistance(normalize_embeddings=False),
        reducer=pml_reducers.MeanReducer(),
        neg_margin=3.0,
    )
    assert_is_pml_s(ContrastiveLoss(margin=3.0), theirs)
