"""Races: strategies train from one state on the same batches, and the best R@1 wins."""

from __future__ import annotations

import copy
import itertools
import math
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_leaves

from uncollapse._base.arrays import Array, ArrayLike, class_ids, label_array
from uncollapse.distances import pairwise_distances
from uncollapse.health.strategy import Strategy
from uncollapse.losses.memory import memories

__all__ = ["LoopTrial", "Race", "RaceData", "RacePlan", "Trial", "plan_race", "run_race"]

_MOST = 4  # strategies that race, unless more are asked for
_FEWEST_STEPS = 4  # that a strategy trains before it is judged for the first time
_ROWS = (96, 384)  # held-out rows: at least, at most
_FORWARD = 1 / 3  # cost of a forward pass, in training steps
_BATCHES, _BYTES = 32, 512 * 2**20  # what a `LoopTrial` remembers at most
_NEAR = 1e-3  # tolerance for embeddings that are the output's directions
_FEWEST_BATCHES = 4  # recorded batches that a race needs: at least one is held out
_FEWEST_ROWS = 48  # held-out rows that a race needs
_DOUBT = 3.0  # paired differences within so many standard errors leave the choice to the adviser


class RaceData(NamedTuple):
    """Batches to train on, and held-out rows that are not in them.

    Batches are whatever the trial trains on; `held` is whatever it embeds, with one label per row.
    """

    batches: Sequence[Any]
    held: Any
    labels: ArrayLike


class Trial:
    """A training state that races copy, restore, train and evaluate. This one cannot race."""

    def __init__(self, model: nn.Module, optimizer: Any, loss_fn: Any) -> None:
        self.model, self.optimizer, self.loss_fn = model, optimizer, loss_fn

    def batches_taken(self) -> int | None:
        """How many batches have been taken so far; None where they cannot be taken again."""
        return None

    def rewind(self, batches_taken: int) -> None:
        """Go back to where so many batches had been taken."""

    def race_data(self, steps: int, rows: int) -> RaceData | None:
        """`steps` batches, fewer if there are no more, and about `rows` held-out rows; or None."""
        return None

    def train(self, batch: Any) -> None:
        """One step of the optimiser."""
        raise NotImplementedError

    def embed(self, held: Any) -> Tensor:
        """Embeddings of held-out rows; the network stays as it is."""
        raise NotImplementedError

    def copy_state(self) -> Any:
        """A copy of network, optimiser, and what the loss learns and its memories remember."""
        return {
            "model": {k: v.detach().clone() for k, v in self.model.state_dict().items()},
            "loss": [tensor.detach().clone() for tensor in self._learned],
            "optimizer": copy.deepcopy(self.optimizer.state_dict()),
            "memories": [memory.kept() for memory in memories(self.loss_fn)],
        }

    def restore(self, state: Any) -> None:
        """Restore a copied state; the copy is not changed."""
        self.model.load_state_dict(state["model"])
        with torch.no_grad():
            for tensor, then in zip(self._learned, state["loss"], strict=True):
                tensor.copy_(then)
        for memory, kept in zip(memories(self.loss_fn), state["memories"], strict=True):
            memory.put_back(kept)
        self.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))

    @property
    def _learned(self) -> list[Tensor]:
        """What the loss learns (β, proxies); its miner's random state goes on."""
        return list(self.loss_fn.parameters()) if isinstance(self.loss_fn, nn.Module) else []


@dataclass(frozen=True)
class RaceScore:
    """R@1 of a strategy on the held-out rows after so many steps; 0 once it has diverged."""

    strategy: str
    steps: int
    recall: float


@dataclass(frozen=True)
class Race:
    """Every score in the order it was measured, and the strategy chosen.

    `spent` is the cost in training steps, evaluation included.
    """

    scores: tuple[RaceScore, ...]
    chosen: str
    rows: int
    spent: float

    @property
    def last(self) -> dict[str, RaceScore]:
        """The last score of each strategy, best first."""
        latest = {score.strategy: score for score in self.scores}
        best = sorted(latest.values(), key=lambda score: (score.steps, score.recall), reverse=True)
        return {score.strategy: score for score in best}

    def __str__(self) -> str:
        parts = [
            f"{name} {score.recall:.1%} after {score.steps}" for name, score in self.last.items()
        ]
        return f"R@1 of {self.rows} held-out rows: {'; '.join(parts)} steps"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Race:
        """The inverse of `to_dict`; logs of version 0.1.0 call the scores laps."""
        values = {"scores" if key == "laps" else key: value for key, value in given.items()}
        return cls(**{**values, "scores": tuple(RaceScore(**score) for score in values["scores"])})


class RacePlan(NamedTuple):
    """How many strategies train for how many steps before each halving, judged on `rows` rows."""

    strategies: int
    rungs: tuple[int, ...]
    rows: int


def plan_race(
    candidates: int,
    budget: float,
    batch_size: int,
    *,
    most: int = _MOST,
    fewest: int = _FEWEST_STEPS,
) -> RacePlan | None:
    """The race of as many strategies as a budget of training steps allows; None below two.

    Each rung gets an equal share of the budget, so that those which stay train for twice as long.
    Judging costs as much as the forward pass of its rows, and comes after `fewest` steps or more.

    >>> plan_race(6, budget=80, batch_size=144), plan_race(6, budget=5, batch_size=144)
    (RacePlan(strategies=4, rungs=(9, 19), rows=288), None)
    """
    rows = min(max(_ROWS[0], 2 * batch_size), _ROWS[1])
    judging = _FORWARD * rows / batch_size
    for count in range(min(candidates, most), 1, -1):
        running, sizes = count, []
        while running > 1:
            sizes.append(running)
            running = math.ceil(running / 2)
        rungs = tuple(int(budget / len(sizes) / size - judging) for size in sizes)
        if rungs[0] >= fewest:
            return RacePlan(count, rungs, rows)
    return None


def run_race(
    trial: Trial,
    candidates: Sequence[Strategy],
    apply: Callable[[Strategy], None],
    plan: RacePlan,
    batch_size: int,
) -> Race | None:
    """Successive halving of `candidates`, best guess first, from the trial's present state.

    The trial ends in the winner's state. Of strategies that three standard errors of the paired
    difference cannot tell apart, the first named wins. None where the trial has no held-out rows;
    it is then unchanged.
    """
    runners = _first_of_each_form(candidates, plan.strategies)
    data = trial.race_data(sum(plan.rungs), plan.rows)
    if data is None:
        return None
    ids = torch.from_numpy(class_ids(data.labels, None)[0])
    states = dict.fromkeys(runners, trial.copy_state())
    scores: list[RaceScore] = []
    done, spent = 0, 0.0
    for steps in plan.rungs:
        hits: dict[Strategy, Tensor] = {}
        for strategy in runners:
            trial.restore(states.pop(strategy))
            apply(strategy)
            for number in range(done, done + steps):
                trial.train(data.batches[number % len(data.batches)])
            states[strategy] = trial.copy_state()
            hits[strategy] = nearest_is_own_class(trial.embed(data.held), ids)
            scores.append(RaceScore(str(strategy), done + steps, float(hits[strategy].mean())))
            spent += steps + _FORWARD * len(ids) / batch_size
        done += steps
        runners = _best(runners, hits, math.ceil(len(runners) / 2))
    (winner,) = runners
    trial.restore(states[winner])
    return Race(tuple(scores), str(winner), len(ids), round(spent, 1))


def nearest_is_own_class(z: Tensor, ids: Tensor) -> Tensor:
    """1.0 for each row whose nearest other row shares its class, else 0.0; ties count against it.

    Rows that are alone in their class are left out. All 0.0 where rows are not finite.

    >>> z = torch.tensor([[0.0], [1.0], [5.0], [5.5], [2.0]])
    >>> nearest_is_own_class(z, torch.tensor([0, 0, 1, 1, 1]))
    tensor([1., 0., 1., 1., 0.], dtype=torch.float64)
    """
    same = ids[:, None] == ids[None, :]
    own = torch.eye(len(ids), dtype=torch.bool)
    several = (same & ~own).any(1)
    if not bool(torch.isfinite(z).all()):
        return torch.zeros(int(several.sum()), dtype=torch.float64)
    distance = pairwise_distances(z.detach().float().cpu())
    near = distance.masked_fill(~same | own, torch.inf).amin(1)
    other = distance.masked_fill(same, torch.inf).amin(1)
    return (near < other)[several].double()


def _first_of_each_form(candidates: Sequence[Strategy], count: int) -> list[Strategy]:
    """The first `count`, scale-free and other ones in turn, so that few still show both forms.

    >>> names = [Strategy("inside", scale_free=True), Strategy("easy", scale_free=True)]
    >>> chosen = _first_of_each_form([*names, Strategy("hard", scale_free=False)], 2)
    >>> [strategy.positives for strategy in chosen]
    ['inside', 'hard']
    """
    free = [strategy for strategy in candidates if strategy.scale_free]
    other = [strategy for strategy in candidates if not strategy.scale_free]
    in_turn = [
        strategy for pair in itertools.zip_longest(free, other) for strategy in pair if strategy
    ]
    return [strategy for strategy in candidates if strategy in in_turn[:count]]


def _best(runners: list[Strategy], hits: dict[Strategy, Tensor], count: int) -> list[Strategy]:
    """The best `count`, in their order; an earlier one wins what chance could decide."""
    left, kept = list(runners), list[Strategy]()
    while len(kept) < count:
        top = max(left, key=lambda strategy: float(hits[strategy].mean()))
        winner = next(strategy for strategy in left if _as_good(hits[strategy], hits[top]))
        kept.append(winner)
        left.remove(winner)
    return [strategy for strategy in runners if strategy in kept]


def _as_good(hits: Tensor, top: Tensor) -> bool:
    gap = top - hits
    error = float(gap.std()) / math.sqrt(len(gap)) if len(gap) > 1 else math.inf
    return float(gap.mean()) <= _DOUBT * error


# Races in a user's own loop: its network, optimiser and loss, on its last batches.


class LoopTrial(Trial):
    """Trains and evaluates in races with a loop's own network, optimiser, loss and last batches.

    A forward hook sees what the network is called with; nothing is copied. `add` pairs the last
    call with the embeddings that the loop hands to the guard: they must be the output itself, or
    its rows over their norms; otherwise the batch could not be made again, and is not kept.
    `max_norm`: the loop clips the norm of its gradients to this.
    """

    def __init__(
        self, model: nn.Module, optimizer: Any, loss_fn: Any, max_norm: float | None = None
    ) -> None:
        super().__init__(model, optimizer, loss_fn)
        self.max_norm = max_norm
        self.batches: deque[RecordedBatch] = deque(maxlen=_BATCHES)
        self.last_call: tuple[tuple[Any, ...], dict[str, Any], Tensor] | None = None
        model.register_forward_hook(_Hook(self), with_kwargs=True)

    def add(self, embeddings: object, labels: ArrayLike | None) -> None:
        """The step's embeddings and labels, after the call that gave them."""
        call, self.last_call = self.last_call, None
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

    def race_data(self, steps: int, rows: int) -> RaceData | None:
        """The newest batches held out, the others to train on; None with too few of them."""
        usable = [batch for batch in self.batches if batch.unchanged]
        # Several processes that train one network would each choose for themselves.
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        several = distributed and torch.distributed.get_world_size() > 1
        if len(usable) < _FEWEST_BATCHES or several:
            return None
        count = min(-(-rows // len(usable[-1].labels)), len(usable) // 3) or 1
        batches, held = usable[:-count][-steps:], usable[-count:]
        keep = _new_rows(held, batches)
        labels = np.concatenate([batch.labels for batch in held])
        ids, _ = class_ids(labels[keep], None)
        if (np.bincount(ids)[ids] > 1).sum() < _FEWEST_ROWS:  # a small set is seen whole
            keep = _new_rows(held, [])
        return RaceData(batches, (held, torch.from_numpy(keep)), labels[keep])

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
    """One call of the network: its inputs, and its labels as given and as an array.

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


class _Hook:
    """A forward hook that passes each call to its `LoopTrial`, as long as that exists.

    Copied or pickled with a network, it does nothing: the batches are the loop's.
    """

    def __init__(self, trial: LoopTrial | None = None) -> None:
        self.trial = None if trial is None else weakref.ref(trial)

    def __call__(self, model: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        trial = None if self.trial is None else self.trial()
        if trial is not None and model.training and torch.is_grad_enabled():
            seen = isinstance(output, Tensor)
            trial.last_call = (args, kwargs, output.detach()) if seen else None

    def __reduce__(self) -> tuple[type[_Hook], tuple[()]]:
        return _Hook, ()


@contextmanager
def eval_except_batch_norm(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, but batch norm uses the batch: its running averages lag behind a trial."""
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
