import math

import pytest
import torch
from hypothesis import given
from pytorch_metric_learning import losses as pml_losses

from losses.loss_oracles import assert_same, batches, measured, unit
from losses.pml_tester import assert_is_pml_s
from uncollapse.losses import ProxyAnchorLoss

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")


@given(batches())
def test_proxy_anchor_equals_the_definition_for_embeddings_and_proxies(batch):
    x, labels = batch
    x = x + 0.1
    g = torch.Generator().manual_seed(0)
    proxies = torch.randn(4, 1, x.shape[1], generator=g, dtype=torch.float64)
    loss = ProxyAnchorLoss(num_classes=4, dim=x.shape[1], margin=0.2, alpha=5.0)

    def truth(wide, points=proxies):  # Kim et al., term by term
        y, p = unit(wide), unit(points[:, 0])
        near, far = [], []
        for c in range(4):
            own = [torch.exp(-5 * (y[i] @ p[c] - 0.2)) for i in range(len(x)) if labels[i] == c]
            rest = [torch.exp(5 * (y[i] @ p[c] + 0.2)) for i in range(len(x)) if labels[i] != c]
            if own:
                near.append(torch.log(1 + sum(own)))
            far.append(torch.log(1 + sum(rest)) if rest else y.sum() * 0)
        return torch.stack(near).mean() + torch.stack(far).mean()

    def ours(z, points=proxies):
        return torch.func.functional_call(loss, {"proxies": points}, (z, labels))

    assert_same(ours, truth, x, 1e-7)
    leaf, other = proxies.clone().requires_grad_(), proxies.clone().requires_grad_()
    ours(x, leaf).backward()
    truth(x, other).backward()
    torch.testing.assert_close(leaf.grad, other.grad, rtol=1e-6, atol=1e-9)


def test_it_is_pml_s_for_embeddings_and_proxies():
    ours, theirs = ProxyAnchorLoss(num_classes=12, dim=8), pml_losses.ProxyAnchorLoss(12, 8)
    assert_is_pml_s(ours, theirs)


def test_when_all_coincide_proxies_still_pull_classes_apart_until_they_coincide_too():
    x, labels = torch.full((8, 6), 0.3), torch.arange(8) // 2
    loss = ProxyAnchorLoss(num_classes=4, dim=6, generator=torch.Generator().manual_seed(0))
    assert float(measured(lambda z: loss(z, labels), x)[1].norm()) > 0.1
    loss.proxies.data = torch.ones(4, 1, 6)
    value, gradient = measured(lambda z: loss(z, labels), x)
    near, far = 2 * math.exp(-32 * 0.9), 6 * math.exp(32 * 1.1)
    assert value == pytest.approx(math.log1p(near) + math.log1p(far), rel=1e-6)
    assert float(gradient.abs().max()) < 1e-6


def test_a_miner_restricts_the_samples():
    loss = ProxyAnchorLoss(num_classes=3, dim=2)
    x, labels = torch.randn(5, 2), torch.tensor([0, 0, 1, 2, 2])
    only = [torch.tensor(i) for i in ([0, 4], [1, 3], [2, 2])]
    assert loss(x, labels, only).item() == pytest.approx(loss(x[[0, 4]], labels[[0, 4]]).item())
