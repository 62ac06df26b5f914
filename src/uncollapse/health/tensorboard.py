"""A run's health as TensorBoard scalars, of a writer in hand; other loggers: `health.loggers`."""

from __future__ import annotations

from typing import Any

from uncollapse.health import loggers
from uncollapse.health.records import Health

__all__ = ["log_health"]


def log_health(
    writer: Any, health: Health, step: int | None = None, *, prefix: str = "collapse"
) -> None:
    """`loggers.log_health` for a `SummaryWriter` of torch's or tensorboardX's.

    >>> import torch
    >>> from uncollapse.health import measure
    >>> class Printer:
    ...     def add_scalar(self, tag, scalar_value, global_step=None):
    ...         if tag == "collapse/diameter":
    ...             print(tag, scalar_value, global_step)
    ...     def add_text(self, tag, text_string, global_step=None):
    ...         print(tag, text_string)
    >>> log_health(Printer(), measure(torch.zeros(3, 2)), step=7)
    collapse/diameter 0.0 7
    collapse/verdict network-collapse
      all embeddings are equal
    """
    loggers.log_health(loggers.TensorBoardLogger(writer=writer), health, step, prefix=prefix)
