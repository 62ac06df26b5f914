"""The inputs of a training loop's last batches, taken by a hook, so that steps can be repeated."""

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
from uncollapse.health.race import Course
from uncollapse.losses.memory import memories

__all__ = ["LoopTrial", "Snapshots", "State", "Take", "Tape", "as_judged", "copy_state", "put_back"]


# The inputs of a training loop's last batches, taken by a hook, so that steps can be repeated.

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


# The network as it is judged in the middle of training.


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


# Copies of a training state, to go back to: network, optimiser, loss and monitor.


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


# Races in somebody's own loop: its network, optimiser and loss, on its last batches.

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
