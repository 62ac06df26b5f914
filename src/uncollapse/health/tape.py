"""The inputs of a training loop's last batches, taken by a hook, so that steps can be repeated."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from uncollapse._base.arrays import Array, ArrayLike, label_array

__all__ = ["Take", "Tape"]

_BATCHES, _BYTES = 32, 512 * 2**20  # what a tape keeps at most
_NEAR = 1e-3


class Take(NamedTuple):
    """One batch: what the network was called with, its labels as given and as an array, its use."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    given: ArrayLike
    labels: Array
    unit: bool
    versions: tuple[int, ...]
    size: int

    @property
    def unchanged(self) -> bool:
        """Whether the tensors still are what they were: a loop may fill its buffers anew."""
        return self.versions == _versions(self.args, self.kwargs)

    def row_keys(self) -> list[int]:
        """What tells a row of the batch from others: its input; none is like it if that is odd."""
        n = len(self.labels)
        rows = next((one for one in _tensors(self.args, self.kwargs) if len(one) == n), None)
        if rows is None:
            return [hash((id(self), number)) for number in range(n)]
        flat = rows.detach().reshape(n, -1).cpu()
        flat = flat.float() if flat.dtype == torch.bfloat16 else flat
        # Without the zeros at its end: a text may be padded to the longest of each batch.
        return [hash(row.tobytes().rstrip(b"\0")) for row in flat.numpy()]


class Tape:
    """Keeps references to the inputs of the last batches; copies nothing.

    A forward hook sees what the network is called with and what it gives. `keep` pairs that with
    the embeddings that the loop hands to the guard: they must be the output itself, or its rows
    over their norms; otherwise the batch is not kept, since it could not be made again.
    """

    def __init__(self, model: nn.Module) -> None:
        self.takes: deque[Take] = deque(maxlen=_BATCHES)
        self._call: tuple[tuple[Any, ...], dict[str, Any], Tensor] | None = None
        model.register_forward_hook(_Hook(self), with_kwargs=True)

    def seen(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: object) -> None:
        """A call of the network in training."""
        self._call = (args, kwargs, output.detach()) if isinstance(output, Tensor) else None

    def keep(self, embeddings: object, labels: ArrayLike | None) -> None:
        """The step's embeddings and labels, after the call they came of."""
        call, self._call = self._call, None
        if call is None or labels is None or not isinstance(embeddings, Tensor):
            return
        args, kwargs, output = call
        unit = _use_of(output, embeddings.detach())
        if unit is None:
            return
        size = sum(one.nbytes for one in _tensors(args, kwargs))
        names = label_array(labels, len(output))
        take = Take(args, kwargs, labels, names, unit, _versions(args, kwargs), size)
        self.takes.append(take)
        while len(self.takes) > 1 and sum(take.size for take in self.takes) > _BYTES:
            self.takes.popleft()


class _Hook:
    """Tells a tape what it sees, as long as there is one.

    Copied or pickled with a network, it does nothing: the tape is the loop's.
    """

    def __init__(self, tape: Tape | None = None) -> None:
        self.tape = None if tape is None else weakref.ref(tape)

    def __call__(self, model: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        tape = None if self.tape is None else self.tape()
        if tape is not None and model.training and torch.is_grad_enabled():
            tape.seen(args, kwargs, output)

    def __reduce__(self) -> tuple[type[_Hook], tuple[()]]:
        return _Hook, ()


def _use_of(output: Tensor, embeddings: Tensor) -> bool | None:
    """Whether the embeddings are the output's directions; None where they are something else."""
    if output.ndim != 2 or output.shape != embeddings.shape:
        return None
    given = embeddings.to(output.device, output.dtype)
    if torch.equal(given, output):
        return False
    close = torch.allclose(given, functional.normalize(output, dim=1), atol=_NEAR)
    return True if close else None


def _versions(args: Any, kwargs: Any) -> tuple[int, ...]:
    return tuple(one._version for one in _tensors(args, kwargs))


def _tensors(args: Any, kwargs: Any) -> list[Tensor]:
    leaves = tree_leaves((args, kwargs))
    return [one for one in leaves if isinstance(one, Tensor) and one.ndim > 0]
