"""The network as it is judged in the middle of training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

__all__ = ["as_judged"]


@contextmanager
def as_judged(model: nn.Module) -> Iterator[None]:
    """Dropout off, batch norm by the batch as in training: its averages lag behind a trial."""
    modes = {module: module.training for module in model.modules()}
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    model.eval()
    for module, training in modes.items():
        if isinstance(module, _BatchNorm) and training:
            module.train()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training
        for name, value in model.named_buffers():
            value.copy_(buffers[name])
