"""Races of strategies inside a run: the session's own steps, on batches of its own stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array
from uncollapse.health.judging import as_judged
from uncollapse.health.race import Course
from uncollapse.health.sample import balanced_rows
from uncollapse.health.snapshots import State, copy_state, put_back
from uncollapse.training.evaluation import as_evaluated

if TYPE_CHECKING:
    from uncollapse.training.session import Session

__all__ = ["SessionTrial", "held_out"]

_PER_CLASS = 4  # held-out rows of a class, where there are classes enough
_FEWEST = 48
_BYTES = 2**30  # of batches that are kept; a longer race goes over them again

Batch = tuple[Tensor, Tensor]


class SessionTrial:
    """A session as a race sees it; on several ranks each trains its share and judges the whole."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def place(self) -> int:
        """How many batches the run has taken; none while it is being put together."""
        stream = getattr(self.session, "stream", None)
        return 0 if stream is None else int(stream.place)

    def go_back(self, place: int) -> None:
        """Take those batches again that the restored weights have not seen."""
        self.session.go_to_batch(place)

    def course(self, steps: int, rows: int) -> Course | None:
        """The next batches of the run, and rows of its training data that are not in them."""
        s = self.session
        batches = self._batches(steps)
        seen = torch.cat([batch for _, batch in batches]).numpy()
        rng = np.random.default_rng((s.config.seed, s.step))
        held = held_out(s.class_of.numpy(), seen, rows, rng)
        if len(held) < _FEWEST:
            return None
        chosen = torch.from_numpy(held)
        images, _ = as_evaluated(s.data, s.config)[chosen]
        return Course(batches, images.to(s.device), s.class_of[chosen])

    def _batches(self, steps: int) -> list[Batch]:
        found = [self.session.take_batch()]
        most = max(1, _BYTES // found[0][0].nbytes)
        found += [self.session.take_batch() for _ in range(min(steps, most) - 1)]
        return found

    def keep(self) -> State:
        """Network, optimiser and what the loss learns."""
        return copy_state(self.session.model, self.session.optimiser, self.session.loss)

    def put_back(self, state: State) -> None:
        """Make a copy the state again."""
        put_back(state, self.session.model, self.session.optimiser, self.session.loss)

    def train(self, batch: Batch) -> None:
        """One step, as the run makes it."""
        self.session.train_on(*batch)

    @torch.no_grad()
    def embed(self, held: Tensor) -> Tensor:
        """Held-out rows through the network, in blocks as large as a batch."""
        s = self.session
        with as_judged(s.model):
            parts = [s.forward(part).float().cpu() for part in torch.split(held, s.batch_size)]
        z = torch.cat(parts)
        return torch.nn.functional.normalize(z, dim=1) if s.loss.normalize else z


def held_out(ids: Array, seen: Array, most: int, rng: np.random.Generator) -> Array:
    """At most so many rows to judge by, several of a class, none of those seen if that leaves some.

    >>> rows = held_out(np.arange(40) % 8, np.arange(8), 12, np.random.default_rng(0))
    >>> len(rows), min(rows.tolist()) >= 8, np.unique(rows % 8, return_counts=True)[1].tolist()
    (12, True, [4, 4, 4])
    """
    unseen = np.setdiff1d(np.arange(len(ids)), seen)
    counts = np.bincount(ids[unseen], minlength=int(ids.max()) + 1)
    if counts[counts > 1].sum() < min(_FEWEST, most):  # every sample is in some batch
        unseen = np.arange(len(ids))
        counts = np.bincount(ids)
    several = rng.permutation(np.flatnonzero(counts > 1))[: max(2, most // _PER_CLASS)]
    pool = unseen[np.isin(ids[unseen], several)]
    return pool[balanced_rows(np.unique(ids[pool], return_inverse=True)[1], most, rng)]
