"""What losses with proxies share."""

import pytest
import torch

from losses.loss_oracles import measured
from uncollapse.losses import (
    ArcFaceLoss,
    CosFaceLoss,
    ProxyAnchorLoss,
    ProxyNCALoss,
    SoftTripleLoss,
)


@pytest.mark.parametrize("noise", [1e-1, 1e-3, 1e-6])
@pytest.mark.parametrize(
    "kind", [ArcFaceLoss, CosFaceLoss, ProxyAnchorLoss, ProxyNCALoss, SoftTripleLoss]
)
def test_float32_gradients_are_right_where_rows_and_proxies_nearly_coincide(kind, noise):
    g = torch.Generator().manual_seed(0)
    x, labels = 1 + noise * torch.randn(24, 16, generator=g), torch.arange(24) // 6
    loss = kind(num_classes=4, dim=16)
    loss.proxies.data = 1 + noise * torch.randn(loss.proxies.shape, generator=g)
    gradient = measured(lambda z: loss(z, labels), x)[1]
    truth = measured(lambda z: loss(z, labels), x.double())[1]
    assert float((gradient - truth).norm()) <= 1e-5 * float(truth.norm())
