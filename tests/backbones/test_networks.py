import math
from functools import partial
from pathlib import Path

import pytest
import torch

from support.errors import refused
from uncollapse._base.check import InputError
from uncollapse.backbones import BACKBONES, build
from uncollapse.backbones.networks import BNInception, Conv2, GoogLeNet, MnistCNN, ResNet

NETWORKS = {
    "resnet18": partial(ResNet, "resnet18"),
    "resnet50": partial(ResNet, "resnet50"),
    "googlenet": GoogLeNet,
    "bn-inception": BNInception,
}


def official():
    """Names and shapes by network, from the stored list."""
    networks = {}
    for line in (Path(__file__).parent / "official_names.txt").read_text().splitlines():
        if line.startswith("["):
            names = networks.setdefault(line.strip("[]"), {})
        elif not line.startswith("#"):
            name, _, shape = line.partition(" ")
            names[name] = tuple(int(length) for length in shape.split("x") if length)
    return networks


@pytest.mark.parametrize("name", NETWORKS)
def test_names_and_shapes_are_those_of_the_official_weight_files(name):
    ours = {key: tuple(t.shape) for key, t in NETWORKS[name]().state_dict().items()}
    assert ours == official()[name]


@pytest.mark.parametrize(
    ("name", "parameters"),
    # With a classifier of 1000 classes, as published.
    [("resnet18", 11_689_512), ("resnet50", 25_557_032), ("googlenet", 6_624_904)]
    + [("bn-inception", 11_295_240)],
)
def test_the_number_of_parameters_is_the_published_one(name, parameters):
    network = NETWORKS[name]()
    classifier = (network.features + 1) * 1000
    assert sum(p.numel() for p in network.parameters()) + classifier == parameters


def fill(network):
    """Weights that depend on names and places only."""
    state = network.state_dict()
    for place, name in enumerate(sorted(state)):
        tensor = state[name]
        wave = torch.sin(torch.arange(tensor.numel(), dtype=torch.float64) * 0.37 + place)
        if tensor.ndim > 1:
            wave = wave * 2 / math.sqrt(tensor[0].numel())
        elif name.endswith(("running_var", "weight")):
            wave = 1 + 0.5 * wave
        if tensor.is_floating_point():
            tensor.copy_(wave.view(tensor.shape))


@pytest.mark.parametrize(
    ("name", "shape", "mean", "deviation"),
    [
        # What torchvision 0.29 gives with the same weights, in float64.
        ("resnet18", (512, 3, 3), 48.79076688229589, 62.20901346772932),
        ("resnet50", (2048, 3, 3), 220046.5664517755, 294432.5897843581),
        ("googlenet", (1024, 2, 3), 9.342291479362867, 18.584766831191786),
    ],
)
@torch.no_grad()
def test_features_are_those_of_torchvision_with_the_same_weights(name, shape, mean, deviation):
    network = NETWORKS[name]().eval()
    fill(network)
    images = torch.sin(torch.arange(3 * 70 * 90) * 0.11).view(1, 3, 70, 90).double()
    features = network.double()(images)
    assert tuple(features.shape) == (1, *shape)
    assert float(features.mean()) == pytest.approx(mean, rel=1e-6)
    assert float(features.std()) == pytest.approx(deviation, rel=1e-6)


@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 64, 32), (3, 33, 47)])
@torch.no_grad()
def test_every_backbone_takes_any_size_and_one_or_three_channels(name, shape):
    model = build(name, dim=5, shape=shape).train()
    z = model(torch.rand(3, *shape, generator=torch.Generator().manual_seed(0)))
    assert z.shape == (3, 5)
    assert torch.isfinite(z).all()
    assert float((z[0] - z[1]).abs().max()) > 0


@pytest.mark.parametrize("name", ["resnet18", "conv2", "googlenet", "bn-inception"])
@torch.no_grad()
def test_a_convolutional_backbone_takes_other_sizes_than_it_was_built_for(name):
    model = build(name, dim=4, shape=(3, 64, 64)).eval()
    for size in ((40, 40), (96, 48)):
        assert model(torch.rand(1, 3, *size)).shape == (1, 4)


def test_the_mnist_network_is_that_of_eps_appendix_c():
    network = MnistCNN()
    shapes = {name: tuple(p.shape) for name, p in network.named_parameters() if "weight" in name}
    assert shapes == {
        "conv1.weight": (32, 1, 3, 3),
        "bn1.weight": (32,),
        "conv2.weight": (64, 32, 3, 3),
        "bn2.weight": (64,),
        "dense.weight": (128, 64 * 12 * 12),
    }
    # ReLU before batch norm: what comes out of the second is shifted, not cut at zero.
    seen = []
    for layer in (network.bn1, network.bn2):
        layer.register_forward_hook(lambda layer, given, made: seen.append((given[0], made)))
    network(torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0)))
    assert len(seen) == 2
    for given, made in seen:
        assert float(given.detach().min()) == 0.0
        assert float(made.detach().min()) < 0.0


def test_the_mnist_network_refuses_sizes_it_was_not_built_for():
    with refused("images"):
        MnistCNN()(torch.zeros(1, 1, 32, 32))
    with pytest.raises(InputError, match="at least 6 x 6"):
        MnistCNN((1, 5, 28))


def test_the_two_layer_network_has_two_convolutions_and_no_batch_norm():
    names = [name for name, _ in Conv2().named_parameters()]
    assert names == ["conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias"]


@pytest.mark.parametrize("name", BACKBONES)
def test_every_backbone_learns(name):
    generator = torch.Generator().manual_seed(1)
    model = build(name, dim=3, shape=(1, 32, 32), generator=generator).train()
    z = model(torch.rand(4, 1, 32, 32, generator=generator))
    z.square().sum().backward()
    missing = [key for key, p in model.named_parameters() if p.grad is None]
    assert missing == []
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@torch.no_grad()
def test_bn_inception_halves_even_sizes_as_the_original_does():
    network = BNInception().eval()
    shapes = []
    for name in ("inception_3c_3x3", "inception_4e_3x3", "inception_5b_3x3"):
        layer = network.get_submodule(name)
        layer.register_forward_hook(lambda layer, given, made: shapes.append(made.shape[-1]))
    assert network(torch.zeros(1, 3, 224, 224)).shape == (1, 1024, 7, 7)
    assert shapes == [14, 7, 7]
