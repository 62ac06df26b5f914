"""HNM Fig. 9: CUB200 and Cars196, in batches drawn at random."""

from __future__ import annotations

from uncollapse.papers.hnm._setups import SCALE_TIMES, uniform
from uncollapse.papers.hnm._study import Panel, Study
from uncollapse.papers.hnm._trained import trained_item

__all__ = ["FIG9"]

# Appendix D, as Fig. 8; the batch size alone: at a given batch all dimensions collapsed, or none.
FIG9 = trained_item(
    Study(
        "fig9",
        "Fig. 9: CUB200 and Cars196",
        [
            Panel("batch", uniform("cub200"), title="CUB200"),
            Panel("batch", uniform("cars196"), title="Cars196"),
        ],
    ),
    summary="HNM Fig. 9: collapse against the batch size on CUB200 and Cars196",
    needs="CUB200, Cars196",
    time=SCALE_TIMES,
)
