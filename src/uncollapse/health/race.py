"""Races: strategies train from one state on the same batches, and the best R@1 wins."""

from __future__ import annotations

import itertools
import math
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_leaves, tree_map

from uncollapse._base.arrays import Array, ArrayLike, class_ids, label_array
from uncollapse._base.check import InputError, percent
from uncollapse._base.result import Card, Shown
from uncollapse.distances import pairwise_distances
from uncollapse.health.advice import Strategy
from uncollapse.health.figures import spread

__all__ = ["LoopTrial", "Race", "RaceData", "RacePlan", "Trial", "plan_race", "run_race"]

_MOST = 4  # strategies that race, unless more are asked for
_FEWEST_STEPS = 4  # that a strategy trains before it is judged for the first time
_ROWS = (96, 384)  # held-out rows: at least, at most
_FORWARD = 1 / 3  # cost of a forward pass, in training steps
MOST_BATCHES, MOST_BYTES = 32, 512 * 2**20  # what a `LoopTrial` remembers at most
_SELDOM = 4  # once that many calls were seen, one in so many is kept
_NEAR = 1e-3  # tolerance for embeddings that are the output's directions
_FEWEST_BATCHES = 4  # recorded batches that a race needs: at least one is held out
_FEWEST_ROWS = 48  # held-out rows that a race needs
_DOUBT = 3.0  # paired differences within so many standard errors leave the choice to the adviser
_SURE = 2.0  # beyond so many of them R@1 has risen, or fallen
_LOST = 0.1  # share of R@1 that has to be lost as well
SMALL = 0.5  # share of its scale below which a run may be shrinking


TIE = "within noise: the adviser's order decides"


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
        self.model, self.loss_fn = model, loss_fn
        self.optimizers = optimizers_in(optimizer)
        self.handles: list[Any] = []  # of its hooks, if it has any

    def batches_taken(self) -> int | None:
        """How many batches have been taken so far; None where they cannot be taken again."""
        return None

    def rewind(self, batches_taken: int) -> None:
        """Go back to where so many batches had been taken."""

    def race_data(self, steps: int, rows: int) -> RaceData | None:
        """`steps` batches, fewer if there are no more, and about `rows` held-out rows; or None.

        Without steps the rows are those that a run is judged by between races.
        """
        return None

    def train(self, batch: Any) -> None:
        """One step of the optimiser."""
        raise NotImplementedError

    def embed(self, held: Any) -> Tensor:
        """Embeddings of held-out rows; the network stays as it is."""
        raise NotImplementedError

    def copy_state(self) -> Any:
        """A copy of network, optimisers, and what the loss learns and its memories remember."""
        return {
            "model": self.copy_weights(),
            "loss": tree_map(_copied, _state_of(self.loss_fn)),
            "optimizers": tree_map(_copied, [x.state_dict()["state"] for x in self.optimizers]),
            "memories": [memory.kept() for memory in self._memories],
        }

    def restore(self, state: Any) -> None:
        """Restore a copied state; the copy is not changed.

        Rates and groups of the optimisers stay as they are: a schedule goes on, and a group that
        was added since is kept.
        """
        _put_back(self.model, state["model"])
        _put_back(self.loss_fn, state["loss"])
        for memory, kept in zip(self._memories, state["memories"], strict=True):
            memory.put_back(kept)
        for optimizer, then in zip(self.optimizers, state["optimizers"], strict=True):
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": tree_map(_copied, then), "param_groups": groups})

    def recalls(self, earlier: Mapping[str, Tensor], rows: int) -> tuple[Tensor, Tensor] | None:
        """R@1 of each held-out row with these earlier weights, and with the present ones.

        None where there are no such rows. The network stays as it is.
        """
        data = self.race_data(0, rows)
        if data is None:
            return None
        ids = torch.from_numpy(class_ids(data.labels, None)[0])
        now, weights = nearest_is_own_class(self.embed(data.held), ids), self.copy_weights()
        try:
            _put_back(self.model, earlier)
            return nearest_is_own_class(self.embed(data.held), ids), now
        finally:
            _put_back(self.model, weights)

    def copy_weights(self) -> dict[str, Tensor]:
        """A copy of the network's weights and buffers."""
        return {name: tensor.clone() for name, tensor in _state_of(self.model).items()}

    def state_dict(self) -> dict[str, Any]:
        """What a saved guard needs to race as this one would: nothing, if batches come again."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over another's."""

    @property
    def _memories(self) -> list[Any]:
        """The parts of the loss that remember rows, by what they can do (`CrossBatchMemory`)."""
        parts = self.loss_fn.modules() if isinstance(self.loss_fn, nn.Module) else ()
        return [part for part in parts if hasattr(part, "put_back")]


def _state_of(module: Any) -> dict[str, Tensor]:
    """Weights and buffers, those that no checkpoint has as well; its random state goes on."""
    if not isinstance(module, nn.Module):
        return {}
    every = {**module.state_dict(), **dict(module.named_buffers())}
    return {name: value.detach() for name, value in every.items() if isinstance(value, Tensor)}


def _put_back(module: Any, then: Mapping[str, Tensor]) -> None:
    """Copy earlier weights and buffers into a module; those that changed their shape stay."""
    for name, tensor in _state_of(module).items():
        if name in then and tensor.shape == then[name].shape:
            tensor.copy_(then[name])


def processes() -> int:
    """How many train together."""
    known = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_world_size() if known else 1


def optimizers_in(given: Any) -> list[torch.optim.Optimizer]:
    """One optimiser, several, or a dictionary of them, out of what a trainer wraps them in.

    >>> optimizers_in({"trunk": torch.optim.SGD([torch.zeros(1)], 0.1)})[0].param_groups[0]["lr"]
    0.1
    """
    if isinstance(given, Mapping):
        given = list(given.values())
    optimizers = []
    for each in given if isinstance(given, list | tuple) else [given]:
        inner = each
        while not hasattr(inner, "_optimizer_step_post_hooks") and hasattr(inner, "optimizer"):
            inner = inner.optimizer  # Lightning's and Accelerate's wrappers
        if not hasattr(inner, "register_step_post_hook"):
            allowed = "the network's torch.optim.Optimizer, second, or several in a list"
            raise InputError("optimizer", type(each).__name__, allowed)
        optimizers.append(inner)
    if not optimizers:
        raise InputError("optimizer", given, "at least one torch.optim.Optimizer")
    return optimizers


@dataclass(frozen=True)
class RaceScore:
    """R@1 of a strategy on the held-out rows after so many steps; 0 once it has diverged.

    `scale` is what is left of the rows' scale, and `shrinks` says that less than half of it is and
    that R@1 has fallen.
    """

    strategy: str
    steps: int
    recall: float
    scale: float | None = None
    shrinks: bool = False


@dataclass(frozen=True, repr=False)
class Race(Shown):
    """Every score in the order it was measured, and the strategy chosen.

    `spent` is the cost in training steps, evaluation included. `tied`: another strategy was not
    worse beyond noise, and the adviser's order decided. `start` is R@1 before the race.
    """

    scores: tuple[RaceScore, ...]
    chosen: str
    rows: int
    spent: float
    tied: bool = False
    start: float | None = None

    @property
    def last(self) -> dict[str, RaceScore]:
        """The last score of each strategy, best first."""
        latest = {score.strategy: score for score in self.scores}
        best = sorted(latest.values(), key=lambda score: (score.steps, score.recall), reverse=True)
        return {score.strategy: score for score in best}

    @property
    def all_shrink(self) -> bool:
        """Whether every strategy shrank the rows: then it is not the strategy."""
        return all(score.shrinks for score in self.last.values())

    def card(self) -> Card:
        """The winner, and the last R@1 of each."""
        recalls = {f"{s.strategy}, {s.steps} steps": s.recall for s in self.last.values()}
        lines = [f"R@1 of {self.rows:,} held-out rows; {self.spent:,.0f} steps spent"]
        lines += [TIE] * self.tied
        title = f"{self.chosen} {'is chosen' if self.tied else 'wins the race'}"
        return Card(title, lines, shares=recalls)

    def __str__(self) -> str:
        parts = [
            f"{name} {percent(score.recall)}{', shrinks,' * score.shrinks} after {score.steps}"
            for name, score in self.last.items()
        ]
        words = f"R@1 of {self.rows} held-out rows: {'; '.join(parts)} steps"
        return f"{words}; {TIE}" if self.tied else words

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
    budget -= judging  # of the state that the race begins from
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

    The trial ends in the winner's state. A strategy that shrinks the held-out rows loses to one
    that does not; of those that three standard errors of the paired difference cannot tell apart,
    the first named wins. None where the trial has no held-out rows; it is then unchanged.
    """
    runners = _first_of_each_form(candidates, plan.strategies)
    data = trial.race_data(sum(plan.rungs), plan.rows)
    if data is None:
        return None
    ids = torch.from_numpy(class_ids(data.labels, None)[0])
    rows = trial.embed(data.held)
    start, scale, tied = nearest_is_own_class(rows, ids), spread(rows), False
    states = dict.fromkeys(runners, trial.copy_state())
    scores: list[RaceScore] = []
    done, spent = 0, _FORWARD * len(ids) / batch_size
    for steps in plan.rungs:
        hits: dict[Strategy, Tensor] = {}
        shrinking: set[Strategy] = set()
        for strategy in runners:
            trial.restore(states.pop(strategy))
            apply(strategy)
            for number in range(done, done + steps):
                trial.train(data.batches[number % len(data.batches)])
            states[strategy] = trial.copy_state()
            rows = trial.embed(data.held)
            hits[strategy] = nearest_is_own_class(rows, ids)
            left = spread(rows) / scale if scale > 0 else 0.0
            if left < SMALL and trend(start, hits[strategy]) < 0:
                shrinking.add(strategy)
            recall = float(hits[strategy].mean())
            score = RaceScore(str(strategy), done + steps, recall, left, strategy in shrinking)
            scores.append(score)
            spent += steps + _FORWARD * len(ids) / batch_size
        done += steps
        sound = [strategy for strategy in runners if strategy not in shrinking] or runners
        runners = _best(sound, hits, math.ceil(len(runners) / 2))
        others = (hits[strategy] for strategy in sound if strategy != runners[0])
        tied = len(runners) == 1 and any(_as_good(each, hits[runners[0]]) for each in others)
    winner = runners[0]
    trial.restore(states[winner])
    recall = float(start.mean())
    return Race(tuple(scores), str(winner), len(ids), round(spent, 1), tied, recall)


def trend(then: Tensor, now: Tensor) -> int:
    """1 where R@1 of the same rows has risen beyond two standard errors, -1 if fallen, else 0.

    A tenth of it must be lost to count as a fall.

    >>> trend(torch.zeros(20), torch.ones(20)), trend(torch.ones(20), torch.ones(20))
    (1, 0)
    """
    gain = now - then
    error = float(gain.std()) / math.sqrt(len(gain)) if len(gain) > 1 else math.inf
    value = float(gain.mean())
    if value > _SURE * error:
        return 1
    return -1 if value < -max(_SURE * error, _LOST * float(then.mean())) else 0


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
    in_turn = [each for pair in itertools.zip_longest(free, other) for each in pair if each]
    return [strategy for strategy in candidates if strategy in in_turn[:count]]


def _best(runners: list[Strategy], hits: dict[Strategy, Tensor], count: int) -> list[Strategy]:
    """The best `count`, in their order; an earlier one wins what chance could decide."""
    left, kept = list(runners), list[Strategy]()
    while len(kept) < min(count, len(runners)):
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

    A forward hook sees what the network is called with. `add` pairs the last call with the
    embeddings that the loop hands to the guard, and copies inputs and labels: a loop may refill its
    buffers. Embeddings must be the output itself, or its rows over their norms; a batch whose
    embeddings are something else cannot be made again, and is not raced on. `max_norm`: the loop
    clips the norm of its gradients to this.
    """

    def __init__(
        self, model: nn.Module, optimizer: Any, loss_fn: Any, max_norm: float | None = None
    ) -> None:
        super().__init__(model, optimizer, loss_fn)
        self.max_norm = max_norm
        self.batches: deque[RecordedBatch] = deque(maxlen=MOST_BATCHES)
        self.last_call: tuple[Any, Any, Tensor, torch.dtype | None] | None = None
        self.sample_ids: Any = None
        self.calls = 0  # of the network, in training
        see = Listener(weakref.WeakMethod(self._see_network))
        self.handles.append(model.register_forward_hook(see, with_kwargs=True))
        if isinstance(loss_fn, nn.Module):
            see = Listener(weakref.WeakMethod(self._see_loss))
            self.handles.append(loss_fn.register_forward_hook(see, with_kwargs=True))

    def _see_network(self, model: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if not model.training or not torch.is_grad_enabled():
            return
        self.last_call = None
        self.calls += 1
        kept = self.calls <= MOST_BATCHES or self.calls % _SELDOM == 0
        if kept and isinstance(output, Tensor):
            kind = output.device.type
            precision = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
            self.last_call = (args, kwargs, output.detach(), precision)

    def _see_loss(self, loss_fn: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        self.sample_ids = kwargs.get("sample_ids")

    def add(self, embeddings: object, labels: ArrayLike | None) -> None:
        """The step's embeddings and labels, after the call that gave them."""
        call, self.last_call = self.last_call, None
        if call is None or labels is None or not isinstance(embeddings, Tensor):
            return
        args, kwargs, output, precision = call
        if output.ndim != 2 or output.shape != embeddings.shape:
            return
        kept: Any = tree_map(_copied, (args, kwargs, labels, self.sample_ids, output, embeddings))
        size = sum(tensor.nbytes for tensor in _tensors(kept))
        self.batches.append(RecordedBatch._make((*kept, precision, size)))
        while len(self.batches) > 1 and sum(batch.size for batch in self.batches) > MOST_BYTES:
            self.batches.popleft()

    def race_data(self, steps: int, rows: int) -> RaceData | None:
        """The newest batches held out, the others to train on; None with too few of them."""
        usable = [batch for batch in self.batches if batch.normalizes is not None]
        # Several processes that train one network would each choose for themselves.
        if len(usable) < _FEWEST_BATCHES or processes() > 1:
            return None
        count = min(-(-rows // len(usable[-1].output)), len(usable) // 3) or 1
        batches, held = usable[:-count][-steps:] if steps else [], usable[-count:]
        labels = np.concatenate([batch.names for batch in held])
        for seen in (batches, []):  # of a small set, which is seen whole, every row is held out
            keep = _new_rows(held, seen)
            ids = class_ids(labels, None)[0][keep]
            if (np.bincount(ids)[ids] > 1).sum() >= _FEWEST_ROWS:
                return RaceData(batches, (held, torch.from_numpy(keep)), labels[keep])
        return None

    def train(self, batch: RecordedBatch) -> None:
        """One step of the optimisers on a recorded batch, as the loop would have made it."""
        if not math.isfinite(float(self._backward(batch))):
            return
        for optimizer in self.optimizers:
            if isinstance(optimizer, torch.optim.LBFGS):
                optimizer.step(lambda: float(self._backward(batch)))  # type: ignore[no-untyped-call]
            else:
                optimizer.step()

    def _backward(self, batch: RecordedBatch) -> Tensor:
        """The loss of a batch, with its gradients in place; NaN where rows are not finite."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        with torch.enable_grad():
            z = self._embedded(batch)
            if not bool(torch.isfinite(z).all()):
                return z.new_tensor(math.nan)
            more = {} if batch.sample_ids is None else {"sample_ids": batch.sample_ids}
            loss: Tensor = self.loss_fn(z, batch.labels, **more)
            loss.backward()  # type: ignore[no-untyped-call]
        if self.max_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)
        return loss.detach()

    @torch.no_grad()
    def embed(self, held: Any) -> Tensor:
        """Held-out rows, by the statistics of their own batches where there is batch norm."""
        batches, keep = held
        with eval_except_batch_norm(self.model):
            return torch.cat([self._embedded(batch).cpu() for batch in batches])[keep]

    def _embedded(self, batch: RecordedBatch) -> Tensor:
        precision = batch.precision
        with torch.autocast(batch.output.device.type, precision, precision is not None):
            z: Tensor = self.model(*batch.args, **batch.kwargs)
            return functional.normalize(z, dim=1) if batch.normalizes else z

    def state_dict(self) -> dict[str, Any]:
        """The recorded batches that are plain tensors, numbers and texts."""
        listed = [
            each if isinstance(each.labels, Tensor) else each._replace(labels=each.names.tolist())
            for each in self.batches
        ]
        batches = [batch._asdict() for batch in listed if batch.is_plain]
        return {"batches": batches, "calls": self.calls}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over another's batches, if there are any."""
        if "batches" in state:
            batches = (RecordedBatch(**batch) for batch in state["batches"])
            self.batches, self.calls = deque(batches, maxlen=MOST_BATCHES), state["calls"]


class RecordedBatch(NamedTuple):
    """One call of the network: its inputs, labels, output, and the embeddings made of that.

    `precision` is that of autocast, None outside of it; `size` the bytes of all.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    labels: Any
    sample_ids: Any
    output: Tensor
    embeddings: Tensor
    precision: torch.dtype | None
    size: int

    @property
    def is_plain(self) -> bool:
        """Whether it can be written to a checkpoint and read back safely."""
        plain = Tensor | bool | int | float | str | torch.dtype | None
        return all(isinstance(leaf, plain) for leaf in tree_leaves(tuple(self)))

    @property
    def names(self) -> Array:
        """One label per row, on the host."""
        return label_array(self.labels, len(self.output))

    @property
    def normalizes(self) -> bool | None:
        """Whether the embeddings are the output's directions; None if they are neither."""
        given = self.embeddings.to(self.output.device, self.output.dtype)
        if torch.equal(given, self.output):
            return False
        close = torch.allclose(given, functional.normalize(self.output, dim=1), atol=_NEAR)
        return True if close else None

    def row_keys(self) -> list[int]:
        """A hash of each row's input; of inputs that are not rows, one that no other row has."""
        n = len(self.output)
        inputs = _tensors((self.args, self.kwargs))
        rows = next((tensor for tensor in inputs if len(tensor) == n), None)
        if rows is None:
            return [hash((id(self), number)) for number in range(n)]
        flat = rows.detach().reshape(n, -1).cpu()
        flat = flat.float() if flat.dtype == torch.bfloat16 else flat
        # Without the zeros at its end: a text may be padded to the longest of each batch.
        return [hash(row.tobytes().rstrip(b"\0")) for row in flat.numpy()]


class Listener:
    """A hook that passes its arguments on; copied or pickled with its module, it does nothing.

    `function` may be a `weakref.WeakMethod`: the hook then does nothing once its object is gone. A
    pickled network is read without this package: in place of the hook it has a method of Python's
    own that takes anything and gives None.
    """

    def __init__(self, function: Any = None) -> None:
        self.function = function

    def __call__(self, *args: Any) -> None:
        if torch.compiler.is_compiling():  # a graph that is compiled stays whole
            return
        weak = isinstance(self.function, weakref.WeakMethod)
        function = self.function() if weak else self.function
        if function is not None:
            function(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")


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


def _copied(value: Any) -> Any:
    """A copy of a tensor or an array; anything else is taken as it is."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    return value.copy() if isinstance(value, np.ndarray) else value


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor) and leaf.ndim > 0]
