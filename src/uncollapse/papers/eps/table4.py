"""EPS Table 4: Omniglot's training alphabets, semi-hard triplets with and without EPS."""

from __future__ import annotations

from uncollapse.papers.eps._table import Part, columns, table_item
from uncollapse.papers.eps.methods import only
from uncollapse.papers.eps.protocols import OMNIGLOT

__all__ = ["TABLE4"]

_COLUMNS = [
    *columns("train", (1, 2, 4, 8), {"NMI": 1}, name="language"),
    *columns("train", (1, 2, 4, 8), {"NMI": 1}, name="letters", fine=True),
]
_PAPER = {
    "Trip. + SH": (99.9, 100.0, 100.0, 100.0, 93.6, 70.3, 80.4, 87.9, 93.3, 78.4),
    "EPS + Trip. + SH": (94.5, 96.8, 98.1, 99.2, 67.3, 77.5, 86.3, 92.4, 96.0, 87.1),
}
TABLE4 = table_item(
    "table4",
    "EPS Table 4: Omniglot, the alphabets trained on",
    only("Trip. + SH", "EPS + Trip. + SH"),
    [Part(OMNIGLOT, _COLUMNS, _PAPER)],
    needs="Omniglot (smoke: nothing)",
    laptop="minutes after table3",
    summary="EPS Table 4: Omniglot's training alphabets, languages fit worse and letters better",
)
