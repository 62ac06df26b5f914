"""EPS Table 3: Omniglot trained by alphabet; letters and languages of the 20 unseen alphabets."""

from __future__ import annotations

from uncollapse.papers.eps._table import Part, columns, table_item
from uncollapse.papers.eps.methods import METHODS
from uncollapse.papers.eps.protocols import OMNIGLOT

__all__ = ["TABLE3"]

_COLUMNS = [
    *columns("test", (1, 2, 4, 8), {"NMI": 1}, name="letters", fine=True),
    *columns("test", (1, 2, 4, 8), {"NMI+": 30}, name="languages"),
]
_PAPER = {
    "Trip. + SH": (49.4, 60.0, 69.2, 76.9, 66.2, 71.0, 80.2, 87.6, 92.4, 38.7),
    "ProxyNCA": (49.1, 60.4, 70.9, 78.9, 69.0, 73.0, 82.1, 88.8, 93.5, 43.3),
    "Dist-Margin": (49.4, 61.1, 70.1, 79.2, 68.9, 73.2, 82.3, 89.1, 94.0, 43.5),
    "MS": (57.7, 68.5, 77.3, 83.8, 69.2, 78.8, 86.4, 92.0, 95.4, 46.0),
    "EPS + Trip. + SH": (68.4, 79.3, 86.9, 92.1, 79.6, 85.2, 91.1, 94.9, 97.3, 52.6),
    "EPS + Dist-Margin": (66.2, 76.7, 84.8, 90.3, 77.9, 83.0, 89.4, 93.6, 96.4, 50.7),
    "EPS + MS": (68.7, 79.1, 86.9, 92.2, 77.3, 86.2, 91.7, 94.9, 97.2, 53.8),
}
TABLE3 = table_item(
    "table3",
    "EPS Table 3: Omniglot, trained by alphabet alone, on unseen alphabets",
    METHODS,
    [Part(OMNIGLOT, _COLUMNS, _PAPER)],
    needs="Omniglot (smoke: nothing)",
    laptop="half an hour",
    summary="EPS Table 3: Omniglot letters and languages, four losses with and without EPS",
)
