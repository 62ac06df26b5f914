import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning import regularizers

from losses.loss_oracles import assert_same, batches, measured, unit
from losses.pml_tester import assert_is_pml_s
from support.errors import refused
from uncollapse.losses import SoftTripleLoss

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")


@given(batches(), st.integers(1, 3), st.sampled_from([0.0, 0.3]))
def test_soft_triple_equals_the_definition_for_embeddings_and_centres(batch, centres, tau):
    x, labels = batch
    x = x + 0.1
    g = torch.Generator().manual_seed(0)
    start = torch.randn(4, centres, x.shape[1], generator=g, dtype=torch.float64)
    options = {"num_classes": 4, "dim": x.shape[1], "centers_per_class": centres, "tau": tau}
    loss = SoftTripleLoss(la=5.0, gamma=0.4, margin=0.2, **options)

    def truth(wide, points=start):  # sample by sample, centre by centre
        y, p = unit(wide), unit(points.reshape(-1, x.shape[1])).view(points.shape)
        each = []
        for i, label in enumerate(labels.tolist()):
            similar = []
            for c in range(4):
                s = [p[c, k] @ y[i] for k in range(centres)]
                weight = [torch.exp(v / 0.4) for v in s]
                similar.append(sum(w * v for w, v in zip(weight, s, strict=True)) / sum(weight))
            top = torch.exp(5 * (similar[label] - 0.2))
            rest = sum(torch.exp(5 * v) for c, v in enumerate(similar) if c != label)
            each.append(-torch.log(top / (top + rest)))
        value = torch.stack(each).mean()
        pairs = [(t, s) for t in range(centres) for s in range(t + 1, centres)]
        apart = [(p[c, t] - p[c, s]).norm() for c in range(4) for t, s in pairs]
        return value + tau * sum(apart) / (4 * centres * (centres - 1)) if apart else value

    def ours(z, points=start):
        return torch.func.functional_call(loss, {"proxies": points}, (z, labels))

    assert_same(ours, truth, x, 1e-7)
    leaf, other = start.clone().requires_grad_(), start.clone().requires_grad_()
    ours(x, leaf).backward()
    truth(x, other).backward()
    torch.testing.assert_close(leaf.grad, other.grad, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("tau", [0.0, 0.2])
def test_it_is_pml_s_for_embeddings_and_centres(tau):
    sparse = regularizers.SparseCentersRegularizer(12, 10) if tau else None
    theirs = pml_losses.SoftTripleLoss(12, 8, weight_regularizer=sparse, weight_reg_weight=tau)
    assert_is_pml_s(SoftTripleLoss(num_classes=12, dim=8, tau=tau), theirs)


def test_when_all_coincide_centres_still_pull_classes_apart_until_they_coincide_too():
    x, labels = torch.full((8, 6), 0.3), torch.arange(8) // 2
    loss = SoftTripleLoss(num_classes=4, dim=6, generator=torch.Generator().manual_seed(0))
    assert float(measured(lambda z: loss(z, labels), x)[1].norm()) > 0.1
    loss.proxies.data = torch.ones(4, 10, 6)
    value, gradient = measured(lambda z: loss(z, labels), x)
    assert value == pytest.approx(math.log1p(3 * math.exp(20 * 0.01)), rel=1e-6)
    assert float(gradient.abs().max()) < 1e-6


def test_centres_are_drawn_and_counted():
    assert tuple(SoftTripleLoss(num_classes=4, dim=6).proxies.shape) == (4, 10, 6)
    with refused("centers_per_class"):
        SoftTripleLoss(num_classes=4, dim=6, centers_per_class=0)
