"""Copies of a training state, to go back to: network, optimiser, loss and monitor."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from uncollapse.health.monitor import CollapseMonitor
from uncollapse.losses.memory import memories

__all__ = ["Snapshots", "State", "copy_state", "put_back"]


class State(NamedTuple):
    """The network's weights and buffers, what the loss learns, and the optimiser's state.

    `memories` has what each memory in the loss remembers.
    """

    model: dict[str, Tensor]
    loss: list[Tensor]
    optimiser: dict[str, Any]
    memories: Sequence[dict[str, Tensor]] = ()


def copy_state(model: nn.Module, optimiser: torch.optim.Optimizer, loss_fn: object) -> State:
    """A copy of all three as they are now."""
    return State(
        {k: v.detach().clone() for k, v in model.state_dict().items()},
        [tensor.detach().clone() for tensor in _learned(loss_fn)],
        copy.deepcopy(optimiser.state_dict()),
        [memory.kept() for memory in memories(loss_fn)],
    )


def put_back(
    state: State, model: nn.Module, optimiser: torch.optim.Optimizer, loss_fn: object
) -> None:
    """Make all three what they were; the copy stays as it is."""
    model.load_state_dict(state.model)
    with torch.no_grad():
        for tensor, then in zip(_learned(loss_fn), state.loss, strict=True):
            tensor.copy_(then)
    for memory, kept in zip(memories(loss_fn), state.memories, strict=True):
        memory.put_back(kept)
    optimiser.load_state_dict(copy.deepcopy(state.optimiser))


class Snapshots:
    """The newest copy of a state, and the one before it until the newest is known to be sound.

    A copy is made after an optimiser's step, of a state whose embeddings nobody has seen yet: that
    step may be the one that diverged. `confirm` says that the embeddings seen since were finite.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> kept = Snapshots(model, torch.optim.SGD(model.parameters(), lr=0.1), None)
    >>> for value in (1.0, float("inf")):
    ...     _ = nn.init.constant_(model.weight, value)
    ...     kept.take(CollapseMonitor(), step=0, lr_factor=1.0)
    >>> _ = kept.restore(CollapseMonitor(), confirmed=True)
    >>> float(model.weight.detach())
    1.0
    """

    def __init__(self, model: nn.Module, optimiser: torch.optim.Optimizer, loss_fn: object) -> None:
        self.model, self.optimiser, self.loss_fn = model, optimiser, loss_fn
        self.newest: dict[str, Any] | None = None
        self.before: dict[str, Any] | None = None

    def take(
        self, monitor: CollapseMonitor, step: int, lr_factor: float, place: int | None = None
    ) -> None:
        """Copy the state as it is now; `place` is that in the batches, where it is known."""
        self.before = self.newest
        state = copy_state(self.model, self.optimiser, self.loss_fn)
        self.newest = {
            "step": step,
            "lr_factor": lr_factor,
            "place": place,
            **state._asdict(),
            "monitor": copy.deepcopy(monitor.state_dict()),
        }

    @property
    def place(self) -> int | None:
        """The place in the batches of the newest copy; None where it is not known."""
        return None if self.newest is None else self.newest.get("place")

    def confirm(self) -> None:
        """The newest copy will do: forget the one before."""
        self.before = None

    def restore(self, monitor: CollapseMonitor, *, confirmed: bool = False) -> tuple[int, float]:
        """Put everything back as it was; returns the step and the factor on the rates then.

        `confirmed` takes the copy before, where the newest is not known to be sound.
        """
        if confirmed and self.before is not None:
            self.newest, self.before = self.before, None
        kept = self.newest
        if kept is None:
            return 0, 1.0
        memory = kept.get("memories", ())  # earlier: none
        state = State(kept["model"], kept["loss"], kept["optimiser"], memory)
        put_back(state, self.model, self.optimiser, self.loss_fn)
        monitor.load_state_dict(copy.deepcopy(kept["monitor"]))
        return kept["step"], kept["lr_factor"]

    def state_dict(self) -> dict[str, Any]:
        """Both copies."""
        return {"newest": self.newest, "before": self.before}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the copies of `state`."""
        self.newest, self.before = state["newest"], state["before"]


def _learned(loss_fn: object) -> list[Tensor]:
    """What the loss learns (β, proxies); its miner's random state goes on."""
    return list(loss_fn.parameters()) if isinstance(loss_fn, nn.Module) else []
