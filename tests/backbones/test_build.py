"""Networks with heads: how they start, what stays frozen, and networks from elsewhere."""

import copy
import pickle
import sys
import types
from unittest.mock import Mock

import pytest
import torch
from torch import nn

from support.errors import refused
from uncollapse._base.extras import MissingExtraError
from uncollapse.backbones import Embedder, Head, build, freeze, freeze_batch_norm, initialise
from uncollapse.backbones import sentences as module
from uncollapse.backbones.head import FrozenBatchNorm
from uncollapse.backbones.networks import ResNet


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_the_head_averages_maps_and_leaves_vectors():
    head = Head(6, 4)
    maps = torch.rand(3, 6, 5, 2, generator=generator())
    by_hand = torch.stack([maps[:, c].flatten(1).sum(1) / 10 for c in range(6)], dim=1)
    assert torch.allclose(head(maps), head.linear(by_hand), atol=1e-6)
    assert torch.allclose(head(by_hand), head.linear(by_hand))


def test_normalised_embeddings_lie_on_the_unit_sphere():
    images = torch.rand(5, 1, 16, 16, generator=generator())
    z = build("conv2", dim=7, shape=(1, 16, 16), normalize=True)(images)
    plain = build("conv2", dim=7, shape=(1, 16, 16))(images)
    assert torch.allclose(z, plain / plain.norm(dim=1, keepdim=True), atol=1e-6)


def test_weights_depend_on_the_generator_only_and_the_global_state_stays():
    def state(seed):
        return build("conv2", shape=(1, 16, 16), generator=generator(seed)).state_dict()

    before = torch.get_rng_state()
    first = state(1)
    assert torch.equal(before, torch.get_rng_state())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(99)
        again = state(1)
    assert all(torch.equal(first[k], again[k]) for k in first)
    assert not torch.equal(first["head.linear.weight"], state(2)["head.linear.weight"])


def test_initialisations_are_those_of_the_papers_and_of_torchvision():
    network = initialise(ResNet("resnet18"), "hnm", generator())
    for name in ("conv1", "layer2.0.conv1", "layer4.1.conv2"):
        layer = network.get_submodule(name)
        fan_out = layer.out_channels * layer.kernel_size[0] ** 2
        deviation = float(layer.weight.detach().std())
        assert deviation == pytest.approx((2 / fan_out) ** 0.5, rel=0.03)
    assert float(network.bn1.weight.detach().min()) == 1.0
    weight = initialise(network, "eps", generator()).conv1.weight.detach()
    bound = (3 * 49) ** -0.5  # uniform within the root of fan-in
    assert 0.98 * bound < float(weight.abs().max()) <= bound
    assert float(weight.std()) == pytest.approx(bound / 3**0.5, rel=0.02)
    model = build("googlenet", shape=(3, 32, 32))  # narrow
    assert float(model.trunk.conv3.conv.weight.detach().std()) == pytest.approx(0.01, rel=0.02)


def test_frozen_batch_norm_stays_frozen_after_train():
    model = build("resnet18", dim=3, shape=(3, 32, 32), freeze_bn=True).train()
    layers = [m for m in model.modules() if isinstance(m, FrozenBatchNorm)]
    assert len(layers) == 20
    before = [layer.running_mean.clone() for layer in layers]
    images = torch.rand(4, 3, 32, 32, generator=generator())
    model.trunk.train()
    model(images).sum().backward()
    assert all(torch.equal(a, b.running_mean) for a, b in zip(before, layers, strict=True))
    assert not any(layer.training or layer.weight.requires_grad for layer in layers)
    assert model.trunk.conv1.weight.grad is not None
    assert torch.equal(model(images), model.eval()(images))


def test_freezing_keeps_names_values_and_kind_of_input():
    net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Flatten(), nn.BatchNorm1d(2))
    net[1].running_mean.fill_(3.0)
    before = {key: tensor.clone() for key, tensor in net.state_dict().items()}
    wanted = net.eval()(torch.ones(2, 1, 1, 1))
    frozen = freeze_batch_norm(net)
    assert list(frozen.state_dict()) == list(before)
    assert all(torch.equal(frozen.state_dict()[key], before[key]) for key in before)
    assert torch.equal(frozen.train()(torch.ones(2, 1, 1, 1)), wanted)
    assert isinstance(freeze_batch_norm(nn.BatchNorm2d(2)), FrozenBatchNorm)


class NormThenReLU(nn.BatchNorm2d):
    """A layer of another library that does more than normalise."""

    def forward(self, x):
        return torch.relu(super().forward(x))


def test_freezing_keeps_what_other_kinds_of_batch_norm_do_besides():
    net = nn.Sequential(NormThenReLU(1), nn.BatchNorm2d(1, track_running_stats=False))
    frozen = freeze_batch_norm(net).train()
    values = frozen[0](torch.tensor([[[[-1.0, 2.0]]]])).flatten().tolist()
    assert values == pytest.approx([0, 2], 1e-4)
    assert isinstance(frozen[0], NormThenReLU)
    assert not any(layer.training for layer in frozen)
    assert not any(p.requires_grad for p in frozen.parameters())


def test_frozen_models_can_be_frozen_again_copied_and_pickled():
    model = freeze_batch_norm(build("mnist-cnn", dim=2, shape=(1, 8, 8), freeze_bn=True))
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert isinstance(again.train().trunk.bn1, FrozenBatchNorm)
        assert not again.trunk.bn1.training


def test_a_perceptron_has_the_hidden_layers_asked_for():
    model = build("mlp", dim=2, shape=(3, 4, 4), hidden=(10, 7))
    shapes = [tuple(p.shape) for p in model.parameters() if p.ndim == 2]
    assert shapes == [(10, 48), (7, 10), (2, 7)]
    linear = build("linear", dim=2, shape=(9,))
    assert [tuple(p.shape) for p in linear.parameters()] == [(2, 9), (2,)]


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("name", {"name": "resnet"}),
        ("dim", {"dim": 0}),
        ("init", {"shape": (3,), "init": "zero"}),
        ("shape", {"shape": (3, 4)}),
        ("shape", {"name": "resnet18", "shape": (64,)}),
        ("hidden", {"name": "mlp", "shape": (4,), "hidden": (0,)}),
        ("weights", {"name": "conv2", "weights": "pretrained"}),
        ("name", {"name": "no_such_module:net"}),
        ("name", {"name": "torch.nn:NoSuchNet"}),
        ("name", {"name": "builtins:str"}),
        ("freeze", {"name": "resnet18", "shape": (3, 32, 32), "freeze": "layer9"}),
        ("freeze", {"name": "conv2", "freeze": "conv1"}),
        ("freeze", {"name": "conv2", "dim": 1024, "head": "none", "freeze": True}),
        ("dim", {"name": "conv2", "dim": 64, "head": "none"}),
        ("head", {"head": "mlp"}),
    ],
)
def test_impossible_requests_are_refused_by_name(field, arguments):
    with refused(field):
        build(**({"name": "linear"} | arguments))


def test_a_network_of_the_users_own_is_seeded_normalised_and_frozen_like_ours(monkeypatch):
    made = types.ModuleType("my_networks")
    made.tiny = lambda dim: nn.Sequential(nn.Flatten(), nn.Linear(4, dim), nn.BatchNorm1d(dim))
    monkeypatch.setitem(sys.modules, "my_networks", made)
    model = build("my_networks:tiny", dim=3, normalize=True, freeze_bn=True, generator=generator(5))
    again = build("my_networks:tiny", dim=3, generator=generator(5))
    assert torch.equal(model.trunk[1].weight, again.trunk[1].weight)
    z = model.train()(torch.rand(2, 1, 2, 2, generator=generator()))
    assert torch.allclose(z.norm(dim=1), torch.ones(2), atol=1e-6)
    assert isinstance(model.trunk[2], FrozenBatchNorm)


class FakeTimm(types.ModuleType):
    """What we use of timm."""

    def __init__(self):
        super().__init__("timm")
        self.calls = []

    def list_models(self, pattern="*"):
        return ["tiny_net"] if "tiny_net".startswith(pattern.strip("*")) else []

    def create_model(self, name, **options):
        self.calls.append((name, options))
        layers = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(options["in_chans"], 6)
        trunk = nn.Sequential(*layers)
        trunk.num_features = 6
        return trunk


def test_timm_networks_get_our_head_and_a_timm_that_is_missing_is_explained(monkeypatch):
    fake = FakeTimm()
    monkeypatch.setitem(sys.modules, "timm", fake)
    model = build("timm:tiny_net", dim=4, shape=(1, 8, 8), weights="pretrained")
    assert fake.calls == [("tiny_net", {"pretrained": True, "num_classes": 0, "in_chans": 1})]
    assert model(torch.rand(2, 1, 8, 8)).shape == (2, 4)
    again = build("timm:tiny_net", dim=4, shape=(1, 8, 8))
    assert fake.calls[-1][1]["pretrained"] is False
    assert torch.equal(model.trunk[2].weight, again.trunk[2].weight)
    with refused("name"):
        build("timm:tiny_nets", shape=(1, 8, 8))
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingExtraError, match=r"uncollapse\[timm\]"):
        build("timm:resnet18")
    broken = Mock(side_effect=RuntimeError("operator torchvision::nms does not exist"))
    monkeypatch.setattr(module, "import_extra", broken)
    with pytest.raises(ImportError, match="timm does not work"):
        build("timm:resnet18")


# Frozen networks: what trains, what does not, and samples that went through already.

SHAPE = (3, 32, 32)


def images(count=4):
    return torch.rand(count, *SHAPE, generator=generator(1))


@pytest.mark.parametrize("up_to", [True, "layer2", "layer3.0", "layer4"])
def test_frozen_or_not_the_embedding_is_the_same_and_features_stand_for_samples(up_to):
    plain = build("resnet18", 8, shape=SHAPE).eval()
    frozen = build("resnet18", 8, shape=SHAPE, freeze=up_to).eval()
    z = plain(images())
    features = frozen.front(images())
    assert tuple(features.shape[1:]) == frozen.front.shape
    for samples in (images(), features):
        assert torch.allclose(frozen(samples), z, atol=1e-6)
    bare = build("resnet18", 512, shape=SHAPE, head="none").eval()
    assert torch.equal(bare(images()), bare.trunk(images()).mean((2, 3)))


def test_only_what_comes_after_the_stage_trains_and_batch_norm_below_it_stays():
    model = build("resnet18", 8, shape=SHAPE, freeze="layer3").train()
    assert not any(module.training for module in model.front.modules())
    before = {k: v.clone() for k, v in model.front.state_dict().items()}
    model(images()).sum().backward()
    assert all(p.grad is None for p in model.front.parameters())
    assert all(p.grad is not None for p in model.trunk.parameters())
    assert all(torch.equal(v, before[k]) for k, v in model.front.state_dict().items())


def test_a_head_from_principal_axes_keeps_distances_as_far_as_its_dimension_can():
    x = torch.randn(200, 6, generator=generator(), dtype=torch.float64)
    x = (x * torch.tensor([5.0, 3.0, 1.0, 0.0, 0.0, 0.0])).float() + 10.0
    head = Head(6, 3)
    head.start_from_axes(x)
    z = head(x)
    assert torch.allclose(torch.pdist(z), torch.pdist(x), rtol=1e-4)
    assert torch.allclose(z.mean(0), torch.zeros(3), atol=1e-4)
    assert (z.var(0).diff() < 0).all()
    with refused("dim"):
        Head(6, 5).start_from_axes(torch.randn(5, 6))
    with refused("freeze"):  # a network that changes nothing
        freeze(Embedder(nn.Identity(), Head(5, 2), 2), True, (5,))


def test_a_stage_may_be_frozen_up_to_one_of_its_blocks():
    model = build("resnet18", 8, shape=SHAPE, freeze="layer4.0").train()
    assert [name for name, _ in model.trunk.named_children()] == ["layer4"]
    assert len(model.trunk.layer4) == 1
    assert all(p.requires_grad for p in model.trunk.parameters())
    with refused("freeze"):  # all of it: the stage
        build("resnet18", 8, shape=SHAPE, freeze="layer4.1")


def test_embeddings_keep_their_digits_under_autocast():
    model = build("resnet50", 8, shape=SHAPE).eval()
    with torch.no_grad():
        exact = model(images())
        with torch.autocast("cpu", torch.bfloat16):
            z = model(images())
    assert z.dtype == torch.float32
    assert float((z - exact).norm() / exact.norm()) < 0.05
