"""Races in a user's own loop: its network, optimiser and loss, on its last batches."""

from __future__ import annotations

import copy
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_leaves

from uncollapse._base.arrays import Array, ArrayLike, class_ids, label_array
from uncollapse.health.monitor import CollapseMonitor
from uncollapse.health.race import RaceData
from uncollapse.losses.memory import memories

__all__ = ["LoopTrial", "Snapshots", "TrainingState", "copy_state", "restore_state"]

_BATCHES, _BYTES = 32, 512 * 2**20  # what `RecentBatches` holds at most
_NEAR = 1e-3
_FEWEST = 4  # batches for a race: at least one of them is held out
_FEWEST_ROWS = 48  # held-out rows that say something


class LoopTrial:
    """Trains and evaluates in races with a loop's own network, optimiser, loss and last batches.

    `max_norm`: the loop clips the norm of its gradients to this.
    """

    def __init__(
        self, model: nn.Module, optimizer: Any, loss_fn: Any, max_norm: float | None = None
    ) -> None:
        self.model, self.optimizer, self.loss_fn = model, optimizer, loss_fn
        self.max_norm = max_norm
        self.recent_batches = RecentBatches(model)

    def batches_taken(self) -> None:
        """Not known: the loop's batches are its own."""

    def rewind(self, batches_taken: int) -> None:
        """Nothing: the loop goes on with its batches."""

    def race_data(self, steps: int, rows: int) -> RaceData | None:
        """The newest batches held out, the others to train on; None with too few of them."""
        usable = [batch for batch in self.recent_batches.batches if batch.unchanged]
        # Several processes that train one network would each choose for themselves.
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        if len(usable) < _FEWEST or (distributed and torch.distributed.get_world_size() > 1):
            return None
        count = min(-(-rows // len(usable[-1].labels)), len(usable) // 3) or 1
        batches, held = usable[:-count][-steps:], usable[-count:]
        keep = _new_rows(held, batches)
        labels = np.concatenate([batch.labels for batch in held])
        ids, _ = class_ids(labels[keep], None)
        if (np.bincount(ids)[ids] > 1).sum() < _FEWEST_ROWS:  # a small set is seen whole
            keep = _new_rows(held, [])
        return RaceData(batches, (held, torch.from_numpy(keep)), labels[keep])

    def copy_state(self) -> TrainingState:
        """Network, optimiser and what the loss learns."""
        return copy_state(self.model, self.optimizer, self.loss_fn)

    def restore(self, state: TrainingState) -> None:
        """Go back to a copied state."""
        restore_state(state, self.model, self.optimizer, self.loss_fn)

    def train(self, batch: RecordedBatch) -> None:
        """One step of the optimiser on a recorded batch, as the loop would have made it."""
        z = self._embedded(batch)
        if not bool(torch.isfinite(z).all()):
            return
        loss = self.loss_fn(z, batch.given)
        self.optimizer.zero_grad()
        loss.backward()
        if self.max_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)
        self.optimizer.step()

    @torch.no_grad()
    def embed(self, held: Any) -> Tensor:
        """Held-out rows, by the statistics of their own batches where there is batch norm."""
        batches, keep = held
        with eval_except_batch_norm(self.model):
            return torch.cat([self._embedded(batch).cpu() for batch in batches])[keep]

    def _embedded(self, batch: RecordedBatch) -> Tensor:
        z: Tensor = self.model(*batch.args, **batch.kwargs)
        return functional.normalize(z, dim=1) if batch.unit else z


class RecordedBatch(NamedTuple):
    """What the network was called with, its labels as given and as an array, and its use.

    `unit`: the loop normalised the network's output.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    given: ArrayLike
    labels: Array
    unit: bool
    versions: tuple[int, ...]
    size: int

    @property
    def unchanged(self) -> bool:
        """Whether the tensors are still what they were: a loop may refill its buffers."""
        return self.versions == _versions(self.args, self.kwargs)

    def row_keys(self) -> list[int]:
        """A hash of each row's input; of inputs that are not rows, one that no other row has."""
        n = len(self.labels)
        tensors = _tensors(self.args, self.kwargs)
        rows = next((tensor for tensor in tensors if len(tensor) == n), None)
        if rows is None:
            return [hash((id(self), number)) for number in range(n)]
        flat = rows.detach().reshape(n, -1).cpu()
        flat = flat.float() if flat.dtype == torch.bfloat16 else flat
        # Without the zeros at its end: a text may be padded to the longest of each batch.
        return [hash(row.tobytes().rstrip(b"\0")) for row in flat.numpy()]


class RecentBatches:
    """Keeps references to the inputs of the last batches, by a forward hook; copies nothing.

    The hook sees what the network is called with and returns. `add` pairs that with the embeddings
    that the loop hands to the guard: they must be the output itself, or its rows over their norms;
    otherwise the batch is not kept, since it could not be made again.
    """

    def __init__(self, model: nn.Module) -> None:
        self.batches: deque[RecordedBatch] = deque(maxlen=_BATCHES)
        self._call: tuple[tuple[Any, ...], dict[str, Any], Tensor] | None = None
        model.register_forward_hook(_Hook(self), with_kwargs=True)

    def see_call(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: object) -> None:
        """A call of the network in training."""
        self._call = (args, kwargs, output.detach()) if isinstance(output, Tensor) else None

    def add(self, embeddings: object, labels: ArrayLike | None) -> None:
        """The step's embeddings and labels, after the call that gave them."""
        call, self._call = self._call, None
        if call is None or labels is None or not isinstance(embeddings, Tensor):
            return
        args, kwargs, output = call
        unit = _is_normalized(output, embeddings.detach())
        if unit is None:
            return
        size = sum(tensor.nbytes for tensor in _tensors(args, kwargs))
        names = label_array(labels, len(output))
        versions = _versions(args, kwargs)
        self.batches.append(RecordedBatch(args, kwargs, labels, names, unit, versions, size))
        while len(self.batches) > 1 and sum(batch.size for batch in self.batches) > _BYTES:
            self.batches.popleft()


class _Hook:
    """Tells `RecentBatches` of each call, as long as it exists.

    Copied or pickled with a network, it does nothing: the batches are the loop's.
    """

    def __init__(self, recent: RecentBatches | None = None) -> None:
        self.recent = None if recent is None else weakref.ref(recent)

    def __call__(self, model: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        recent = None if self.recent is None else self.recent()
        if recent is not None and model.training and torch.is_grad_enabled():
            recent.see_call(args, kwargs, output)

    def __reduce__(self) -> tuple[type[_Hook], tuple[()]]:
        return _Hook, ()


class TrainingState(NamedTuple):
    """The network's weights and buffers, what the loss learns, and the optimiser's state.

    `memories` has what each memory in the loss remembers.
    """

    model: dict[str, Tensor]
    loss: list[Tensor]
    optimizer: dict[str, Any]
    memories: Sequence[dict[str, Tensor]] = ()


def copy_state(
    model: nn.Module, optimizer: torch.optim.Optimizer, loss_fn: object
) -> TrainingState:
    """A copy of all three as they are now."""
    return TrainingState(
        {k: v.detach().clone() for k, v in model.state_dict().items()},
        [tensor.detach().clone() for tensor in _learned(loss_fn)],
        copy.deepcopy(optimizer.state_dict()),
        [memory.kept() for memory in memories(loss_fn)],
    )


def restore_state(
    state: TrainingState, model: nn.Module, optimizer: torch.optim.Optimizer, loss_fn: object
) -> None:
    """Make all three what they were; the copy is not changed."""
    model.load_state_dict(state.model)
    with torch.no_grad():
        for tensor, then in zip(_learned(loss_fn), state.loss, strict=True):
            tensor.copy_(then)
    for memory, kept in zip(memories(loss_fn), state.memories, strict=True):
        memory.put_back(kept)
    optimizer.load_state_dict(copy.deepcopy(state.optimizer))


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

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, loss_fn: object) -> None:
        self.model, self.optimizer, self.loss_fn = model, optimizer, loss_fn
        self.newest: dict[str, Any] | None = None
        self.before: dict[str, Any] | None = None

    def take(
        self, monitor: CollapseMonitor, step: int, lr_factor: float, place: int | None = None
    ) -> None:
        """Copy the present state; `place` is the number of batches taken, where it is known."""
        self.before = self.newest
        state = copy_state(self.model, self.optimizer, self.loss_fn)
        self.newest = {
            "step": step,
            "lr_factor": lr_factor,
            "place": place,
            "model": state.model,
            "loss": state.loss,
            "optimiser": state.optimizer,
            "memories": state.memories,
            "monitor": copy.deepcopy(monitor.state_dict()),
        }

    @property
    def place(self) -> int | None:
        """Batches taken when the newest copy was made; None where it is not known."""
        return None if self.newest is None else self.newest.get("place")

    def confirm(self) -> None:
        """The newest copy is sound: forget the one before."""
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
        remembered = kept.get("memories", ())  # earlier versions had none
        state = TrainingState(kept["model"], kept["loss"], kept["optimiser"], remembered)
        restore_state(state, self.model, self.optimizer, self.loss_fn)
        monitor.load_state_dict(copy.deepcopy(kept["monitor"]))
        return kept["step"], kept["lr_factor"]

    def state_dict(self) -> dict[str, Any]:
        """Both copies."""
        return {"newest": self.newest, "before": self.before}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the copies of `state`."""
        self.newest, self.before = state["newest"], state["before"]


@contextmanager
def eval_except_batch_norm(model: nn.Module) -> Iterator[None]:
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


def _new_rows(held: list[RecordedBatch], batches: list[RecordedBatch]) -> Array:
    """Held-out rows that are in none of the batches, and each of them once."""
    seen = {key for batch in batches for key in batch.row_keys()}
    kept = []
    for number, key in enumerate(key for batch in held for key in batch.row_keys()):
        if key not in seen:
            kept.append(number)
            seen.add(key)
    return np.array(kept, np.int64)


def _is_normalized(output: Tensor, embeddings: Tensor) -> bool | None:
    """Whether the embeddings are the output's directions; None where they are something else."""
    if output.ndim != 2 or output.shape != embeddings.shape:
        return None
    given = embeddings.to(output.device, output.dtype)
    if torch.equal(given, output):
        return False
    close = torch.allclose(given, functional.normalize(output, dim=1), atol=_NEAR)
    return True if close else None


def _versions(args: Any, kwargs: Any) -> tuple[int, ...]:
    return tuple(tensor._version for tensor in _tensors(args, kwargs))


def _tensors(args: Any, kwargs: Any) -> list[Tensor]:
    leaves = tree_leaves((args, kwargs))
    return [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.ndim > 0]


def _learned(loss_fn: object) -> list[Tensor]:
    """What the loss learns (β, proxies); its miner's random state goes on."""
    return list(loss_fn.parameters()) if isinstance(loss_fn, nn.Module) else []
