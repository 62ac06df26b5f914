"""From features to embeddings: global average pooling and a linear layer, EPS appendix C."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from uncollapse._base.check import InputError, check_bool


class Head(nn.Module):
    """Global average pooling of feature maps, a linear layer to `dim`, optionally the L2 norm.

    Vectors are not pooled. `dim=None` leaves out the linear layer.

    >>> head = Head(features=8, dim=2, normalize=True)
    >>> z = head(torch.randn(3, 8, 5, 5, generator=torch.Generator().manual_seed(0)))
    >>> tuple(z.shape), bool(torch.allclose(z.norm(dim=1), torch.ones(3)))
    ((3, 2), True)
    """

    def __init__(self, features: int, dim: int | None, *, normalize: bool = False) -> None:
        super().__init__()
        self.linear = nn.Identity() if dim is None else nn.Linear(features, dim)
        self.features, self.normalize = features, check_bool("normalize", normalize)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, features]` or `[B, features, h, w]` to `[B, dim]`."""
        if torch.is_autocast_enabled(x.device.type):
            # Near a collapse the distances of embeddings are below what bfloat16 tells apart.
            with torch.autocast(x.device.type, enabled=False):
                return self(x.float())  # type: ignore[no-any-return]
        z: Tensor = self.linear(pooled(x))
        return nn.functional.normalize(z, dim=1) if self.normalize else z

    @torch.no_grad()
    def start_from_axes(self, features: Tensor) -> None:
        """Start the linear layer as the projection on the principal axes of these features.

        Features `[n, features]` are centred first, so this is the best linear embedding of its
        dimension. Raises `InputError` if there are fewer axes than dimensions.

        >>> head = Head(3, 1)
        >>> head.start_from_axes(torch.tensor([[1.0, 5.0, 0.0], [3.0, 5.0, 0.0]]))
        >>> head(torch.tensor([[1.0, 5.0, 0.0], [3.0, 5.0, 0.0]])).flatten().abs().tolist()
        [1.0, 1.0]
        """
        if not isinstance(self.linear, nn.Linear):
            raise InputError("head", "'pca' without a linear layer", "a head with one")
        x = features.double()
        dim, most = self.linear.out_features, min(len(x) - 1, x.shape[1])
        if dim > most:
            raise InputError("dim", dim, f"at most {most}, the principal axes of these features")
        mean = x.mean(dim=0)
        axes = torch.linalg.eigh((x - mean).T @ (x - mean))[1].flip(1)[:, :dim].T
        self.linear.weight.copy_(axes)
        self.linear.bias.copy_(-axes @ mean)


class Front(nn.Module):
    """The frozen part of a network: always in evaluation mode, no gradients.

    `shape` is the shape of its features, by which an `Embedder` recognises precomputed ones.
    """

    def __init__(self, stages: nn.Module, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.stages, self.shape = stages.requires_grad_(False), shape
        self.train()

    def train(self, mode: bool = True) -> Front:
        """Stay in evaluation mode, whatever the argument."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, samples: Tensor) -> Tensor:
        """`[B, ...]` samples to `[B, *shape]` features."""
        x = self.stages(samples)
        out: Tensor = pooled(x) if len(self.shape) == 1 else x
        return out


class Embedder(nn.Module):
    """A backbone and its head; `dim` is the embedding dimension.

    With a `front`, samples go through it first, or are features that it computed earlier.

    >>> model = Embedder(nn.Flatten(), Head(4, 2), dim=2)
    >>> tuple(model(torch.zeros(3, 1, 2, 2)).shape)
    (3, 2)
    """

    def __init__(self, trunk: nn.Module, head: Head, dim: int) -> None:
        super().__init__()
        self.front: Front | None = None
        self.trunk = trunk
        self.head = head
        self.dim = dim

    def forward(self, samples: Tensor) -> Tensor:
        """`[B, ...]` samples, or features of the front, to `[B, dim]` embeddings."""
        z: Tensor = self.head(self.features(samples))
        return z

    def features(self, samples: Tensor) -> Tensor:
        """The input of the head."""
        front = self.front
        if front is not None:
            made = samples.is_floating_point() and tuple(samples.shape[1:]) == front.shape
            samples = samples.float() if made else front(samples)
        x: Tensor = self.trunk(samples)
        return x


def pooled(x: Tensor) -> Tensor:
    """Feature maps as their means; vectors as they are."""
    return x.mean(dim=(2, 3)) if x.ndim == 4 else x


# Batch normalisation with frozen statistics, as EPS's framework trains pretrained backbones.

_PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class _Frozen:
    """Mixin that keeps a layer in evaluation mode."""

    def train(self, mode: bool = True) -> Any:
        """Stay in evaluation mode, whatever the argument."""
        return super().train(False)  # type: ignore[misc]


class FrozenBatchNorm(_Frozen, _BatchNorm):
    """Batch normalisation that keeps its statistics, scale and shift, also after `.train()`."""

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept any number of dimensions: it replaces 1-, 2- and 3-dimensional layers."""


def freeze_batch_norm(module: nn.Module) -> nn.Module:
    """Freeze every batch-norm layer of `module` in place; names and values stay as they are.

    >>> net = freeze_batch_norm(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))).train()
    >>> net[1].training, net[1].weight.requires_grad, sorted(net.state_dict())[:2]
    (False, False, ['0.bias', '0.weight'])
    """
    for layer in module.modules():
        if isinstance(layer, _BatchNorm) and not isinstance(layer, _Frozen):
            # Changing the class keeps tensors, hooks and, in the kinds of other libraries that end
            # in an activation, the whole forward pass.
            kind: Any = type(layer)
            frozen = type(f"Frozen{kind.__name__}", (_Frozen, kind), {})
            layer.__class__ = FrozenBatchNorm if kind in _PLAIN else frozen
            layer.requires_grad_(False).train()
    return module


# Freeze a network, or its first stages: what does not train is computed once per sample.


def freeze(model: Embedder, up_to: bool | str, shape: Sequence[int]) -> Embedder:
    """Move the trunk, or its stages up to and including `up_to`, into a `Front`, in place.

    `up_to` may be a block of a stage, such as `layer4.0`. `shape` is that of one sample. With True
    the features are pooled, and only the head trains. Raises `InputError` for an unknown stage, and
    if nothing would be left to train.

    >>> from uncollapse.backbones.registry import build
    >>> model = freeze(build("resnet18", dim=8, shape=(3, 64, 64)), "layer3", (3, 64, 64))
    >>> model.front.shape, [name for name, _ in model.trunk.named_children()]
    ((256, 4, 4), ['layer4'])
    """
    if up_to is False:
        return model
    given = getattr(model.trunk, "stages", None)  # a network of timm's may have a module there
    stages = dict(given()) if callable(given) and not isinstance(given, nn.Module) else {}
    names = list(stages)
    after: nn.Module = nn.Identity()
    if up_to is True or [up_to] == names[-1:]:
        front, features = model.trunk, (model.head.features,)
    elif up_to in stages or up_to in _blocks(stages):
        name, _, block = up_to.partition(".")
        cut = names.index(name)
        before, last = [stages[name] for name in names[:cut]], OrderedDict[str, nn.Module]()
        if block:
            before.append(stages[name][: int(block) + 1])
            last[name] = stages[name][int(block) + 1 :]
        else:
            before.append(stages[name])
        front = nn.Sequential(*before)
        after = nn.Sequential(last | {name: stages[name] for name in names[cut + 1 :]})
        with torch.no_grad():
            features = tuple(front.eval()(torch.zeros(1, *shape)).shape[1:])
    else:
        allowed = ["true", "false", *map(repr, [*stages, *_blocks(stages)])]
        raise InputError("freeze", repr(up_to), f"one of {', '.join(allowed)} for this backbone")
    if features == tuple(shape) and not getattr(model.trunk, "reads_texts", False):
        raise InputError("freeze", up_to, "a network that does not leave samples as they are")
    model.front, model.trunk = Front(front, features), after
    if not any(p.requires_grad for p in model.parameters()):
        raise InputError("freeze", up_to, "a network with a head to train: all of it is frozen")
    return model


def _blocks(stages: Mapping[str, nn.Module]) -> list[str]:
    """Names of the blocks, but the last, of stages that are a plain sequence of them."""
    return [
        f"{name}.{number}"
        for name, stage in stages.items()
        if type(stage) is nn.Sequential and all(list(block.children()) for block in stage)
        for number in range(len(stage) - 1)
        if str(number) in stage._modules
    ]
