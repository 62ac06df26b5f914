"""Drift: whether a loss pulls an embedding towards one point, or merges modes, before training."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from uncollapse._base.arrays import ArrayLike, ClassLayout, points
from uncollapse._base.check import InputError, check_bool, check_int, check_kind, check_number
from uncollapse._base.extras import keep_memory
from uncollapse._base.result import Card, Shown
from uncollapse.distances import centre, pairwise_distances
from uncollapse.health.figures import to_host
from uncollapse.health.verdict import NO_DRIFT
from uncollapse.losses.memory import memories, reading

__all__ = ["Probe", "Stepping", "direction_drift", "drift", "mode_drift", "probe"]

MODES_KEPT = 0.1  # mode drifts up to this keep modes: that of a batch varies by as much
MODE_NEIGHBOURS = 3  # neighbours that show a mode
_ROUNDING = 2.0**10  # modes below so many rounding errors of the embedding's size are none
_LEAST = 10  # steps of a probe, at least
_LAST = 4  # last batches of a probe, whose mean mode drift is its result
_STEADY = 0.2  # a drift that fell by less in the probe is taken to have fallen by this share
_TINY = 1e-30

LossFn = Callable[[Tensor, ArrayLike], Tensor]
_Rates = TypeVar("_Rates", "Drift", "ModeDrift")


@dataclass(frozen=True)
class Drift(Shown):
    """Drift of a loss, its standard deviation over batches, and the loss over the mean distance.

    `spread` is NaN where one batch was measured once. During a collapse `relative_loss` does not
    fall while the diameter does.
    """

    value: float
    spread: float
    relative_loss: float

    def card(self) -> Card:
        """Whether the loss shrinks the embedding, and the figures."""
        does = "pulls the embedding together" if self.value > NO_DRIFT else "does not shrink it"
        figures = {"drift": self.value, "spread": self.spread, "relative loss": self.relative_loss}
        return Card(f"Drift: the loss {does}", figures=figures)


def drift(
    loss_fn: LossFn,
    embeddings: ArrayLike | Sequence[tuple[ArrayLike, ArrayLike]],
    labels: ArrayLike | None = None,
    *,
    normalize: bool = False,
) -> Drift:
    """<Z_c, ∇L> / mean pairwise distance, for any `loss_fn(embeddings, labels)`.

    Under gradient flow d/dt |Z_c|² = −2 <Z_c, ∇L>, with Z_c the batch about its centre. So positive
    drift pulls everything towards one point, negative spreads it, and 0 is indifferent to scale.
    For a triplet hinge it is, by Euler's identity, the mean over triplets of d_ap − d_an, counting
    only active ones, over the mean distance; for a scale-free loss it is 0. Positive drift is
    necessary for collapse, not sufficient: shrinking stops if the relative loss reaches 0 first.

    One backward pass, to the embeddings alone: parameters of the loss get no gradient. A miner
    draws from its random generator as in any call.

    Args:
        loss_fn: ours, pytorch-metric-learning's, or any callable that gives a scalar.
        embeddings: one batch `[N, dim]` with its `labels`, or several as `[(embeddings, labels)]`:
            the value is then their mean and the spread their standard deviation.
        normalize: the model ends in an L2 normalisation. Rows are normalised here and ∇L is
            projected onto the sphere's tangents: the pull towards one direction.

    >>> from uncollapse.losses import TripletLoss
    >>> z, labels = torch.tensor([[0.0], [3.0], [1.0]]), [0, 0, 1]
    >>> round(drift(TripletLoss(margin=0.2), z, labels).value, 6)  # (3 - 1 + 3 - 2) / 2, over 2
    0.75
    >>> abs(drift(TripletLoss(margin=0.2, scale_free=True), z, labels).value) < 1e-6
    True
    """
    gradients = _gradients(loss_fn, embeddings, labels, normalize)
    return _mean([radial_drift(at) for at, _ in gradients])


@dataclass(frozen=True)
class ModeDrift(Shown):
    """Rates at which a loss merges modes; NaN where the batch shows none.

    `value` is n · mean distance · <S, ∇L> / |S|²; `spread` its standard deviation over batches, NaN
    where one batch was measured once; `exact` the same with <TᵀS, ∇L> for S = TZ: minus half of
    n · mean distance · d/dt log |S|² under gradient flow. `inside` is the rate of the rest, each
    row less the mean of its neighbourhood: a loss that keeps modes and learns has it above 0.
    """

    value: float
    spread: float
    exact: float
    inside: float

    def card(self) -> Card:
        """Whether the loss merges the modes of a class, and the figures."""
        does = "merges" if self.value > MODES_KEPT else "keeps"
        return Card(f"Mode drift: the loss {does} the modes of a class", figures=vars(self))


def mode_drift(
    loss_fn: LossFn,
    embeddings: ArrayLike | Sequence[tuple[ArrayLike, ArrayLike]],
    labels: ArrayLike | None = None,
    *,
    k: int = MODE_NEIGHBOURS,
    normalize: bool = False,
) -> ModeDrift:
    """n · mean distance · <S, ∇L> / |S|², for any `loss_fn(embeddings, labels)`.

    S, the modes of the classes as nearest neighbours show them: for each of the n rows, the mean of
    itself and its `k` nearest of the same class, less the class mean of that. Positive: the loss
    merges the modes of a class. Zero or negative: it keeps them, or moves them apart. Under
    gradient flow modes shrink only while `exact` is positive, and need not vanish then. The sign is
    that of this moment: a batch after a few steps of training tells more than one of an untrained
    network. Losses whose gradients differ in scale can be compared by sign, and by
    `value / inside`, not by size. One backward pass, as for `drift`.

    A class of at most k + 1 rows is its own neighbourhood and shows no modes; where no class shows
    any, or all rows of every class coincide, the rates are NaN. Of neighbours at equal distance the
    lowest index is taken.

    Args:
        loss_fn, normalize: as for `drift`.
        embeddings: one batch `[N, dim]` with its `labels`, or several as `[(embeddings, labels)]`:
            rates are then means over those that show modes, the spread a standard deviation.
        k: neighbours of each row; fewer than a mode has rows in the batch.

    >>> from uncollapse.losses import TripletLoss
    >>> from uncollapse.mining import Miner
    >>> z = torch.tensor([[-3.0, 0], [-3, 1], [3, 0], [3, 1], [-5, 8], [-5, 9], [5, 8], [5, 9]])
    >>> labels = [0, 0, 0, 0, 1, 1, 1, 1]
    >>> for positives in ("easy", "hard"):
    ...     loss = TripletLoss(margin=9.0, miner=Miner(positives, "hard"))
    ...     print(positives, round(mode_drift(loss, z, labels, k=1).value, 2))
    easy -0.24
    hard 3.5
    """
    check_int("k", k)
    gradients = _gradients(loss_fn, embeddings, labels, normalize)
    every = [mode_rates(at, batch_labels, k) for at, batch_labels in gradients]
    return _mean([rates for rates in every if not math.isnan(rates.value)] or every[:1])


def direction_drift(loss_fn: Callable[..., Tensor], *views: ArrayLike) -> float:
    """The rate at which a loss pulls directions together, without labels: see `direction_rate`.

    Losses of self-supervised learning see directions only: their `drift` is about 0 whatever they
    do. `loss_fn(*views)` is the loss of the views' embeddings, with its predictor, stop-gradient
    and targets inside, as in training. The directions of all views count together. One backward
    pass, to the embeddings alone: parameters get no gradient. NaN where all directions are equal,
    or something is not finite.

    A batch after some 60 steps says more than one of an untrained network.

    >>> first, second = torch.eye(2), torch.tensor([[0.6, 0.8], [0.0, 1.0]])
    >>> align = lambda a, b: -torch.cosine_similarity(a, b).mean()
    >>> round(direction_drift(align, first, second), 3)
    0.686
    >>> direction_drift(lambda a, b: align(a.detach(), b.detach()), first, second)  # no gradient
    0.0
    """
    if not callable(loss_fn) or isinstance(loss_fn, type):
        raise InputError("loss_fn", f"{type(loss_fn).__name__} (swapped?)", "a loss, before views")
    if not views:
        raise InputError("views", "none", "the embeddings of one view or more")
    leaves = [points(z, "views").detach().clone().requires_grad_(True) for z in views]
    gradients = _backward(lambda: loss_fn(*leaves), leaves)[1]
    return direction_rate(torch.cat(leaves), torch.cat(gradients))


@torch.no_grad()
def direction_rate(rows: Tensor, gradient: Tensor) -> float:
    """n <U_c, g> / |U_c|² of rows `[..., dim]` and the gradient at them; one read from a device.

    U are the n rows over their norms, U_c those about their mean, g the gradient by U: that by
    the rows times their norm, projected onto the sphere's tangents. Under gradient flow of the
    directions d/dt |U_c|² = −2 <U_c, g>. So positive pulls directions together, negative spreads
    them. NaN where all directions are equal, or something is not finite.

    >>> rows, gradient = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.0, -1.0], [0, 0]])
    >>> direction_rate(rows, gradient)  # the first direction moves to the second
    2.0
    """
    rows, gradient = (x.flatten(0, -2) for x in (rows, gradient))
    rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    unit = rows / norms.clamp(min=_TINY)
    slope = gradient.to(unit.dtype) * norms
    slope = slope - (slope * unit).sum(1, keepdim=True) * unit
    about = unit - unit.mean(0)
    size = about.square().sum()
    rate = len(rows) * (about * slope).sum() / size
    known = rate.isfinite() & (size > len(rows) * (8 * torch.finfo(unit.dtype).eps) ** 2)
    return float(torch.where(known, rate, math.nan))


@dataclass(frozen=True)
class Probe:
    """Mean distance, loss over mean distance, and drift of each batch of a probe, before its step.

    Factors and `predicted` compare the first and the last fifth of the steps. `modes` has the mode
    drift of each batch, NaN for one that shows no modes.

    >>> shrinks = Probe((1.0,) * 5 + (0.5,) * 5, (1.0,) * 5 + (2.0,) * 5, (0.3,) * 10)
    >>> learns = Probe((1.0,) * 5 + (0.5,) * 5, (1.0,) * 5 + (0.1,) * 5, (0.3,) * 5 + (0.1,) * 5)
    >>> f"{shrinks.predicted:.3g} {learns.predicted:.3g}"
    '0.0312 0.354'
    """

    scales: tuple[float, ...]
    relative_losses: tuple[float, ...]
    drifts: tuple[float, ...]
    modes: tuple[float, ...] = ()

    @property
    def mode_drift(self) -> float:
        """Mode drift after the probe, the mean of its last four batches; NaN where none shows any.

        >>> Probe((), (), (), (9.0, math.nan, 1.0, 2.0, 3.0)).mode_drift
        2.0
        """
        seen = [rate for rate in self.modes[-_LAST:] if not math.isnan(rate)]
        return sum(seen) / len(seen) if seen else math.nan

    @property
    def scale_factor(self) -> float:
        """Mean distance at the end over that at the start."""
        start, end = self._ends(self.scales)
        return end / max(start, _TINY)

    @property
    def relative_loss_factor(self) -> float:
        """The same of the relative loss. In a collapse it does not fall while the scale does."""
        start, end = self._ends(self.relative_losses)
        return end / max(start, _TINY)

    @property
    def predicted(self) -> float:
        """The share of the scale that would be left in the end: see `predict_scale`."""
        return predict_scale(self.scale_factor, *self._ends(self.drifts))

    def _ends(self, values: Sequence[float]) -> tuple[float, float]:
        size = max(1, len(values) // 5)
        return sum(values[:size]) / size, sum(values[-size:]) / size


def predict_scale(left: float, drift_then: float, drift_now: float) -> float:
    """The share of the scale that will be left in the end, if the drift falls on as it fell.

    Gradient flow shrinks log(scale) at a rate proportional to the drift. If that falls by the
    factor r while the share `left` stays, and so on for ever, then log(scale) falls by
    log(left)·(1 + r + r² + ...) = log(left) / (1 - r). A drift that is gone shrinks no further; one
    that falls little, or not at all, is taken to fall by a fifth, so that log(scale) falls five
    times as far as it has: no limit at all would trust a few steps too much.

    >>> predict_scale(0.5, 0.4, 0.2), predict_scale(0.5, 0.4, 0.0), predict_scale(2.0, 0.4, 0.4)
    (0.25, 0.5, 2.0)
    """
    left = max(left, _TINY)
    if left >= 1.0 or drift_now <= NO_DRIFT:
        return left
    fall = (drift_then - drift_now) / drift_then if drift_then > 0 else 0.0
    return float(max(left ** (1.0 / min(max(fall, _STEADY), 1.0)), _TINY))


@dataclass(frozen=True)
class Stepping:
    """How a run takes its steps, for a probe that is to take such steps too.

    `optimizer` makes the optimizer of a network and a loss; `rates` are the factors on its rate at
    each step of the run, warm-up and schedule included; `max_norm` clips the norm of gradients.
    """

    optimizer: Callable[[nn.Module, nn.Module], torch.optim.Optimizer]
    rates: Sequence[float] = (1.0,)
    max_norm: float | None = None

    @classmethod
    def adam(cls, lr: float) -> Stepping:
        """Adam at a constant rate, also for what the loss learns."""
        check_number("lr", lr, 0.0)
        return cls(lambda model, loss: torch.optim.Adam([*model.parameters(), *_learned(loss)], lr))

    def factors(self, steps: int) -> list[float]:
        """For a probe of so many steps: the way up to the highest rate, then that rate.

        >>> Stepping(Stepping.adam(1e-3).optimizer, [0.25, 0.5, 0.75, 1.0, 0.9, 0.1]).factors(6)
        [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
        """
        peak = max(range(len(self.rates)), key=self.rates.__getitem__)
        climb = [self.rates[peak * n // (steps // 2)] for n in range(steps // 2)]
        return climb + [self.rates[peak]] * (steps - len(climb))


def probe(
    model: nn.Module,
    loss_fn: nn.Module,
    batches: Iterator[tuple[Tensor, Tensor]],
    steps: int = 50,
    *,
    lr: float = 1e-3,
    stepping: Stepping | None = None,
    normalize: bool = False,
) -> Probe:
    """Train a copy of the network for `steps`; the network itself is left alone.

    With Adam at the rate `lr`, or as a run would by its `stepping`: in the first half of the probe
    the rate rises as it does in the run until its highest, and stays there in the second half. A
    loss with parameters of its own (proxies, a classifier) or a memory is left alone too: a copy of
    it is trained. `normalize` as for `drift`: the embeddings that count have length 1.
    """
    check_int("steps", steps, _LEAST)
    stepping = stepping or Stepping.adam(lr)
    check_kind("model", model, nn.Module, "the network")
    keep_memory()
    trial = copy.deepcopy(model).train()
    device = next(trial.parameters(), torch.empty(0)).device
    loss_fn = copy.deepcopy(loss_fn) if _learned(loss_fn) or memories(loss_fn) else loss_fn
    optimizer = stepping.optimizer(trial, loss_fn)
    full = [group["lr"] for group in optimizer.param_groups]
    seen: list[tuple[float, float, float, float]] = []
    for factor, (samples, labels) in zip(stepping.factors(steps), batches, strict=False):
        for group, rate in zip(optimizer.param_groups, full, strict=True):
            group["lr"] = rate * factor
        z = trial(samples.to(device)).float()
        at = batch_gradient(loss_fn, z.detach(), labels, normalize)
        radial, modes = radial_drift(at), mode_rates(at, labels, MODE_NEIGHBOURS)
        seen.append((at.mean, radial.relative_loss, radial.value, modes.value))
        loss = loss_fn(z, labels)
        optimizer.zero_grad()
        loss.backward()
        if stepping.max_norm is not None:
            nn.utils.clip_grad_norm_(trial.parameters(), stepping.max_norm)
        optimizer.step()
    return Probe(*zip(*seen, strict=True))


def _learned(loss_fn: object) -> list[nn.Parameter]:
    """The parameters that a loss learns; none for a function."""
    every = loss_fn.parameters() if isinstance(loss_fn, nn.Module) else ()
    return [p for p in every if p.requires_grad]


class BatchGradient(NamedTuple):
    """Rows about their centre, ∇L at them, their distances and the mean of these, and the loss.

    All of it on the CPU, wherever the batch is.
    """

    rows: Tensor
    slope: Tensor
    distances: Tensor
    mean: float
    loss: float

    @classmethod
    def of(cls, z: Tensor, slope: Tensor, loss: float) -> BatchGradient:
        """Of rows whose gradient is known."""
        rows = centre(z)
        distances = pairwise_distances(rows)
        mean = float(distances.sum()) / max(len(rows) * (len(rows) - 1), 1)
        return cls(rows, slope.to(rows.dtype), distances, mean, loss)


def batch_gradient(
    loss_fn: LossFn, z: ArrayLike, labels: ArrayLike, normalize: bool = False
) -> BatchGradient:
    """One backward pass, to the embeddings alone; on the sphere if `normalize`.

    Rows are then normalised first, and ∇L is projected onto the sphere's tangents. A memory in the
    loss is read, not written.

    >>> at = batch_gradient(lambda x, y: x.square().sum(), torch.tensor([[1.0], [3.0]]), [0, 0])
    >>> at.rows.flatten().tolist(), at.slope.flatten().tolist(), at.mean, at.loss
    ([-1.0, 1.0], [2.0, 6.0], 2.0, 10.0)
    """
    leaf = points(z, "embeddings", min_rows=2).detach()
    if check_bool("normalize", normalize):
        leaf = torch.nn.functional.normalize(leaf, dim=1)
    leaf = leaf.clone().requires_grad_(True)
    with reading(loss_fn):
        loss, (gradient,) = _backward(lambda: loss_fn(leaf, labels), [leaf])
    unit, gradient, cost = to_host(leaf, gradient, loss)
    if normalize:
        unit, gradient = unit.double(), gradient.double()
        gradient = gradient - (gradient * unit).sum(1, keepdim=True) * unit
    return BatchGradient.of(unit, gradient, float(cost))


def _backward(loss_of: Callable[[], Tensor], leaves: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """The loss, and its gradients by the leaves: zeros for one that it does not depend on."""
    with torch.enable_grad():
        loss = loss_of()
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        shape = f" of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else ""
        raise InputError("loss_fn", f"a {type(loss).__name__}{shape} from it", "one number: a mean")
    if not loss.requires_grad:
        return loss, [torch.zeros_like(leaf) for leaf in leaves]
    weight = torch.ones_like(loss)
    return loss, list(torch.autograd.grad(loss, leaves, weight, materialize_grads=True))


def radial_drift(at: BatchGradient) -> Drift:
    """Drift of one batch whose gradient is known; 0 for one that is a point."""
    if at.mean == 0.0:
        return Drift(0.0, math.nan, math.inf if at.loss > 0 else 0.0)
    return Drift(float((at.rows * at.slope).sum()) / at.mean, math.nan, at.loss / at.mean)


def known_drift(rows: Tensor, slope: Tensor) -> float | None:
    """Drift by a gradient that is known; None for a point, or where something is not finite."""
    if not bool(rows.isfinite().all() & slope.isfinite().all()):
        return None
    at = BatchGradient.of(rows, slope, 0.0)
    return radial_drift(at).value if at.mean > 0 else None


def mode_rates(at: BatchGradient, labels: ArrayLike, k: int) -> ModeDrift:
    """Mode drift of one batch whose gradient is known."""
    n, smallest = len(at.rows), _ROUNDING * torch.finfo(at.rows.dtype).eps
    layout = ClassLayout.of(labels, n)
    # In units of the mean distance, so that no square under- or overflows.
    rows = at.rows / (at.mean or 1.0)
    neighbourhoods = _neighbourhoods(at.distances, layout, k)
    means = torch.empty_like(rows)
    for members, near in neighbourhoods:
        # AZ, about the row itself: differences keep a mode whose rows coincide exactly in place.
        own = rows[members]
        means[members] = own + (rows[near] - own[:, None]).mean(1)
    modes = _about_class_mean(means, layout)
    size, whole = float(modes.square().sum()), float(rows.square().sum())
    if size <= smallest**2 * whole:
        return ModeDrift(math.nan, math.nan, math.nan, math.nan)
    # S = PAZ, where A averages over neighbourhoods and P subtracts class means: TᵀS = Aᵀ P S = AᵀS.
    back = torch.zeros_like(modes)
    for members, near in neighbourhoods:
        share = modes[members] / near.shape[1]
        back.index_add_(0, near.flatten(), share.repeat_interleave(near.shape[1], dim=0))
    value, exact = (n * float((part * at.slope).sum()) / size for part in (modes, back))
    inside = rows - means
    left = float(inside.square().sum())
    rate = n * float((inside * at.slope).sum()) / left if left > smallest**2 * whole else 0.0
    return ModeDrift(value, math.nan, exact, rate)


def _neighbourhoods(distances: Tensor, layout: ClassLayout, k: int) -> list[tuple[Tensor, Tensor]]:
    """For each class its rows, and for each of them itself and its k nearest of the class."""
    pairs = []
    for c in range(len(layout.classes)):
        rows = torch.from_numpy(layout.members(c)).to(distances.device)
        among = distances[rows[:, None], rows].fill_diagonal_(-1.0)  # itself before its copies
        order = among.argsort(dim=1, stable=True)[:, : min(k + 1, len(rows))]
        pairs.append((rows, rows[order]))
    return pairs


def _about_class_mean(rows: Tensor, layout: ClassLayout) -> Tensor:
    ids, counts = (torch.from_numpy(x).to(rows.device) for x in (layout.ids, layout.counts))
    sums = rows.new_zeros(len(layout.classes), rows.shape[1]).index_add_(0, ids, rows)
    return rows - (sums / counts.to(rows.dtype)[:, None])[ids]


def _gradients(
    loss_fn: LossFn,
    embeddings: ArrayLike | Sequence[tuple[ArrayLike, ArrayLike]],
    labels: ArrayLike | None,
    normalize: bool,
) -> list[tuple[BatchGradient, ArrayLike]]:
    """The gradient of one batch, or of each of several, with its labels."""
    if not callable(loss_fn) or isinstance(loss_fn, type):
        allowed = "a loss, before embeddings and labels"
        raise InputError("loss_fn", f"{type(loss_fn).__name__} (swapped?)", allowed)
    batches: Any = embeddings if labels is None else [(embeddings, labels)]
    pairs = batches if isinstance(batches, list | tuple) else []
    if not pairs or not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        raise InputError("labels", None, "one label per row, or several (embeddings, labels)")
    return [(batch_gradient(loss_fn, z, y, normalize), y) for z, y in pairs]


def _mean(batches: Sequence[_Rates]) -> _Rates:
    """The means over batches, and the standard deviation of `value`; NaN for one batch."""
    values = [batch.value for batch in batches]
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
    means = np.mean([list(vars(batch).values()) for batch in batches], axis=0).tolist()
    return replace(type(batches[0])(*means), spread=deviation)


def has_unit_rows(z: Tensor) -> bool:
    """Whether all rows have length 1, so that only their directions can be pulled together.

    >>> has_unit_rows(torch.eye(3)), has_unit_rows(torch.ones(3, 2).double())
    (True, False)
    """
    norms = torch.linalg.vector_norm(z.detach().float(), dim=1)
    return bool((norms - 1.0).abs().max() < 1e-4)


@contextmanager
def filled_memories(loss_fn: object, batches: Iterable[tuple[Tensor, Tensor]]) -> Iterator[None]:
    """Fill the memories of a loss with the first of these embeddings; restore them on exit.

    Takes no more batches than the largest memory has room for, and none without a memory.

    >>> import torch
    >>> from uncollapse.losses import ContrastiveLoss, CrossBatchMemory
    >>> loss = CrossBatchMemory(ContrastiveLoss(), 3)
    >>> with filled_memories(loss, [(torch.eye(2), torch.tensor([0, 1]))] * 9):
    ...     len(loss.memory)
    3
    >>> len(loss.memory)
    0
    """
    inside = memories(loss_fn)
    kept = [memory.kept() for memory in inside]
    room = max((memory.size for memory in inside), default=0)
    try:
        for memory in inside:
            memory.reset()
        for z, labels in batches if room else ():
            for memory in inside:
                memory.enqueue(z, labels)
            room -= len(z)
            if room <= 0:
                break
        for memory in inside:
            memory.calls = memory.calls.clamp(min=memory.after)
        yield
    finally:
        for memory, then in zip(inside, kept, strict=True):
            memory.put_back(then)
