"""Races in somebody's own loop: its network, optimiser and loss, on its last batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from uncollapse._base.arrays import Array, class_ids
from uncollapse.health.judging import as_judged
from uncollapse.health.race import Course
from uncollapse.health.snapshots import State, copy_state, put_back
from uncollapse.health.tape import Take, Tape

__all__ = ["LoopTrial"]

_FEWEST = 4  # batches for a race: at least one of them is held out
_FEWEST_ROWS = 48  # held-out rows that say something


class LoopTrial:
    """Races in somebody's own loop: the network, optimiser and loss it has, on taped batches.

    `max_norm`: the loop clips the norm of its gradients to this.
    """

    def __init__(
        self, model: nn.Module, optimiser: Any, loss_fn: Any, max_norm: float | None = None
    ) -> None:
        self.model, self.optimiser, self.loss_fn = model, optimiser, loss_fn
        self.max_norm = max_norm
        self.tape = Tape(model)

    def place(self) -> None:
        """Not known: the loop's batches are its own."""

    def go_back(self, place: int) -> None:
        """Nothing: the loop goes on with its batches."""

    def course(self, steps: int, rows: int) -> Course | None:
        """The newest batches held out, the others to train on; None with too few of them."""
        takes = [take for take in self.tape.takes if take.unchanged]
        if len(takes) < _FEWEST or _several_processes():
            return None
        count = min(-(-rows // len(takes[-1].labels)), len(takes) // 3) or 1
        batches, held = takes[:-count][-steps:], takes[-count:]
        keep = _new_rows(held, batches)
        labels = np.concatenate([take.labels for take in held])
        ids, _ = class_ids(labels[keep], None)
        if (np.bincount(ids)[ids] > 1).sum() < _FEWEST_ROWS:  # a small set is seen whole
            keep = _new_rows(held, [])
        return Course(batches, (held, torch.from_numpy(keep)), labels[keep])

    def keep(self) -> State:
        """Network, optimiser and what the loss learns."""
        return copy_state(self.model, self.optimiser, self.loss_fn)

    def put_back(self, state: State) -> None:
        """Make a copy the state again."""
        put_back(state, self.model, self.optimiser, self.loss_fn)

    def train(self, batch: Take) -> None:
        """One step of the optimiser on a taped batch, as the loop would have made it."""
        z = self._embedded(batch)
        if not bool(torch.isfinite(z).all()):
            return
        loss = self.loss_fn(z, batch.given)
        self.optimiser.zero_grad()
        loss.backward()
        if self.max_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)
        self.optimiser.step()

    @torch.no_grad()
    def embed(self, held: Any) -> Tensor:
        """Held-out rows, by the statistics of their own batches where there is batch norm."""
        takes, keep = held
        with as_judged(self.model):
            return torch.cat([self._embedded(take).cpu() for take in takes])[keep]

    def _embedded(self, take: Take) -> Tensor:
        z: Tensor = self.model(*take.args, **take.kwargs)
        return functional.normalize(z, dim=1) if take.unit else z


def _new_rows(held: list[Take], batches: list[Take]) -> Array:
    """Held-out rows that are in none of the batches, and each of them once."""
    seen = {key for take in batches for key in take.row_keys()}
    kept = []
    for number, key in enumerate(key for take in held for key in take.row_keys()):
        if key not in seen:
            kept.append(number)
            seen.add(key)
    return np.array(kept, np.int64)


def _several_processes() -> bool:
    """Whether other processes train the same network: each would choose for itself."""
    there = torch.distributed.is_available() and torch.distributed.is_initialized()
    return there and torch.distributed.get_world_size() > 1
