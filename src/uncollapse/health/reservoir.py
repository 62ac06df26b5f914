"""Recent embeddings of a training run, every class alike: what the full measure looks at."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, class_ids, label_array
from uncollapse._base.check import check_int
from uncollapse.health.sample import balanced_rows

__all__ = ["Reservoir"]


class _Share(NamedTuple):
    step: int
    rows: Tensor
    labels: Array


class Reservoir:
    """Rows of the last batches, at most `capacity` of them and none older than `age` batches.

    A batch gives at most half the capacity, as even over its classes as it allows, so that small
    batches are judged together and a large one does not stand alone; the oldest rows go first. Old
    embeddings are not those of the present network, hence the age.

    >>> reservoir = Reservoir(capacity=8, age=2)
    >>> for step in range(3):
    ...     reservoir.add(torch.full((3, 2), float(step)), [0, 0, 1], step)
    >>> rows, labels = reservoir.rows()
    >>> rows[:, 0].tolist(), labels.tolist()
    ([1.0, 1.0, 1.0, 2.0, 2.0, 2.0], [0, 0, 1, 0, 0, 1])
    """

    def __init__(self, capacity: int = 256, age: int = 16, seed: int = 0) -> None:
        self.capacity, self.age = check_int("capacity", capacity, 8), check_int("age", age)
        self._rng = np.random.default_rng(seed)
        self._shares: deque[_Share] = deque()

    def add(self, embeddings: Tensor, labels: ArrayLike | None, step: int) -> None:
        """Take a share of a batch. Without labels every row is a class of its own."""
        n = len(embeddings)
        given = np.full(n, -1) if labels is None else label_array(labels, n)
        ids = np.arange(n) if labels is None else class_ids(given, n)[0]
        chosen = balanced_rows(ids, self.capacity // 2, self._rng)
        where = torch.from_numpy(chosen).to(embeddings.device)
        self._shares.append(_Share(step, embeddings.detach()[where].cpu(), given[chosen]))
        held = sum(len(share.labels) for share in self._shares)
        while len(self._shares) > self.age or held > self.capacity:
            held -= len(self._shares.popleft().labels)

    @property
    def filled(self) -> bool:
        """Whether it holds enough rows to judge classes by."""
        held = sum(len(share.labels) for share in self._shares)
        return len(self._shares) == self.age or held >= self.capacity // 2

    def rows(self) -> tuple[Tensor, Array | None]:
        """All rows held and their labels, oldest first; labels None if none were given."""
        labels = np.concatenate([share.labels for share in self._shares])
        rows = torch.cat([share.rows for share in self._shares])
        unknown = labels.dtype.kind == "i" and bool((labels == -1).all())
        return rows, None if unknown else labels

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs to go on as if nothing had happened."""
        return {
            "random": self._rng.bit_generator.state,
            "steps": [share.step for share in self._shares],
            "rows": [share.rows for share in self._shares],
            "labels": [share.labels.tolist() for share in self._shares],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over another reservoir's rows and randomness."""
        self._rng.bit_generator.state = state["random"]
        every = zip(state["steps"], state["rows"], state["labels"], strict=True)
        self._shares = deque(_Share(step, rows, np.asarray(names)) for step, rows, names in every)
