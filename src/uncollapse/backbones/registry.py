"""Backbones by name: `build("resnet18", dim=128)`."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from uncollapse._base.check import InputError, check_choice, check_int
from uncollapse._base.extras import MissingExtraError, import_extra
from uncollapse.backbones.head import Embedder, Head, freeze_batch_norm
from uncollapse.backbones.head import freeze as freeze_stages
from uncollapse.backbones.mobile import MobileNet, efficientnet_lite0, load_mobile, mobilenet_v2
from uncollapse.backbones.networks import (
    MLP,
    BNInception,
    Conv2,
    GoogLeNet,
    MnistCNN,
    resnet18,
    resnet50,
)
from uncollapse.backbones.sentences import PREFIX, load_sentences
from uncollapse.backbones.weights import load_weights

__all__ = ["BACKBONES", "HEADS", "INITS", "build", "initialise"]


# How weights start: HNM trains torchvision's random networks, EPS adds a fresh linear layer.

INITS = ("hnm", "eps")


@torch.no_grad()
def initialise(module: nn.Module, init: str, generator: torch.Generator) -> nn.Module:
    """Draw every weight of `module` from `generator`; the global random state is not touched.

    `"hnm"` (HNM §4: "randomly initialized" torchvision networks): convolutions from N(0, 2/fan-out)
    and biases as in `"eps"`; in GoogLeNet every weight from N(0, 0.01²). `"eps"` (EPS appendix C
    names no scheme; its framework keeps PyTorch's): weights and biases uniform within
    ±1/sqrt(fan-in). In both, linear layers are uniform and batch norm starts at scale 1, shift 0.

    >>> layer = initialise(nn.Linear(4, 100), "eps", torch.Generator().manual_seed(0))
    >>> bool(layer.weight.abs().max() <= 0.5), bool(layer.weight.abs().max() > 0.45)
    (True, True)
    """
    check_choice("init", init, INITS)
    narrow = init == "hnm" and isinstance(module, GoogLeNet)
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            fan_in = layer.weight[0].numel()
            if narrow:
                layer.weight.normal_(0.0, 0.01, generator=generator)
            elif init == "hnm" and isinstance(layer, nn.Conv2d):
                fan_out = len(layer.weight) * math.prod(layer.kernel_size)
                layer.weight.normal_(0.0, math.sqrt(2.0 / fan_out), generator=generator)
            else:
                _uniform(layer.weight, fan_in, generator)
            if layer.bias is not None:
                _uniform(layer.bias, fan_in, generator)
        elif isinstance(layer, _BatchNorm):
            layer.reset_parameters()
    return module


def _uniform(tensor: Tensor, fan_in: int, generator: torch.Generator) -> None:
    bound = 1.0 / math.sqrt(max(fan_in, 1))
    tensor.uniform_(-bound, bound, generator=generator)


BACKBONES = (
    "mnist-cnn",
    "conv2",
    "resnet18",
    "resnet50",
    "googlenet",
    "bn-inception",
    "efficientnet-lite0",
    "mobilenet-v2",
    "mlp",
    "linear",
)
HEADS = ("linear", "pca", "none")


def build(
    name: str,
    dim: int = 128,
    *,
    shape: Sequence[int] = (3, 224, 224),
    normalize: bool = False,
    hidden: Sequence[int] = (512,),
    weights: str | Path | None = None,
    adapt_channels: bool = True,
    freeze: bool | str = False,
    freeze_bn: bool = False,
    head: str = "linear",
    init: str = "hnm",
    generator: torch.Generator | None = None,
) -> Embedder:
    """Make the network `name` with a head that gives embeddings of `dim` dimensions.

    `name` is one of `BACKBONES`; or `timm:NAME` (the extra `timm`); or `sentence:NAME` for texts, a
    model of sentence-transformers by folder, package or name (the extra `text`); or
    `module.path:function`, your own function, called with `dim`, that returns a module from samples
    to `[B, dim]`.

    `shape` is that of one sample: `(C, H, W)`, `(features,)`, or `(bytes,)` of texts. `normalize`
    puts embeddings on the unit sphere. `hidden` are the widths of `mlp`. `weights` is an official
    file for the body, or `"pretrained"` for one that a package brings: `efficientnet-lite0` (the
    extra `pretrained`), `mobilenet-v2` and timm's. `freeze` keeps the body as it is, or its stages
    up to and including the one named; `freeze_bn` keeps batch norm fixed, also after `.train()`.
    `head` is a linear layer, or `"none"` where `dim` is the body's own; `"pca"` is linear too, to
    be started with `head.start_from_axes`. `init` is `"hnm"` or `"eps"` (see `initialise`); all
    draws come from `generator`, by default one seeded with 0.

    >>> model = build("resnet18", dim=64, shape=(1, 80, 80), normalize=True)
    >>> tuple(model.eval()(torch.rand(2, 1, 80, 80)).shape)
    (2, 64)
    """
    check_int("dim", dim)
    check_choice("head", head, HEADS)
    sample = tuple(check_int("shape", length) for length in shape)
    if len(sample) not in (1, 3):
        raise InputError("shape", sample, "(channels, height, width) or (features,)")
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    # Layers draw from the global state when they are made; those draws are thrown away below, or
    # seeded from the generator where the network is not ours.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**62, (1,), generator=generator)))
        if name in BACKBONES:
            model = _ours(name, dim, sample, normalize, hidden)
            initialise(model.trunk, init, generator)
        elif name.startswith("timm:"):
            model = _timm(name.removeprefix("timm:"), dim, sample, normalize, weights)
        elif name.startswith(PREFIX):
            trunk = load_sentences(name.removeprefix(PREFIX))
            model = Embedder(trunk, Head(trunk.features, dim, normalize=normalize), dim)
        elif ":" in name:
            model = Embedder(_users(name, dim), Head(dim, None, normalize=normalize), dim)
        else:
            allowed = ", ".join(BACKBONES) + ", timm:NAME, sentence:NAME or module.path:function"
            raise InputError("name", repr(name), f"one of {allowed}")
    if head == "none":
        _drop_linear(model)
    initialise(model.head, init, generator)
    _load(model, name, weights, adapt_channels)
    if freeze_bn:
        freeze_batch_norm(model)
    return freeze_stages(model, freeze, sample)


def _load(model: Embedder, name: str, weights: str | Path | None, adapt_channels: bool) -> None:
    if weights is None or (weights == "pretrained" and name.startswith(("timm:", PREFIX))):
        return
    if isinstance(model.trunk, MobileNet):
        load_mobile(model.trunk, name, weights)
    elif weights == "pretrained":
        raise InputError("weights", "'pretrained'", "a path to a weight file for this backbone")
    else:
        load_weights(model.trunk, weights, adapt_channels=adapt_channels)
        if isinstance(model.trunk, GoogLeNet):
            model.trunk.transform_input = True


def _drop_linear(model: Embedder) -> None:
    linear = model.head.linear
    if isinstance(linear, nn.Linear) and linear.in_features != model.dim:
        allowed = f"{linear.in_features}, what the network gives, with head = 'none'"
        raise InputError("dim", model.dim, allowed)
    model.head.linear = nn.Identity()


def _ours(
    name: str, dim: int, shape: tuple[int, ...], normalize: bool, hidden: Sequence[int]
) -> Embedder:
    if name in ("mlp", "linear"):
        widths = [check_int("hidden", width) for width in hidden] if name == "mlp" else []
        trunk: Any = MLP(math.prod(shape), widths)
    elif len(shape) != 3:
        raise InputError("shape", shape, f"(channels, height, width) for {name!r}")
    elif name == "mnist-cnn":
        trunk = MnistCNN((shape[0], shape[1], shape[2]))
    else:
        networks = {
            "conv2": Conv2,
            "resnet18": resnet18,
            "resnet50": resnet50,
            "googlenet": GoogLeNet,
            "bn-inception": BNInception,
            "efficientnet-lite0": efficientnet_lite0,
            "mobilenet-v2": mobilenet_v2,
        }
        trunk = networks[name](shape[0])
    return Embedder(trunk, Head(trunk.features, dim, normalize=normalize), dim)


def _timm(
    name: str, dim: int, shape: tuple[int, ...], normalize: bool, weights: str | Path | None
) -> Embedder:
    try:
        timm = import_extra("timm", "timm")
    except (MissingExtraError, ModuleNotFoundError):
        raise
    except Exception as error:  # a torchvision built for another torch fails in many ways
        raise ImportError(
            f"timm is installed but cannot be imported ({error}); "
            "it needs a torchvision built for the torch that is installed"
        ) from error
    if name not in timm.list_models():
        near = ", ".join(timm.list_models(f"*{name[:6]}*")[:5])
        raise InputError("name", f"'timm:{name}'", f"a model timm knows, such as {near or 'none'}")
    pretrained = weights == "pretrained"
    trunk = timm.create_model(name, pretrained=pretrained, num_classes=0, in_chans=shape[0])
    return Embedder(trunk, Head(trunk.num_features, dim, normalize=normalize), dim)


def _users(name: str, dim: int) -> nn.Module:
    path, _, function = name.partition(":")
    try:
        factory = getattr(importlib.import_module(path), function)
    except (ImportError, AttributeError) as error:
        raise InputError("name", f"{name!r} ({error})", "module.path:function to import") from error
    network = factory(dim)
    if not isinstance(network, nn.Module):
        given = f"a {type(network).__name__} from {name}({dim})"
        raise InputError("name", given, "a function that returns a torch.nn.Module")
    return network
