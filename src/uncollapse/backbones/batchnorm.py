"""Batch normalisation with frozen statistics, as EPS's framework trains pretrained backbones."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

__all__ = ["FrozenBatchNorm", "freeze_batch_norm"]

_PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class _Frozen:
    """Mixed into a layer, keeps it in evaluation mode."""

    def train(self, mode: bool = True) -> Any:
        """Stay in evaluation mode, whatever is asked."""
        return super().train(False)  # type: ignore[misc]


class FrozenBatchNorm(_Frozen, _BatchNorm):
    """Batch normalisation that keeps its statistics, scale and shift, also after `.train()`."""

    def _check_input_dim(self, input: Tensor) -> None:
        """Any number of dimensions: it stands for 1-, 2- and 3-dimensional layers."""


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
            kind = FrozenBatchNorm if type(layer) in _PLAIN else _frozen_kind(type(layer))
            layer.__class__ = kind
            layer.requires_grad_(False).train()
    return module


def _frozen_kind(kind: type[_BatchNorm]) -> Any:
    return type(f"Frozen{kind.__name__}", (_Frozen, kind), {})
