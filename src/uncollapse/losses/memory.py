"""Cross-batch memory: Wang et al. 2020 (XBM). Mining over more rows has more drift: HNM §3.3."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from uncollapse._base.check import InputError, check_int
from uncollapse.distances.frame import known_distances, working_dtype
from uncollapse.losses.base import Batch, Choice, Loss, Named, TupleLoss, Wrapper
from uncollapse.losses.n_pair import NPairLoss
from uncollapse.losses.proxies import ProxyLoss
from uncollapse.mining.miner import Miner
from uncollapse.mining.tuples import Pairs, Triplets, as_pairs, as_triplets, every_pair


def _moved(kept: Tensor, rows: Tensor) -> Tensor:
    """Kept rows r as they are, on the graph as c(x) + (r - c₀)·μ(x)/μ₀: they move with the batch.

    c and μ are centre and mean distance of the batch, c₀ and μ₀ their present values. A loss of x
    and r that does not change when all is shifted then has Σ ∇L = 0, and one that is homogeneous
    the drift that Euler's identity gives it: both as if r were embedded anew.
    """
    wide = rows.to(working_dtype(rows))
    centre, then = wide.mean(0), wide.detach().mean(0)
    mean = known_distances(wide, reach=1.0).sum()  # differences in float64 need no scale
    size = mean.detach()
    grown = torch.where(size > 0, mean / torch.where(size > 0, size, 1.0) - 1.0, 0.0)
    shift: Tensor = (centre - then) + (kept.to(wide) - then) * grown
    return kept + shift.to(kept.dtype)


def _without_own(tuples: Triplets | Pairs) -> Triplets | Pairs:
    """Tuples without a row that is its own positive."""
    other = tuples.anchor != tuples.positive
    if isinstance(tuples, Triplets):
        return Triplets(*(index[other] for index in tuples))
    return Pairs(tuples.anchor[other], tuples.positive[other], tuples.other, tuples.negative)


def _repeated(kept: Tensor, rows: Tensor) -> Tensor:
    """Which of the kept rows are exactly one of the rows."""
    alike, row = (kept[:, :1] == rows.detach()[:, 0]).nonzero(as_tuple=True)
    same = (kept[alike] == rows.detach()[row]).all(1)
    return torch.zeros(len(kept), dtype=torch.bool, device=kept.device).index_fill_(
        0, alike[same], True
    )


REFERENCES = ("moving", "fixed")
_KEPT = ("memory", "memory_labels", "memory_ids", "calls")


class CrossBatchMemory(Wrapper):
    """Another loss, whose rows are compared with the batch and with rows of earlier batches.

    The rows of the batch are the anchors. Positives and negatives are mined, by the inner loss's
    own miner, among the `size` newest embeddings: the batch's and, behind them, those kept of
    earlier steps. No row is compared with itself. Gradients go to the batch alone. Kept embeddings
    move with its centre and its scale, as they would if they were embedded anew.

    With `sample_ids` (a run from a config has them) the older copies of a sample that is in the
    batch are left out: else the nearest positive of a sample is, from the second epoch on, itself.

    Needs what the inner loss needs, labels that are whole numbers, and batches of at most `size`
    rows. Without a miner the tuples are listed: give a `TripletLoss` one. In `eval()` mode, and
    where a drift is measured, nothing is enqueued. The memory is part of the state: it is in
    checkpoints, and a guard that rolls back puts back the memory too. In several processes give it
    the gathered batch, so that each has the same memory, as runs do.

    Siblings: a larger batch has the same candidates, all of them fresh, and gradients to all of
    them; `Miner(pool=...)` bounds how many of all these candidates an anchor mines among.

    Collapse: what is mined over grows to `size`, and with it the drift of hard mining: batch-hard
    collapses sooner, and what did not shrink may (docs/results/memory). A `scale_free`
    inner loss keeps a drift of 0. With `references="fixed"` drift says nothing: rows flee from
    constants that do not flee from them, and embeddings without a norm run away.

    Args:
        loss: a loss of tuples: not one of proxies or class vectors, `NPairLoss`, or a sum of losses
            (put a memory around the losses inside).
        size: rows kept, those of the present batch included, as in PML.
        after: calls before the memory is used; until then the loss is the inner one, and embeddings
            are kept. Wang et al. wait until features drift slowly.
        references: `"moving"`: kept embeddings move with the batch, and its own rows get gradients
            as positives and negatives, so that a memory as small as the batch changes nothing;
            `"fixed"`: all positives and negatives are constants, as in PML. Values are the same.

    >>> from uncollapse.losses.triplet import TripletLoss
    >>> from uncollapse.mining import Miner
    >>> loss = CrossBatchMemory(TripletLoss(margin=1.0, miner=Miner("easy", "hard")), 6)
    >>> loss(torch.tensor([[0.0], [1.0], [5.0]]), [0, 0, 1])
    tensor(0.)
    >>> loss(torch.tensor([[0.5], [3.0]]), [0, 1])  # 0 of 0.5, and 2 - 2 + 1 of 3 with 5 and 1
    tensor(0.5000)
    >>> loss.memory.flatten().tolist()
    [0.0, 1.0, 5.0, 0.5, 3.0]
    """

    references = Choice(*REFERENCES)
    labels_needed = True  # they are kept
    inner: TupleLoss
    memory: Tensor
    memory_labels: Tensor
    memory_ids: Tensor
    calls: Tensor

    def __init__(
        self, loss: TupleLoss, size: int, *, after: int = 0, references: str = "moving"
    ) -> None:
        super().__init__(loss)
        for part in loss.modules():
            if isinstance(part, Loss) and not remembers(type(part)):
                allowed = "a loss that compares rows with rows: of triplets, pairs or similarities"
                raise InputError("loss", type(part).__name__, allowed)
        self.size, self.after = check_int("size", size), check_int("after", after, 0)
        self.references = references
        for name, value in _empty().items():
            self.register_buffer(name, value)

    def reset(self) -> None:
        """Forget everything, the number of calls too."""
        self.put_back(_empty())

    def value(self, batch: Batch, tuples: Named) -> Tensor:
        """The loss of a checked batch, which is enqueued; `tuples` are added to those mined."""
        labels, ids = self._numbers(batch)
        if self.after and int(self.calls) < self.after:
            value = self.inner.value(batch, tuples)
        else:
            joined = self._joined(batch, labels, ids)
            value = self.inner.value(joined, self._tuples(joined, tuples))
        if self.training:
            self.enqueue(batch.rows, labels, ids)
        return value

    @torch.no_grad()
    def enqueue(self, rows: Tensor, labels: Tensor, ids: Tensor | None = None) -> None:
        """Keep these rows, and count a call; the oldest rows beyond `size` go."""
        self._check_width(rows)
        old = max(0, min(len(self.memory), self.size - len(rows)))
        fresh = {
            "memory": rows,
            "memory_labels": labels,
            "memory_ids": labels.new_full((len(rows),), -1) if ids is None else ids,
        }
        for name, new in fresh.items():
            kept = getattr(self, name)
            kept = kept[len(kept) - old :].reshape(old, *new.shape[1:]).to(new)
            setattr(self, name, torch.cat([kept, new.detach()]))
        self.calls = self.calls + 1

    def kept(self) -> dict[str, Tensor]:
        """A copy of all that is remembered."""
        return {name: getattr(self, name).clone() for name in _KEPT}

    def put_back(self, kept: dict[str, Tensor]) -> None:
        """Make a copy the memory again, whatever its length; the copy stays as it is."""
        for name in _KEPT:
            setattr(self, name, kept[name].to(getattr(self, name).device, copy=True))

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *others: Any) -> None:
        for name in _KEPT:  # as long and wide as what is loaded
            if (given := state.get(prefix + name)) is not None:
                setattr(self, name, torch.empty_like(given, device=getattr(self, name).device))
        super()._load_from_state_dict(state, prefix, *others)

    def _numbers(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Labels and sample ids of a batch; raises unless it can be enqueued."""
        if batch.offset:
            raise InputError.conflict("CrossBatchMemory takes no ref_embeddings")
        if batch.labels is None or batch.label_range is None:
            name = None if batch.labels is None else "names"
            raise InputError("labels", name, "whole numbers, as the memory outlives the batch")
        self._check_width(batch.rows)
        if self.training and batch.count > self.size:
            raise InputError("size", self.size, f"at least the {batch.count} rows of a batch")
        return batch.labels, batch.sample_ids

    def _joined(self, batch: Batch, labels: Tensor, ids: Tensor | None) -> Batch:
        """The batch with its references: its own rows, and behind them the older rows kept."""
        rows, (older, older_labels) = batch.rows, self._older(batch.rows, ids)
        moving = self.references == "moving"
        return Batch.of(
            rows,
            labels,
            torch.cat([rows, _moved(older, rows)] if moving else [rows.detach(), older]),
            torch.cat([labels, older_labels]),
            sample_ids=batch.sample_ids,
            normalize=self.normalize,
            own=True,
        )

    def _older(self, rows: Tensor, ids: Tensor | None) -> tuple[Tensor, Tensor]:
        """The kept rows that count: the newest, without older copies of samples in the batch."""
        first = max(0, len(self.memory) + len(rows) - self.size)
        kept = self.memory[first:].to(rows).reshape(-1, rows.shape[1])
        labels, kept_ids = (
            part[first:].to(rows.device) for part in (self.memory_labels, self.memory_ids)
        )
        if self.training and ids is None:
            return kept, labels
        given = labels.new_empty(0) if ids is None else ids
        stale = torch.isin(kept_ids, given) & (kept_ids >= 0)
        if not self.training:  # rows that are looked at again are not their own neighbours
            stale |= _repeated(kept, rows)
        fresh = (~stale).nonzero().flatten()
        return (kept, labels) if len(fresh) == len(kept) else (kept[fresh], labels[fresh])

    def _tuples(self, joined: Batch, given: Named) -> Named:
        """None where our miner will choose, or all are taken; else another's, and those given."""
        ours = isinstance(self.miner, Miner | None)
        if given is None and ours:
            return None
        named = self.inner.mined(joined)
        named = every_pair(joined) if named is None else named
        if not ours:
            named = _without_own(named)
        if given is None:
            return named
        more: Any = as_triplets(given) if isinstance(named, Triplets) else as_pairs(given)
        return type(named)(*(torch.cat(both) for both in zip(named, more, strict=True)))

    def _check_width(self, rows: Tensor) -> None:
        if len(self.memory) and self.memory.shape[1] != rows.shape[1]:
            allowed = f"{self.memory.shape[1]} as the memory has, or reset() before"
            raise InputError("embeddings", f"{rows.shape[1]} columns", allowed)


def remembers(kind: type[Loss]) -> bool:
    """Whether losses of this class compare rows with rows, so that a memory has any use.

    >>> from uncollapse.losses import ProxyNCALoss, SupConLoss
    >>> remembers(SupConLoss), remembers(ProxyNCALoss)
    (True, False)
    """
    return issubclass(kind, TupleLoss) and not issubclass(kind, ProxyLoss | NPairLoss)


def memories(loss: object) -> list[CrossBatchMemory]:
    """All memories in a loss; an empty list for anything that is no module."""
    parts = loss.modules() if isinstance(loss, nn.Module) else ()
    return [part for part in parts if isinstance(part, CrossBatchMemory)]


@contextmanager
def reading(loss: object) -> Iterator[None]:
    """Inside this context the memories of a loss enqueue nothing.

    >>> from uncollapse.losses.contrastive import ContrastiveLoss
    >>> loss = CrossBatchMemory(ContrastiveLoss(), 8)
    >>> with reading(loss):
    ...     _ = loss(torch.eye(2), [0, 0])
    >>> len(loss.memory)
    0
    """
    before = [(part, part.training) for part in memories(loss)]
    try:
        for part, _ in before:
            part.training = False
        yield
    finally:
        for part, training in before:
            part.training = training


def _empty() -> dict[str, Tensor]:
    none = torch.empty(0, dtype=torch.int64)
    return dict(zip(_KEPT, (torch.empty(0, 0), none, none.clone(), torch.tensor(0)), strict=True))
