"""What losses with learned proxies share: the parameter, whose row is which, the cosines."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from uncollapse._base.arrays import ArrayLike
from uncollapse._base.check import check_int
from uncollapse.distances.batch import Batch
from uncollapse.distances.pairwise import known_distances
from uncollapse.losses._named_classes import NamedClasses, check_columns
from uncollapse.losses.base import Loss, graph_rows, on_sphere
from uncollapse.losses.margin import parameter_rows
from uncollapse.mining.tuples import Pairs, Triplets, as_pairs

__all__ = ["ProxyLoss"]


class ProxyLoss(Loss):
    """A loss of samples and learned class vectors, `proxies`, `[num_classes, per_class, dim]`.

    Both are divided by their norms. Labels are 0 to `num_classes` - 1, or at most so many names. A
    miner, or tuples, restrict the samples to those they name as anchors, once each.
    """

    labels_needed = True

    def __init__(
        self,
        *,
        num_classes: int,
        dim: int,
        per_class: int = 1,
        miner: nn.Module | None = None,
        generator: torch.Generator | None = None,
        name: str = "per_class",
    ) -> None:
        super().__init__(miner=miner, normalize=True)
        shape = (
            check_int("num_classes", num_classes, 2),
            check_int(name, per_class),
            check_int("dim", dim),
        )
        self.proxies = nn.Parameter(torch.randn(shape, generator=generator))
        self.names = NamedClasses(shape[0])

    def numbered(self, labels: ArrayLike | None) -> ArrayLike | None:
        """Labels as rows of the proxies."""
        return self.names.numbers(labels)

    def cosines(
        self, batch: Batch, tuples: Triplets | Pairs | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The samples that count, their classes, and their cosines with all proxies.

        The last is `[n, num_classes, per_class]`, on the graph, in the working dtype.
        """
        classes, per_class, dim = self.proxies.shape
        check_columns(batch.frame.dim, dim, classes, "the proxies have")
        own = parameter_rows(batch.labels, batch.label_range, classes, "labels")
        anchor, rows = self._anchors(batch, tuples), graph_rows(batch, sphere=True)
        if anchor is None:
            rows, anchor = rows[: batch.count], torch.arange(batch.count, device=rows.device)
        else:
            rows, own = rows[anchor], own[anchor]
        flat = on_sphere(self.proxies.reshape(-1, dim).to(rows.device, rows.dtype))
        return anchor, own, cosines_of_units(rows, flat).view(len(rows), classes, per_class)

    def _anchors(self, batch: Batch, tuples: Triplets | Pairs | None) -> Tensor | None:
        """Rows named as anchors; None for all."""
        found = self.mined(batch) if tuples is None else tuples
        if found is None:
            return None
        pairs = as_pairs(found)
        named: Tensor = torch.unique(torch.cat([pairs.anchor, pairs.other]))
        return named


def cosines_of_units(rows: Tensor, others: Tensor) -> Tensor:
    """Cosines of rows of length 1 with others, on the graph.

    A product in float64 errs by 1e-16 of 1, far less than rows of float32 differ by if at all;
    where there is no float64 it is 1 - d²/2.
    """
    if rows.dtype == torch.float64 or len(rows) == 0:
        return rows @ others.T
    return 1.0 - 0.5 * known_distances(rows, others, squared=True, reach=1.0)
