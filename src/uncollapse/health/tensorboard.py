"""A run's health as TensorBoard scalars."""

from __future__ import annotations

from typing import Any, Protocol

from uncollapse.health.records import Health

__all__ = ["log_health"]


class Writer(Protocol):
    """What is used of `torch.utils.tensorboard.SummaryWriter` (or tensorboardX's)."""

    def add_scalar(self, tag: str, scalar_value: Any, global_step: Any = None) -> Any:
        """Write one number."""

    def add_text(self, tag: str, text_string: str, global_step: Any = None) -> Any:
        """Write some words."""


def log_health(
    writer: Writer, health: Health, step: int | None = None, *, prefix: str = "collapse"
) -> None:
    """Write every scalar of `health`, and, when it is not healthy, the reasons and the advice.

    `verdict` is written as its place in `VERDICTS`: 0 is healthy.

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
    step = health.step if step is None else step
    for name, value in health.scalars().items():
        writer.add_scalar(f"{prefix}/{name}", value, step)
    if health.verdict != "healthy":
        writer.add_text(f"{prefix}/verdict", str(health), step)
