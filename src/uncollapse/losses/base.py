"""The contract of every loss, and what they share: tuples, elements, reductions, gradients."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from uncollapse._base.arrays import ArrayLike, eager, label_array
from uncollapse._base.check import InputError, check_choice, check_number
from uncollapse.distances.batch import Batch
from uncollapse.distances.frame import working_dtype
from uncollapse.distances.tiles import difference_norms, known_distances
from uncollapse.mining.miner import Miner
from uncollapse.mining.tuples import Pairs, Triplets, Tuples, as_pairs, as_triplets, checked_tuples

__all__ = [
    "Elements",
    "Loss",
    "NamedClasses",
    "Wrapper",
    "attach",
    "check_columns",
    "cosines",
    "graph_rows",
    "innermost",
    "log_sum",
    "log_sum_by",
    "mean_or_zero",
    "nonzero_mean",
    "on_sphere",
    "pair_distances",
    "pair_mask",
]


_NONE = -1e30  # exponent of what is not there
_TINY = 1e-300


class Elements(NamedTuple):
    """One entry per tuple of the batch; which tuples there are is the loss's own (see its docs).

    `loss`: what the tuple costs, on the graph. `pull`: how hard its positive part pulls, off the
    graph (a distance, or minus a similarity; the larger, the harder the positive), -inf where the
    tuple has no positive part. `anchor`: the row it belongs to.
    """

    loss: Tensor
    pull: Tensor
    anchor: Tensor

    def take(self, index: Tensor) -> Elements:
        """Some of the tuples, by mask or index."""
        return Elements(self.loss[index], self.pull[index], self.anchor[index])


class Loss(nn.Module, ABC):
    """What a batch of embeddings costs: losses of tuples, reduced to a number.

    `loss(embeddings, labels)` takes the tuples of its `miner`, or all of the batch without one;
    `loss(embeddings, labels, tuples)` those it is given, ours or PML's, and needs no labels then
    (except where a class has a parameter of its own, or the loss compares classes itself). With
    `ref_embeddings` and `ref_labels` the positives and negatives are rows of those. `sample_ids`
    are the rows' numbers in the dataset, for a `MarginLoss` with one β per sample.

    `normalize` says whether embeddings are divided by their norms first; the miner then sees the
    same. A subclass gives `listed` and may give `reduce`, and `value` a faster way.
    """

    reductions: ClassVar[tuple[str, ...]] = ("mean",)
    words: ClassVar[dict[str, tuple[str, ...]]] = {}  # further settings that are one of some words
    numbers: ClassVar[dict[str, tuple[float, float]]] = {}  # those that are numbers, and their span
    labels_needed = False
    labels_used = True

    def __init__(
        self,
        *,
        miner: nn.Module | None = None,
        normalize: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.miner, self.normalize, self.reduction = miner, normalize, reduction

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "miner" and not isinstance(value, nn.Module | None):
            raise InputError(name, type(value).__name__, "a module: a Miner, or one of PML's")
        if name == "reduction":
            check_choice(name, value, self.reductions)
        elif name in self.words:
            check_choice(name, value, self.words[name])
        elif name in self.numbers:
            value = check_number(name, value, *self.numbers[name])
        if name == "distance" and value == "cosine":
            self.normalize = True
        super().__setattr__(name, value)

    @eager
    def forward(
        self,
        embeddings: ArrayLike,
        labels: ArrayLike | None = None,
        tuples: Tuples | None = None,
        ref_embeddings: ArrayLike | None = None,
        ref_labels: ArrayLike | None = None,
        *,
        sample_ids: ArrayLike | None = None,
        indices_tuple: Tuples | None = None,
        ref_emb: ArrayLike | None = None,
    ) -> Tensor:
        """Loss of a batch, a scalar of the embeddings' dtype (float32 for half precision).

        `indices_tuple` and `ref_emb` are PML's names of `tuples` and `ref_embeddings`.
        """
        tuples = indices_tuple if tuples is None else tuples
        references = ref_emb if ref_embeddings is None else ref_embeddings
        known = isinstance(embeddings, Tensor) and not embeddings.is_meta
        device = embeddings.device.type if known else "cpu"  # type: ignore[union-attr]
        # No autocast inside: a product in bfloat16 has no digits left for a small distance.
        with torch.autocast(device, enabled=False):
            checked = self._checked(embeddings, labels, tuples, references, ref_labels, sample_ids)
            return self.value(*checked)

    def elements(
        self,
        embeddings: ArrayLike,
        labels: ArrayLike | None = None,
        tuples: Tuples | None = None,
        ref_embeddings: ArrayLike | None = None,
        ref_labels: ArrayLike | None = None,
        *,
        sample_ids: ArrayLike | None = None,
    ) -> Elements:
        """The losses of the batch's tuples, before they are reduced; arguments as in a call."""
        references = (ref_embeddings, ref_labels)
        return self.listed(*self._checked(embeddings, labels, tuples, *references, sample_ids))

    def _checked(
        self,
        embeddings: ArrayLike,
        labels: ArrayLike | None,
        tuples: Tuples | None,
        references: ArrayLike | None,
        ref_labels: ArrayLike | None,
        sample_ids: ArrayLike | None,
    ) -> tuple[Batch, Triplets | Pairs | None]:
        if labels is None and self.labels_used and (tuples is None or self.labels_needed):
            why = "labels, one for each row" + (
                " where no tuples are given" if tuples is None else ""
            )
            raise InputError("labels", None, why)
        batch = Batch.of(
            embeddings,
            self.numbered(labels),
            references,
            self.numbered(ref_labels) if labels is not None else None,
            sample_ids=sample_ids,
            normalize=self.normalize,
        )
        if tuples is None:
            return batch, None
        device = batch.rows.device
        return batch, checked_tuples(tuples, batch.count, batch.candidates, device)

    def numbered(self, labels: ArrayLike | None) -> ArrayLike | None:
        """Labels as this loss keeps them: rows of its parameters, where classes have some."""
        return labels

    def value(self, batch: Batch, tuples: Triplets | Pairs | None) -> Tensor:
        """The loss of a checked batch."""
        return self.reduce(self.listed(batch, tuples))

    @abstractmethod
    def listed(self, batch: Batch, tuples: Triplets | Pairs | None) -> Elements:
        """The losses of the batch's tuples: those given, else the miner's, else all."""

    def reduce(self, elements: Elements) -> Tensor:
        """The loss of the batch, from the losses of its tuples."""
        return (nonzero_mean if self.reduction == "nonzero" else mean_or_zero)(elements.loss)

    def extra_repr(self) -> str:
        """The settings; the miner is shown as the module it is."""
        hidden = ("training", "miner", "generator")
        shown = {k: v for k, v in vars(self).items() if k[0] != "_" and k not in hidden}
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())

    def mined(self, batch: Batch) -> Triplets | Pairs | None:
        """What the miner names; None without a miner."""
        if self.miner is None:
            return None
        if isinstance(self.miner, Miner):
            return self.miner.mine(batch)
        rows = graph_rows(batch, self.normalize).detach()
        x, *references = rows[: batch.count], rows[batch.count :]
        further = [references[0], batch.ref_labels] if batch.offset else []
        found = self.miner(x, batch.labels, *further)
        return checked_tuples(found, batch.count, batch.candidates, batch.rows.device)

    def triplets(self, batch: Batch, tuples: Triplets | Pairs | None) -> Triplets:
        """Triplets of rows: the anchor's, and those of its positive and its negative."""
        found = self.mined(batch) if tuples is None else tuples
        if not isinstance(found, Triplets):
            found = as_triplets(found, *_labels_of(batch, found))
        if not batch.offset:
            return found
        return Triplets(found.anchor, found.positive + batch.offset, found.negative + batch.offset)

    def pairs(
        self, batch: Batch, tuples: Triplets | Pairs | None, *, unique: bool = False
    ) -> Pairs:
        """Pairs of rows, positive and negative ones."""
        found = self.mined(batch) if tuples is None else tuples
        a, p, b, n = as_pairs(found, *_labels_of(batch, found), unique=unique)
        return Pairs(a, p + batch.offset, b, n + batch.offset)

    def pair_masks(
        self, batch: Batch, tuples: Triplets | Pairs | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Positive pairs as (anchor, candidate), and the negative ones as `[N, M]`; each once."""
        found = self.mined(batch) if tuples is None else tuples
        if found is None and batch.labels is not None:
            classes = batch.classes
            table, real = classes.table
            negative = batch.labels[:, None] != (
                batch.labels if batch.ref_labels is None else batch.ref_labels
            )
            anchor, place = real.nonzero(as_tuple=True)
            return anchor, table[anchor, place], negative
        a, p, b, n = as_pairs(found, *_labels_of(batch, found), unique=True)
        negative = torch.zeros(
            (batch.count, batch.candidates), dtype=torch.bool, device=batch.rows.device
        )
        negative[b, n] = True
        return a, p, negative


class Wrapper(Loss):
    """A loss around another: it passes the contract on, and every setting it has not itself.

    `wrapper.miner`, `wrapper.scale_free` and the like are the inner loss's, to read and to set.
    """

    own: ClassVar[tuple[str, ...]] = ("inner", "training")

    def __init__(self, loss: Loss) -> None:
        if not isinstance(loss, Loss):
            raise InputError("loss", type(loss).__name__, "one of the losses of uncollapse.losses")
        nn.Module.__init__(self)
        self.inner = loss

    def __getattr__(self, name: str) -> Any:
        if name[:1] == "_" or name in self.own:
            return super().__getattr__(name)
        return getattr(super().__getattr__("inner"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name[:1] == "_" or name in self.own:
            super().__setattr__(name, value)
        else:
            setattr(self.inner, name, value)

    @property
    def reductions(self) -> tuple[str, ...]:  # type: ignore[override]
        """As the inner loss."""
        return self.inner.reductions

    @property
    def labels_needed(self) -> bool:  # type: ignore[override]
        """As the inner loss."""
        return self.inner.labels_needed

    def numbered(self, labels: ArrayLike | None) -> ArrayLike | None:
        """As the inner loss does."""
        return self.inner.numbered(labels)

    def reduce(self, elements: Elements) -> Tensor:
        """As the inner loss does."""
        return self.inner.reduce(elements)


def innermost(loss: object) -> object:
    """The loss inside all wrappers; anything else is itself."""
    while isinstance(loss, Wrapper):
        loss = loss.inner
    return loss


def _labels_of(batch: Batch, found: Triplets | Pairs | None) -> tuple[Tensor | None, Tensor | None]:
    """Labels to take every tuple of, where none were found; tuples in hand need no check again."""
    return (batch.labels, batch.ref_labels) if found is None else (None, None)


def graph_rows(batch: Batch, sphere: bool) -> Tensor:
    """The rows in the working dtype, on the graph, of length 1 if asked; a zero row stays 0."""
    wide = batch.rows.to(working_dtype(batch.rows))
    return on_sphere(wide) if sphere else wide


def on_sphere(wide: Tensor) -> Tensor:
    """Rows over their norms, on the graph; a zero row stays 0."""
    whole = (wide != 0).any(1, keepdim=True)
    # A zero row's norm has no second derivative: it is kept out of the norms, not of their result.
    norm = torch.linalg.vector_norm(wide.masked_fill(~whole, 1.0), dim=1, keepdim=True)
    unit: Tensor = wide / norm * whole
    return unit


def pair_distances(
    rows: Tensor, i: Tensor, j: Tensor, *, reach: float, squared: bool = False, offset: int = 0
) -> Tensor:
    """Distances of rows i to rows j: by differences, or out of the matrix if that is smaller.

    With an `offset` all i are below it and no j is: anchors and references.
    """
    if len(i) == 0:
        return rows[i].sum(1)
    start, others = (offset, len(rows) - offset) if offset else (len(rows), len(rows))
    if len(i) * rows.shape[1] <= start * others:
        return difference_norms(rows[i] - rows[j], squared=squared)
    further = rows[offset:] if offset else None
    return known_distances(rows[:start], further, reach=reach, squared=squared)[i, j - offset]


def cosines(batch: Batch) -> Tensor:
    """Cosines of the anchors to the candidates, on the graph, as 1 - d²/2.

    Exact where the rows nearly coincide.
    """
    rows, reach = graph_rows(batch, sphere=True), batch.reach
    square = (
        known_distances(rows[: batch.count], rows[batch.offset :], squared=True, reach=reach)
        if batch.offset
        else known_distances(rows, squared=True, reach=reach)
    )
    return 1.0 - 0.5 * square


def log_sum(exponent: Tensor) -> Tensor:
    """log Σ exp of each row, -inf for what is not in it; gradients stay finite in a row of none."""
    if exponent.numel() == 0:
        return exponent.sum(1)
    found: Tensor = _LogSum.apply(exponent)  # type: ignore[no-untyped-call]
    return found


def _plain_log_sum(exponent: Tensor) -> Tensor:
    shift = exponent.detach().amax(1, keepdim=True).clamp(min=_NONE)
    return (exponent - shift).exp().sum(1).clamp(min=_TINY).log() + shift[:, 0]


class _LogSum(torch.autograd.Function):
    """`_plain_log_sum`, with half the passes over the matrix."""

    @staticmethod
    def forward(ctx: Any, exponent: Tensor) -> Tensor:
        shift = exponent.amax(1, keepdim=True).clamp(min=_NONE)
        share = (exponent - shift).exp_()
        total = share.sum(1, keepdim=True).clamp_(min=_TINY)
        ctx.save_for_backward(exponent, share.div_(total))
        return (total.log() + shift)[:, 0]

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        exponent, share = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted
            value = _plain_log_sum(exponent)
            by: Tensor = torch.autograd.grad(value, exponent, slope, create_graph=True)[0]
        else:
            by = share * slope[:, None]
        return by


def log_sum_by(exponent: Tensor, group: Tensor, groups: int) -> Tensor:
    """log Σ exp over the entries of each group; gradients stay finite where a group has none."""
    shift = exponent.new_full((groups,), _NONE)
    shift = shift.scatter_reduce_(0, group, exponent.detach(), "amax")
    total = torch.zeros_like(shift).index_add(0, group, (exponent - shift[group]).exp())
    return total.clamp(min=_TINY).log() + shift


def pair_mask(like: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Which pairs are named, in the shape of a matrix."""
    mask = torch.zeros_like(like, dtype=torch.bool)
    mask[i, j] = True
    return mask


def mean_or_zero(loss: Tensor) -> Tensor:
    """Mean, or a zero on the graph when there is nothing."""
    return loss.sum() / max(len(loss), 1)


def nonzero_mean(loss: Tensor) -> Tensor:
    """Mean of the entries above 0, or a zero on the graph when there are none."""
    return loss.sum() / (loss.detach() > 0).sum().clamp(min=1)


def attach(
    batch: Batch, value: Tensor, gradient: Tensor, plain: Callable[[Batch], Tensor]
) -> Tensor:
    """A scalar of the rows' dtype, whose backward pass hands `gradient` to the rows.

    `gradient` is by the rows as the batch's frame sees them. `plain` is the same loss on the graph,
    as slow as it may be: it is asked where the gradient's own derivative is wanted.
    """
    given = batch.frame.pull_back(gradient).to(batch.rows.dtype)
    scalar = value.to(batch.rows.dtype)
    return _Attach.apply(batch.rows, scalar, given, batch, plain)  # type: ignore[no-any-return,no-untyped-call]


class _Attach(torch.autograd.Function):
    """Value and gradient were computed together; backward only scales the gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        value: Tensor,
        gradient: Tensor,
        batch: Batch,
        plain: Callable[[Batch], Tensor],
    ) -> Tensor:
        ctx.save_for_backward(rows, gradient)
        ctx.batch, ctx.plain = batch, plain
        return value.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None, None]:
        rows, gradient = ctx.saved_tensors
        if torch.is_grad_enabled() and rows.requires_grad:  # a second derivative is wanted
            value = ctx.plain(replace(ctx.batch, rows=rows))
            (gradient,) = torch.autograd.grad(value, rows, create_graph=True)
        return gradient * upstream, None, None, None, None


# Parameters with a row per class: whose row is which, and how many columns it has.


class NamedClasses(nn.Module):
    """Numbers names 0 to `size` - 1 as they first come; numbers stay what they are.

    The names of one batch are numbered in their order, so that its rows may come in any. What was
    numbered is part of the state, so that a restored loss finds the same rows again. Processes that
    train together see different batches first: there names are refused.

    >>> classes = NamedClasses(3)
    >>> classes.numbers(["b", "a", "b"]), classes.numbers(["c", "a"]), classes.numbers([7])
    (tensor([1, 0, 1]), tensor([2, 0]), [7])
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.known: dict[str | int, int] = {}

    def numbers(self, labels: ArrayLike | None) -> ArrayLike | None:
        """Labels as the rows of the parameter."""
        if labels is None or isinstance(labels, Tensor):
            return labels
        array = label_array(labels)
        if array.dtype.kind in "iufb":
            return labels
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            given = "names, in one of several processes"
            raise InputError("labels", given, f"whole numbers in 0..{self.size - 1}")
        names = [n if isinstance(n, str | int) else str(n) for n in array.tolist()]
        fresh = sorted(set(names) - set(self.known), key=lambda name: (str(type(name)), name))
        if len(self.known) + len(fresh) > self.size:
            given = f"{len(self.known) + len(fresh)} names so far, {fresh[-1]!r} among them"
            raise InputError("labels", given, f"at most {self.size} classes, as the loss has")
        self.known |= {name: number for number, name in enumerate(fresh, len(self.known))}
        return torch.tensor([self.known[name] for name in names])

    def get_extra_state(self) -> Tensor:
        """The names in their order, as the bytes of JSON: a state of tensors goes everywhere."""
        text = json.dumps(list(self.known)) if self.known else ""
        return torch.tensor(list(text.encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Take over the names of a saved loss."""
        names = json.loads(bytes(state.tolist())) if len(state) else []
        self.known = {name: number for number, name in enumerate(names)}


def check_columns(given: int, dim: int, classes: int, of: str) -> None:
    """Raise unless embeddings have as many columns as the parameter.

    >>> check_columns(10, 4, 10, "the proxies have")
    Traceback (most recent call last):
    uncollapse._base.check.InputError: embeddings: expected 4 as the proxies have (dim), got 10
    columns (logits, one per class? the loss takes what comes before them)
    """
    if given != dim:
        hint = " (logits, one per class? the loss takes what comes before them)" * (
            given == classes
        )
        raise InputError("embeddings", f"{given} columns{hint}", f"{dim} as {of} (dim)")
