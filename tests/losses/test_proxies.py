"""What losses with proxies share; `make` is of the registry."""

import pytest
import torch

from losses.loss_oracles import makers
from support.errors import refused
from uncollapse.losses.proxies import ProxyLoss
from uncollapse.losses.registry import LOSSES

MAKE = makers(num_classes=3, dim=2)
EVERY = pytest.mark.parametrize(
    "make", [MAKE[name] for name, kind in LOSSES.items() if issubclass(kind, ProxyLoss)]
)


@EVERY
def test_a_miner_or_tuples_restrict_the_samples(make):
    loss, g = make(), torch.Generator().manual_seed(0)
    x, labels = torch.randn(5, 2, generator=g), torch.tensor([0, 0, 1, 2, 2])
    only = [torch.tensor(i) for i in ([0, 4], [1, 3], [2, 2])]
    assert loss(x, labels, only).item() == pytest.approx(loss(x[[0, 4]], labels[[0, 4]]).item())


@EVERY
def test_proxies_are_drawn_from_the_generator_and_of_the_rows_dimension(make):
    assert torch.equal(make().proxies, make().proxies)
    assert make().proxies.shape[::2] == (3, 2)
    with refused("embeddings"):
        make()(torch.ones(5, 3), [0] * 5)
    with refused("labels"):
        make()(torch.ones(2, 2), [0, 3])
