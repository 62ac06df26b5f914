import pickle

import pytest
import torch
from safetensors.torch import save_file

from support.errors import refused
from uncollapse.backbones import WeightsError, build, load_weights, preprocessing, read_weights
from uncollapse.backbones.networks import BNInception, GoogLeNet, ResNet


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
