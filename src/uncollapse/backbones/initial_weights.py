"""How weights start: HNM trains torchvision's random networks, EPS adds a fresh linear layer."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from uncollapse._base.check import check_choice
from uncollapse.backbones.googlenet import GoogLeNet

__all__ = ["INITS", "initialise"]

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
