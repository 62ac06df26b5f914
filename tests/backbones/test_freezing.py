"""Frozen networks: what trains, what does not, and samples that went through already."""

import pytest
import torch
from torch import nn

from uncollapse._base.check import InputError
from uncollapse.backbones import Embedder, Head, build, freeze

SHAPE = (3, 32, 32)


def images(count=4):
    return torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("up_to", [True, "layer2", "layer4"])
def test_frozen_or_not_the_embedding_is_the_same_and_features_stand_for_samples(up_to):
    plain = build("resnet18", 8, shape=SHAPE).eval()
    frozen = build("resnet18", 8, shape=SHAPE, freeze=up_to).eval()
    z = plain(images())
    assert torch.allclose(frozen(images()), z, atol=1e-6)
    features = frozen.front(images())
    assert tuple(features.shape[1:]) == frozen.front.shape
    assert torch.allclose(frozen(features), z, atol=1e-6)


def test_only_what_comes_after_the_stage_trains_and_batch_norm_below_it_stays():
    model = build("resnet18", 8, shape=SHAPE, freeze="layer3").train()
    assert not any(module.training for module in model.front.modules())
    before = {k: v.clone() for k, v in model.front.state_dict().items()}
    model(images()).sum().backward()
    assert all(p.grad is None for p in model.front.parameters())
    assert all(p.grad is not None for p in model.trunk.parameters())
    assert all(torch.equal(v, before[k]) for k, v in model.front.state_dict().items())


def test_an_unknown_stage_is_refused_with_those_there_are():
    with pytest.raises(InputError, match=r"'stem', 'layer1', .*'layer4' for this backbone"):
        build("resnet18", 8, shape=SHAPE, freeze="layer9")
    with pytest.raises(InputError, match="one of true, false for this backbone"):
        build("conv2", 8, shape=SHAPE, freeze="conv1")


def test_a_network_without_anything_left_to_train_is_refused():
    with pytest.raises(InputError, match="all of it is frozen"):
        build("resnet18", 512, shape=SHAPE, head="none", freeze=True)
    with pytest.raises(InputError, match="leave samples as they are"):
        freeze(Embedder(nn.Identity(), Head(5, 2), 2), True, (5,))


def test_a_head_from_principal_axes_keeps_distances_as_far_as_its_dimension_can():
    x = torch.randn(200, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = (x * torch.tensor([5.0, 3.0, 1.0, 0.0, 0.0, 0.0])).float() + 10.0
    head = Head(6, 3)
    head.start_from_axes(x)
    z = head(x)
    assert torch.allclose(torch.pdist(z), torch.pdist(x), rtol=1e-4)
    assert torch.allclose(z.mean(0), torch.zeros(3), atol=1e-4)
    spread = z.var(0)
    assert spread[0] > spread[1] > spread[2]


def test_more_dimensions_than_axes_are_refused():
    with pytest.raises(InputError, match="at most 4, the principal axes"):
        Head(6, 5).start_from_axes(torch.randn(5, 6))


def test_without_a_head_the_dimension_is_the_networks():
    model = build("resnet18", 512, shape=SHAPE, head="none").eval()
    assert torch.equal(model(images()), model.trunk(images()).mean((2, 3)))
    with pytest.raises(InputError, match="expected 512"):
        build("resnet18", 64, shape=SHAPE, head="none")
