"""Batch normalisation by the statistics of the whole batch, which lies on several ranks."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from uncollapse._base.check import InputError
from uncollapse.training.distributed.gathering import gather
from uncollapse.training.distributed.ranks import ALONE, Ranks

__all__ = ["SharedBatchNorm", "synchronise_batch_norm"]

_PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class SharedBatchNorm(_BatchNorm):
    """`nn.BatchNorm` whose mean and variance are those of all ranks' samples, gradients included.

    Works on the CPU and on CUDA alike (`nn.SyncBatchNorm` needs CUDA), with shares of any length.
    One exchange of 2·C + 1 numbers forward, and one backward.
    """

    ranks: Ranks = ALONE

    def _check_input_dim(self, input: Tensor) -> None:
        """Any number of dimensions: it stands for 1-, 2- and 3-dimensional layers."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalise by the batch while training, by the running statistics otherwise."""
        if not self.training or self.ranks.size == 1:
            return super().forward(input)
        x = input.float()
        spread, own = torch.var_mean(x, [d for d in range(x.ndim) if d != 1], correction=0)
        count = own.new_full((1,), x.numel() / len(own))
        sums = torch.cat([own, spread * count, count])[None]
        every = gather(sums, self.ranks, counts=[1] * self.ranks.size)
        means, spreads, counts = torch.split(every, [len(own), len(own), 1], dim=1)
        # Sums of squares about the common mean, from those about each rank's own (Chan et al.).
        total = counts.sum()
        mean = (means * counts).sum(0) / total
        squares = (spreads + counts * (means - mean).square()).sum(0)
        self._remember(mean.detach(), squares.detach() / (total.detach() - 1).clamp(min=1))
        scale = torch.rsqrt(squares / total + self.eps)
        if self.affine:
            scale = scale * self.weight
        shift = (self.bias if self.affine else 0.0) - mean * scale
        shape = [1, -1] + [1] * (x.ndim - 2)
        return torch.addcmul(shift.view(shape), x, scale.view(shape)).to(input.dtype)

    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None:
            return
        factor = self.momentum or 0.0
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                factor = 1.0 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean.to(self.running_mean), factor)
        self.running_var.lerp_(variance.to(self.running_var), factor)


def synchronise_batch_norm(module: nn.Module, ranks: Ranks = ALONE) -> nn.Module:
    """Let every batch-norm layer of `module` see all ranks, in place; names and values stay.

    `module` is in training mode; layers that are not (frozen ones) take no statistics and are left.

    >>> net = synchronise_batch_norm(nn.Sequential(nn.BatchNorm1d(2)), Ranks(0, 2))
    >>> type(net[0]).__name__, sorted(net.state_dict())[:2]
    ('SharedBatchNorm', ['0.bias', '0.num_batches_tracked'])
    """
    if ranks.size == 1:
        return module
    for layer in module.modules():
        if not isinstance(layer, _BatchNorm) or not layer.training:
            continue
        if type(layer) not in _PLAIN:
            kind = type(layer).__name__
            raise InputError(
                "model.backbone",
                f"a network with {kind} layers on several ranks",
                "one whose batch norm is torch's own, or model.freeze_bn = true",
            )
        layer.__class__ = SharedBatchNorm
        cast(SharedBatchNorm, layer).ranks = ranks
    return module
