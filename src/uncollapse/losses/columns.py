"""Columns of pairs and triplets, as in text datasets, as labelled batches for any loss."""

import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike, as_rows
from uncollapse._base.check import InputError, check_int
from uncollapse.distances.frame import true_entries
from uncollapse.losses.base import Batch, Elements, Named, TupleWrapper


def join_columns(
    anchors: ArrayLike, positives: ArrayLike, *negatives: ArrayLike, first: int = 0
) -> tuple[Tensor, Tensor]:
    """The rows of all columns, one below the other, and their labels.

    Row i of `anchors` and of `positives` are a class of their own, number `first + i`; each row of
    `negatives` is one by itself. In this form columns are a labelled batch like any other: for
    `drift`, `probe`, a monitor or a guard, with the loss in a `ColumnLoss`. For batches that are
    measured together, continue the numbering: the next `first` is the largest label plus 1.

    >>> rows, labels = join_columns([[0.0], [1.0]], [[0.1], [1.1]], [[5.0], [6.0]])
    >>> rows.flatten().tolist(), labels.tolist()
    ([0.0, 1.0, 0.1, 1.1, 5.0, 6.0], [0, 1, 0, 1, 2, 3])
    """
    check_int("first", first, 0)
    columns = [as_rows(column, "columns") for column in (anchors, positives, *negatives)]
    shapes = [tuple(column.shape) for column in columns]
    if len(set(shapes)) > 1:
        raise InputError(
            "columns", f"shapes {shapes}", "columns of one shape, row i of each a tuple"
        )
    rows = torch.cat(columns)
    number = torch.arange(len(rows) - shapes[0][0], device=rows.device)
    return rows, first + torch.cat([number[: shapes[0][0]], number])


def split_columns(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Which rows of joined columns are anchors, and which are compared with them.

    The first row of a label that comes again is an anchor; any other row is a positive, or, where
    its label comes once, a negative. Rows may be missing, as long as those left are in order.

    >>> split_columns(join_columns(torch.eye(2), torch.eye(2), torch.ones(2, 2))[1])
    (tensor([0, 1]), tensor([2, 3, 4, 5]))
    """
    ordered, order = torch.sort(labels, stable=True)
    low, high = (torch.searchsorted(ordered, labels, right=end) for end in (False, True))
    row = torch.arange(len(labels), device=labels.device)
    anchor = (order[low] == row) & (high - low > 1)
    anchors = anchor.nonzero().flatten()
    return anchors, true_entries(~anchor[None], len(row) - len(anchors))[1]


class ColumnLoss(TupleWrapper):
    """Another loss on joined columns: anchors alone are anchors, the other columns references.

    `ColumnLoss(loss)(*join_columns(a, p, n))` is the loss of row i of `a` with positive `p[i]` and
    every other row of `p` and `n` as a negative; with a miner, those of them it chooses. Losses
    with parameters for each class do not fit, as here a class is a pair. References passed
    separately, and tuples without labels, are left as they are.

    Collapse: as the inner loss.

    >>> from uncollapse.losses.triplet import TripletLoss
    >>> a, p = torch.tensor([[0.0], [5.0]]), torch.tensor([[2.0], [4.0]])
    >>> ColumnLoss(TripletLoss(margin=1.0))(*join_columns(a, p))  # [2 - 4 + 1]₊ and [1 - 3 + 1]₊
    tensor(0.)
    >>> ColumnLoss(TripletLoss(margin=3.0))(*join_columns(a, p))
    tensor(1.)
    """

    def listed(self, batch: Batch, tuples: Named) -> Elements:
        """Those of the inner loss; `anchor` is the row of all columns."""
        split, anchors = self._split(batch)
        elements = self.inner.listed(split, tuples)
        return elements if anchors is None else elements._replace(anchor=anchors[elements.anchor])

    def value(self, batch: Batch, tuples: Named) -> Tensor:
        """As the inner loss, by its faster way where it has one."""
        return self.inner.value(self._split(batch)[0], tuples)

    def _split(self, batch: Batch) -> tuple[Batch, Tensor | None]:
        if batch.offset or batch.labels is None:
            return batch, None
        anchors, others = split_columns(batch.labels)
        if not len(anchors) or not len(others):
            given = f"{len(batch.rows)} rows, {len(anchors)} labels that occur twice"
            raise InputError("labels", given, "joined columns: anchor and positive share a label")
        rows, labels, samples = batch.rows, batch.labels, batch.sample_ids
        split = Batch.of(
            rows[anchors],
            labels[anchors],
            rows[others],
            labels[others],
            sample_ids=None if samples is None else samples[anchors],
            normalize=self.normalize,
        )
        return split, anchors
