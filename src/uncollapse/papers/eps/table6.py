"""EPS Table 6: multi-similarity with dimension 512 on BN-Inception, Cars196 and CUB200."""

from __future__ import annotations

from uncollapse.papers.eps._table import Part, columns, table_item
from uncollapse.papers.eps.methods import only
from uncollapse.papers.eps.protocols import CARS512, CUB512

__all__ = ["TABLE6"]

_COLUMNS = columns("test", (1, 2, 4, 8), {})
_CARS = {"MS": (84.1, 90.4, 94.0, 96.5), "EPS + MS": (85.5, 90.7, 94.3, 96.7)}
_CUB = {"MS": (65.7, 77.0, 86.3, 91.2), "EPS + MS": (66.7, 77.2, 86.4, 90.9)}
TABLE6 = table_item(
    "table6",
    "EPS Table 6",
    only("MS", "EPS + MS"),
    [Part(CARS512, _COLUMNS, _CARS, "Cars196"), Part(CUB512, _COLUMNS, _CUB, "CUB200")],
    needs="Cars196 and CUB200 (smoke: nothing)",
    summary="EPS Table 6: multi-similarity with dimension 512, with and without EPS",
)
