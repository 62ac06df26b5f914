"""Freeze a network, or its first stages: what does not train is computed once per sample."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from uncollapse._base.check import InputError
from uncollapse.backbones.head import Embedder, Front

__all__ = ["freeze", "stages_of"]


def freeze(model: Embedder, up_to: bool | str, shape: Sequence[int]) -> Embedder:
    """Move the trunk, or its stages up to and including `up_to`, into a `Front`, in place.

    `shape` is that of one sample. With True the features are pooled, and only the head trains.
    Raises `InputError` for a stage the network does not have, and where nothing would train.

    >>> from uncollapse.backbones.registry import build
    >>> model = freeze(build("resnet18", dim=8, shape=(3, 64, 64)), "layer3", (3, 64, 64))
    >>> model.front.shape, [name for name, _ in model.trunk.named_children()]
    ((256, 4, 4), ['layer4'])
    """
    if up_to is False:
        return model
    stages = stages_of(model.trunk)
    names = list(stages)
    rest: nn.Module = nn.Identity()
    if up_to is True or [up_to] == names[-1:]:
        front, features = model.trunk, (_width(model),)
    elif up_to in stages:
        cut = names.index(up_to) + 1
        front = nn.Sequential(*(stages[name] for name in names[:cut]))
        rest = nn.Sequential()
        for name in names[cut:]:
            rest.add_module(name, stages[name])
        with torch.no_grad():
            features = tuple(front.eval()(torch.zeros(1, *shape)).shape[1:])
    else:
        allowed = ["true", "false", *map(repr, stages)]
        raise InputError("freeze", repr(up_to), f"one of {', '.join(allowed)} for this backbone")
    if features == tuple(shape) and not getattr(model.trunk, "reads_texts", False):
        raise InputError("freeze", up_to, "a network that does not leave samples as they are")
    model.front, model.trunk = Front(front, features), rest
    if not any(p.requires_grad for p in model.parameters()):
        raise InputError("freeze", up_to, "a network with a head to train: all of it is frozen")
    return model


def stages_of(trunk: nn.Module) -> dict[str, nn.Module]:
    """The parts of a network in order, by name; none where it is not known to be a sequence."""
    found = getattr(trunk, "stages", None)
    return dict(found()) if callable(found) else {}


def _width(model: Embedder) -> int:
    linear = model.head.linear
    return linear.in_features if isinstance(linear, nn.Linear) else model.dim
