"""Official weight files into our networks: torch files without arbitrary pickle, or safetensors."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from uncollapse._base.check import InputError

__all__ = ["WeightsError", "load_weights", "preprocessing", "read_weights"]

# The classifiers of the official files, which an embedding does not need.
_CLASSIFIERS = ("fc.", "last_linear.", "aux1.", "aux2.", "classifier.")


class WeightsError(ValueError):
    """A weight file that cannot be read, or does not fit the network."""


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """Return the tensors of a `.safetensors` file or of a torch file, by name.

    A torch file is read with `weights_only=True`: a file that needs arbitrary pickle is refused. A
    wrapping `state_dict` or `model` entry and the prefix `module.` are removed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     torch.save({"state_dict": {"module.w": torch.ones(2)}}, f"{folder}/weights.pth")
    ...     read_weights(f"{folder}/weights.pth")
    {'w': tensor([1., 1.])}
    """
    path = Path(path)
    if not path.is_file():
        raise InputError("weights", f"{str(path)!r}, which is not a file", "a path to a file")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            found: object = load_file(path)
        else:
            found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        reason = str(error).split("\n")[0]
        raise WeightsError(
            f"{path}: refused, it holds more than tensors or is damaged ({reason})"
        ) from None
    except Exception as error:
        raise WeightsError(f"{path}: cannot be read as weights ({error})") from None
    while isinstance(found, Mapping):
        inner = next((found[k] for k in ("state_dict", "model") if k in found), None)
        if not isinstance(inner, Mapping):
            break
        found = inner
    if not isinstance(found, Mapping) or not all(isinstance(t, Tensor) for t in found.values()):
        raise WeightsError(f"{path}: holds no mapping from names to tensors")
    return {str(name).removeprefix("module."): tensor for name, tensor in found.items()}


def load_weights(
    network: nn.Module,
    weights: str | Path | Mapping[str, Tensor],
    *,
    adapt_channels: bool = True,
) -> nn.Module:
    """Copy weights into `network` (a path, or tensors by name), all of them or none.

    Classifier layers of the file are left out. What older files lack (`num_batches_tracked`) or
    shape otherwise (a leading axis of length 1) is put right. With `adapt_channels` a first
    convolution for another number of channels is summed over them and spread evenly, so a grey
    image gives what its RGB copy gave. Anything else that does not fit is an error that lists it.

    >>> net = nn.Conv2d(1, 2, 1, bias=False)
    >>> load_weights(net, {"weight": torch.ones(2, 3, 1, 1)}).weight.flatten().tolist()
    [3.0, 3.0]
    >>> load_weights(net, {"w": torch.ones(2, 1, 1, 1)})
    Traceback (most recent call last):
    uncollapse.backbones.weights.WeightsError: the weights do not fit the network
      missing (1): weight
      unexpected (1): w
    """
    given = weights if isinstance(weights, Mapping) else read_weights(weights)
    wanted = network.state_dict()
    first = next((name for name, tensor in wanted.items() if tensor.ndim == 4), None)
    fitted: dict[str, Tensor] = {}
    misshapen = []
    for name, target in wanted.items():
        if name not in given:
            continue
        tensor = _fit(given[name], target, adapt_channels and name == first)
        if tensor is None:
            sizes = f"{tuple(given[name].shape)} for {tuple(target.shape)}"
            misshapen.append(f"{name} {sizes}")
        else:
            fitted[name] = tensor
    missing = [
        name for name in wanted if name not in given and not name.endswith("num_batches_tracked")
    ]
    unexpected = [
        name for name in given if name not in wanted and not name.startswith(_CLASSIFIERS)
    ]
    if missing or unexpected or misshapen:
        parts = {"missing": missing, "unexpected": unexpected, "of another shape": misshapen}
        raise WeightsError("the weights do not fit the network" + _listed(parts))
    network.load_state_dict(fitted, strict=False)
    return network


def preprocessing(name: str) -> Callable[[Tensor], Tensor]:
    """Return what turns RGB batches in [0, 1] into what the official weights of `name` expect.

    ImageNet's mean and deviation for `resnet18`, `resnet50` and `googlenet`; BGR in [0, 255] minus
    the Caffe mean for `bn-inception`; nothing for the others, and nothing for grey batches.

    >>> preprocessing("bn-inception")(torch.ones(1, 3, 1, 1)).flatten().tolist()
    [151.0, 138.0, 127.0]
    >>> preprocessing("conv2")(torch.ones(1, 3, 1, 1)).flatten().tolist()
    [1.0, 1.0, 1.0]
    """
    if name == "bn-inception":
        return _caffe
    return _imagenet if name in ("resnet18", "resnet50", "googlenet") else _unchanged


def _imagenet(images: Tensor) -> Tensor:
    if images.shape[1] != 3:
        return images
    mean = images.new_tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
    return (images - mean) / images.new_tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


def _caffe(images: Tensor) -> Tensor:
    if images.shape[1] != 3:
        return images
    return images.flip(1) * 255.0 - images.new_tensor([104.0, 117.0, 128.0]).view(3, 1, 1)


def _unchanged(images: Tensor) -> Tensor:
    return images


def _fit(tensor: Tensor, target: Tensor, adapt: bool) -> Tensor | None:
    """The tensor in the target's shape, or None when it cannot be."""
    if tensor.ndim == target.ndim + 1 and len(tensor) == 1:
        tensor = tensor[0]
    if tensor.shape == target.shape:
        return tensor
    if adapt and tensor.ndim == 4:
        channels = target.shape[1]
        tensor = (tensor.sum(dim=1, keepdim=True) / channels).expand(-1, channels, -1, -1)
    return tensor if tensor.shape == target.shape else None


def _listed(parts: Mapping[str, Iterable[str]]) -> str:
    lines = []
    for title, names in parts.items():
        found = list(names)
        if found:
            more = f", and {len(found) - 8} more" if len(found) > 8 else ""
            lines.append(f"\n  {title} ({len(found)}): {', '.join(found[:8])}{more}")
    return "".join(lines)
