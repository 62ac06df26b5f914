import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from losses.loss_oracles import (
    assert_same,
    batches,
    measured,
    unit,
)
from uncollapse._base.check import InputError
from uncollapse.losses import (
    ProxyNCALoss,
)

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")


@given(batches(), st.booleans(), st.integers(1, 3))
def test_proxy_nca_equals_the_definition_for_embeddings_and_proxies(batch, exclude, per_class):
    x, labels = batch
    x = x + 0.1
    g = torch.Generator().manual_seed(0)
    proxies = torch.randn(4, per_class, x.shape[1], generator=g, dtype=torch.float64)

    loss = ProxyNCALoss(
        num_classes=4, dim=x.shape[1], per_class=per_class, exclude_positive=exclude
    )

    def truth(wide, points=proxies):
        y, p = unit(wide), unit(points.reshape(-1, x.shape[1])).view(points.shape)
        each = []
        for i in range(len(x)):
            square = 9 * (y[i] - p).square().sum(-1)
            own = int(labels[i])
            near = square[own].min()
            rest = [square[c, k] for c in range(4) for k in range(per_class) if c != own]
            if not exclude:
                rest.append(near)
            each.append(near + torch.logsumexp(-torch.stack(rest), 0))
        return torch.stack(each).mean()

    def ours(z, points=proxies):
        return torch.func.functional_call(loss, {"proxies": points}, (z, labels))

    assert_same(ours, truth, x, 1e-7)
    leaf, other = proxies.clone().requires_grad_(), proxies.clone().requires_grad_()
    ours(x, leaf).backward()
    truth(x, other).backward()
    torch.testing.assert_close(leaf.grad, other.grad, rtol=1e-6, atol=1e-9)


def test_proxies_are_seeded_and_a_miner_restricts_the_anchors():
    loss = ProxyNCALoss(num_classes=3, dim=2, generator=torch.Generator().manual_seed(5))
    again = ProxyNCALoss(num_classes=3, dim=2, generator=torch.Generator().manual_seed(5))
    assert torch.equal(loss.proxies, again.proxies)
    x, labels = torch.randn(5, 2), torch.tensor([0, 0, 1, 2, 2])
    only = [torch.tensor(i) for i in ([0, 4], [1, 3], [2, 2])]
    assert loss(x, labels, only).item() == pytest.approx(loss(x[[0, 4]], labels[[0, 4]]).item())
    with pytest.raises(InputError, match="2 as the proxies have"):
        loss(torch.randn(5, 3), labels)


def test_when_all_coincide_proxies_still_pull_classes_apart_until_they_coincide_too():
    x, labels = torch.full((8, 6), 0.3), torch.arange(8) // 2
    loss = ProxyNCALoss(num_classes=4, dim=6, generator=torch.Generator().manual_seed(0))
    assert float(measured(lambda z: loss(z, labels), x)[1].norm()) > 0.1
    loss.proxies.data = torch.ones(4, 1, 6)
    value, gradient = measured(lambda z: loss(z, labels), x)
    assert value == pytest.approx(math.log(3), rel=1e-6)
    assert float(gradient.abs().max()) < 1e-7
