"""Batch normalisation with frozen statistics, as EPS's framework trains pretrained backbones."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

__all__ = ["FrozenBatchNorm", "freeze_batch_norm"]


class FrozenBatchNorm(_BatchNorm):
    """Batch normalisation that keeps its statistics, scale and shift, also after `.train()`."""

    def train(self, mode: bool = True) -> FrozenBatchNorm:
        """Stay in evaluation mode."""
        super().train(False)
        return self

    def _check_input_dim(self, input: Tensor) -> None:
        """Any number of dimensions: it stands for 1-, 2- and 3-dimensional layers."""


def freeze_batch_norm(module: nn.Module) -> nn.Module:
    """Replace every batch-norm layer inside `module` by a frozen one with the same names.

    >>> net = freeze_batch_norm(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))).train()
    >>> net[1].training, net[1].weight.requires_grad, sorted(net.state_dict())[:2]
    (False, False, ['0.bias', '0.weight'])
    """
    if isinstance(module, _BatchNorm):
        return _frozen(module)
    for name, child in module.named_children():
        setattr(module, name, freeze_batch_norm(child))
    return module


def _frozen(layer: _BatchNorm) -> FrozenBatchNorm:
    frozen = FrozenBatchNorm(layer.num_features, layer.eps, layer.momentum, layer.affine)
    frozen.load_state_dict(layer.state_dict())
    frozen.to(layer.running_mean.device if layer.running_mean is not None else None)
    frozen.requires_grad_(False)
    return frozen.train()
