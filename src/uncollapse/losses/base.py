"""The contract of every loss, and what they share: tuples, elements, reductions, gradients."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from uncollapse._base.arrays import ArrayLike, eager
from uncollapse._base.check import Choice as Choice
from uncollapse._base.check import InputError, Setting, check_bool
from uncollapse._base.check import Number as Number
from uncollapse.distances.frame import Batch as Batch
from uncollapse.distances.frame import on_host as on_host
from uncollapse.losses.on_graph import PairSets, among, graph_rows, mean_or_zero, pair_distances
from uncollapse.losses.on_graph import pair_mask as pair_mask
from uncollapse.mining.miner import Miner
from uncollapse.mining.tuples import Pairs, Triplets, Tuples, as_pairs, as_triplets, checked_tuples
from uncollapse.mining.tuples import every_pair as every_pair
from uncollapse.mining.tuples import label_masks as label_masks

ALL = Miner("all", "all")  # warns once why a batch has no triplet
Named = Triplets | Pairs | None  # the tuples a loss is given; None: it chooses them itself


class Elements(NamedTuple):
    """One entry per tuple of the batch; each loss's docs say which tuples there are.

    `loss`: what the tuple costs, on the graph. `pull`: how hard its positive part pulls, off the
    graph (a distance, or minus a similarity; the larger, the harder the positive), -inf where the
    tuple has no positive part. `anchor`: the row it belongs to, ascending. `real`: which entries
    are tuples, inside a loss on a device, where nobody waits to know how many; None: all.
    """

    loss: Tensor
    pull: Tensor
    anchor: Tensor
    real: Tensor | None = None

    def take(self, mask: Tensor | None) -> Elements:
        """The tuples of a mask, None for all; on a device the others are left, as not `real`."""
        if mask is not None and on_host(mask):
            return Elements(*(values[mask] for values in self[:3]))
        pull = among(self.pull, mask, -torch.inf)
        return Elements(among(self.loss, mask), pull, self.anchor, mask)

    def listed(self) -> Elements:
        """The tuples alone."""
        return self if self.real is None else Elements(*(x[self.real] for x in self[:3]))


class DistanceChoice(Choice):
    """The distance a loss uses; `"cosine"` sets `normalize`."""

    def __init__(self) -> None:
        super().__init__("euclidean", "squared", "cosine")

    def __set__(self, loss: Any, value: str) -> None:
        if value in self.words[1:] and getattr(loss, "scale_free", False):
            raise InputError("distance", repr(value), "'euclidean' where scale_free is set")
        super().__set__(loss, value)
        if value == "cosine":
            loss.normalize = True


@dataclass(frozen=True)
class LossInfo:
    """What the rest of the package and the tests need to know of a loss: see `registry`.

    `name` is its name in a config. `cases` are the rows of a drift table: a title and the settings
    of each, where `normalize` applies to the measured rows. `gentle` are settings at which finite
    differences resolve its derivatives. `pml` is PML's name for it, if it has another.
    """

    name: str
    cases: Mapping[str, Mapping[str, Any]]
    gentle: Mapping[str, Any] = field(default_factory=dict)
    pml: str | None = None


class Loss(nn.Module, ABC):
    """What a batch of embeddings costs: `loss(embeddings, labels)` is a number.

    `normalize` says whether embeddings are divided by their norms first. A subclass gives `value`.
    """

    normalize = Setting(check_bool)
    _normalize = False  # until a loss sets it
    labels_needed = False  # also where tuples are given
    labels_used = True

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
        with without_autocast(embeddings):
            return self.value(
                *self.checked(embeddings, labels, tuples, references, ref_labels, sample_ids)
            )

    def checked(
        self,
        embeddings: ArrayLike,
        labels: ArrayLike | None,
        tuples: Tuples | None = None,
        ref_embeddings: ArrayLike | None = None,
        ref_labels: ArrayLike | None = None,
        sample_ids: ArrayLike | None = None,
    ) -> tuple[Batch, Named]:
        """The arguments of a call as a batch and its tuples; raises `InputError`."""
        if labels is None and self.labels_used and (tuples is None or self.labels_needed):
            where = " where no tuples are given" if tuples is None else ""
            raise InputError("labels", None, f"labels, one for each row{where}")
        batch = Batch.of(
            embeddings,
            self.numbered(labels),
            ref_embeddings,
            self.numbered(ref_labels) if labels is not None else None,
            sample_ids=sample_ids,
            normalize=self.normalize,
        )
        if tuples is None:
            return batch, None
        return batch, checked_tuples(tuples, batch.count, batch.candidates, batch.rows.device)

    def numbered(self, labels: ArrayLike | None) -> ArrayLike | None:
        """Labels as this loss keeps them: rows of its parameters, where classes have some."""
        return labels

    @abstractmethod
    def value(self, batch: Batch, tuples: Named) -> Tensor:
        """The loss of a checked batch."""

    def extra_repr(self) -> str:
        """The settings: every argument of the class that is kept as a word or a number."""
        arguments = inspect.signature(type(self)).parameters
        settings = {name: getattr(self, name, None) for name in arguments}
        shown = {k: v for k, v in settings.items() if isinstance(v, str | float | int | tuple)}
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())


def without_autocast(embeddings: ArrayLike) -> torch.autocast:
    """No autocast inside: a product in bfloat16 has no digits left for a small distance."""
    known = isinstance(embeddings, Tensor) and not embeddings.is_meta
    device = embeddings.device.type if known else "cpu"  # type: ignore[union-attr]
    return torch.autocast(device, enabled=False)


class _MinerSetting:
    """The miner, a submodule: torch stores modules itself and calls this for anything else."""

    def __get__(self, loss: nn.Module | None, owner: type) -> Any:
        return self if loss is None else loss._modules.get("miner")

    def __set__(self, loss: nn.Module, value: nn.Module | None) -> None:
        if value is not None:
            raise InputError("miner", type(value).__name__, "a module: a Miner, or one of PML's")


class TupleLoss(Loss):
    """Losses of tuples, reduced to a number.

    `loss(embeddings, labels)` takes the tuples of its `miner`, or all of the batch without one;
    `loss(embeddings, labels, tuples)` those it is given, ours or PML's, and needs no labels then
    (except where a class has a parameter of its own, or the loss compares classes itself). With
    `ref_embeddings` and `ref_labels` the positives and negatives are rows of those. `sample_ids`
    are the rows' numbers in the dataset, for a `MarginLoss` with one β per sample.

    With `normalize` the miner sees normalised embeddings too. A subclass gives `listed` and may
    give `reduce`, and `value` a faster way.
    """

    info: ClassVar[LossInfo]  # of the losses in the registry
    # The loss, without a miner, where all similarities are `cosine` (1: all rows are equal), those
    # with class vectors too: a formula of settings and of sizes of the batch, which
    # `health.resting.declared` evaluates; nan where it is not one value.
    resting: ClassVar[str] = "nan"
    miner = _MinerSetting()
    reduction: Setting[str] = Choice("mean")

    def __init__(
        self, *, miner: nn.Module | None = None, normalize: bool = False, reduction: str = "mean"
    ) -> None:
        super().__init__()
        self.miner, self.normalize, self.reduction = miner, normalize, reduction

    def elements(self, *args: Any, **kwargs: Any) -> Elements:
        """The losses of the batch's tuples, before they are reduced; arguments as in a call."""
        return self.listed(*self.checked(*args, **kwargs)).listed()

    def value(self, batch: Batch, tuples: Named) -> Tensor:
        """The loss of a checked batch."""
        return self.reduce(self.listed(batch, tuples))

    @abstractmethod
    def listed(self, batch: Batch, tuples: Named) -> Elements:
        """The losses of the batch's tuples: those given, else the miner's, else all."""

    def reduce(self, elements: Elements) -> Tensor:
        """The loss of the batch, from the losses of its tuples."""
        return mean_or_zero(elements.loss, elements.real, nonzero=self.reduction == "nonzero")

    def mined(self, batch: Batch) -> Named:
        """What the miner names; None without a miner."""
        if self.miner is None:
            return None
        if isinstance(self.miner, Miner):
            return self.miner.mine(batch)
        rows = graph_rows(batch, self.normalize).detach()
        references = [rows[batch.count :], batch.ref_labels] if batch.offset else []
        named = self.miner(rows[: batch.count], batch.labels, *references)
        return checked_tuples(named, batch.count, batch.candidates, batch.rows.device)

    def triplets(self, batch: Batch, tuples: Named) -> Triplets:
        """Triplets of rows: the anchor's, and those of its positive and its negative."""
        named = self.mined(batch) if tuples is None else tuples
        if named is None:
            named = every_pair(batch) if on_host(batch.rows) else ALL.mine(batch)
        if not isinstance(named, Triplets):
            named = as_triplets(named)
        if not batch.offset:
            return named
        return Triplets(named.anchor, named.positive + batch.offset, named.negative + batch.offset)

    def pairs(
        self, batch: Batch, tuples: Named, kind: str = "euclidean"
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Positive pairs, then negative ones: their anchors, distances, and which are positive."""
        named = self.mined(batch) if tuples is None else tuples
        a, p, b, n = every_pair(batch) if named is None else as_pairs(named)
        anchor, other = torch.cat([a, b]), torch.cat([p, n]) + batch.offset
        rows = graph_rows(batch, self.normalize)
        distance = pair_distances(
            rows, anchor, other, reach=batch.reach, kind=kind, offset=batch.offset
        )
        return anchor, distance, torch.arange(len(anchor), device=anchor.device) < len(a)

    def pair_sets(self, batch: Batch, tuples: Named) -> PairSets:
        """The positive and the negative pairs: those given, else the miner's, else all."""
        named = self.mined(batch) if tuples is None else tuples
        if named is None:
            positive, negative = label_masks(batch)
        else:
            a, p, b, n = as_pairs(named)
            positive, negative = pair_mask(batch, a, p), pair_mask(batch, b, n)
        foreign = tuples is not None or not isinstance(self.miner, Miner | None)
        if foreign or on_host(positive):
            anchor, other = positive.nonzero(as_tuple=True)
            return PairSets(anchor, other, positive, negative)
        table, real = batch.classes.table
        anchor = torch.arange(batch.count, device=table.device)[:, None].expand_as(table)
        real = real & positive.gather(1, table)
        return PairSets(anchor.flatten(), table.flatten(), positive, negative, real.flatten())


def sum_of_means(elements: Elements, *, nonzero: bool = False) -> Tensor:
    """Mean of the tuples with a positive part, and of those without, added."""
    loss, pull, _, real = elements
    positive = pull > -torch.inf
    negative = ~positive if real is None else real & ~positive
    pulled = mean_or_zero(loss, positive, nonzero=nonzero)
    return pulled + mean_or_zero(loss, negative, nonzero=nonzero)


class Wrapper(Loss):
    """A loss around another, `inner`, whose settings stay its own: `wrapper.inner.margin`."""

    inner: Loss

    def __init__(self, loss: Loss) -> None:
        if not isinstance(loss, Loss):
            raise InputError("loss", type(loss).__name__, "one of the losses of uncollapse.losses")
        nn.Module.__init__(self)
        self.inner = loss

    @property
    def normalize(self) -> bool:  # type: ignore[override]
        """As the inner loss."""
        return self.inner.normalize

    @property
    def miner(self) -> nn.Module | None:
        """The inner loss's, to read; set it there."""
        return getattr(self.inner, "miner", None)

    @property
    def labels_needed(self) -> bool:  # type: ignore[override]
        """As the inner loss."""
        return self.inner.labels_needed

    def checked(self, *args: Any, **kwargs: Any) -> tuple[Batch, Named]:
        """As of any loss."""
        if "miner" in self._modules:  # torch takes a module without asking the property
            name = type(self).__name__
            raise InputError("miner", f"one set on {name}", "that of the loss inside: .inner.miner")
        return super().checked(*args, **kwargs)

    def numbered(self, labels: ArrayLike | None) -> ArrayLike | None:
        """As the inner loss does."""
        return self.inner.numbered(labels)


class TupleWrapper(Wrapper, TupleLoss):
    """A wrapper whose tuples are those of the inner loss, or some of them."""

    inner: TupleLoss

    def __init__(self, loss: Loss) -> None:
        super().__init__(loss)
        if not isinstance(loss, TupleLoss):
            given = type(loss).__name__
            inside = f" inside: {given}({type(self).__name__}(...))"
            raise InputError("loss", given, "a TupleLoss" + inside * isinstance(loss, Wrapper))

    @property
    def reduction(self) -> str:  # type: ignore[override]
        """As the inner loss."""
        return self.inner.reduction

    def mined(self, batch: Batch) -> Named:
        """As the inner loss does."""
        return self.inner.mined(batch)

    def reduce(self, elements: Elements) -> Tensor:
        """As the inner loss does."""
        return self.inner.reduce(elements)


def innermost(loss: object) -> object:
    """The loss inside all wrappers; anything else is itself."""
    while isinstance(loss, Wrapper):
        loss = loss.inner
    return loss


def attach(
    batch: Batch, value: Tensor, gradient: Tensor, plain: Callable[[Batch], Tensor]
) -> Tensor:
    """A scalar of the rows' dtype, whose backward pass hands `gradient` to the rows.

    `gradient` is by the rows as the batch's frame sees them. `plain` is the same loss on the graph,
    however slow: it is only evaluated for second derivatives.
    """
    given = batch.frame.pull_back(gradient).to(batch.rows.dtype)
    scalar = value.to(batch.rows.dtype)
    return attached(batch.rows, scalar, given, lambda rows: plain(replace(batch, rows=rows)))


def attached(x: Tensor, value: Tensor, slope: Tensor, plain: Callable[[Tensor], Tensor]) -> Tensor:
    """`value`, of which the derivative `slope` by x is known already, on the graph of x.

    The shape of `value` broadcasts to that of x. `plain(x)` is the same on the graph, however slow:
    it is only evaluated for second derivatives.
    """
    return _Attached.apply(x, value, slope, plain)  # type: ignore[no-any-return,no-untyped-call]


class _Attached(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, value: Tensor, slope: Tensor, plain: Callable[[Tensor], Tensor]
    ) -> Tensor:
        ctx.save_for_backward(x, slope)
        ctx.plain = plain
        return value.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None]:
        x, slope = ctx.saved_tensors
        if torch.is_grad_enabled() and x.requires_grad:  # a second derivative is wanted
            (slope,) = torch.autograd.grad(ctx.plain(x), x, upstream, create_graph=True)
            return slope, None, None, None
        return slope * upstream, None, None, None
