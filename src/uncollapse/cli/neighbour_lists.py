"""What a search found: a table on the terminal, a .csv or .json file, a contact sheet as PNG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uncollapse._base.check import visible

if TYPE_CHECKING:
    from rich.console import Console

    from uncollapse._base.arrays import Array
    from uncollapse.metrics.nearest_rows import Neighbours

__all__ = ["FoundNeighbours", "check_ending", "show_neighbours", "write_neighbours"]

_ENDINGS = (".png", ".csv", ".json")
_SHOWN = 10  # queries on a terminal; a file has all


@dataclass(frozen=True)
class FoundNeighbours:
    """Queries by name, the gallery's names and labels, and who is near whom.

    `right[q][rank]` says whether a neighbour has the query's label; None where that is not known.
    `measure` names the last column: `distance` or `cosine`.
    """

    queries: Sequence[str]
    names: Sequence[str]
    hits: Neighbours
    labels: Array | None = None
    right: Sequence[Sequence[bool]] | None = None
    measure: str = "distance"

    def rows(self) -> list[dict[str, Any]]:
        """One entry a neighbour, as a file has it."""
        found = []
        for q, query in enumerate(self.queries):
            for rank, row in enumerate(self.hits.rows[q].tolist()):
                entry: dict[str, Any] = {"query": query, "rank": rank + 1, "row": row}
                entry["neighbour"] = self.names[row]
                if self.labels is not None:
                    entry["label"] = self.labels[row].item()
                if self.right is not None:
                    entry["same"] = bool(self.right[q][rank])
                entry[self.measure] = self._nearness(float(self.hits.distances[q, rank]))
                found.append(entry)
        return found

    def _nearness(self, distance: float) -> float:
        return 1 - distance * distance / 2 if self.measure == "cosine" else distance


def check_ending(out: Path | None) -> None:
    """Refuse a file of another kind before anything is computed."""
    from uncollapse._base.check import InputError

    if out is not None and out.suffix not in _ENDINGS:
        raise InputError("--out", out.name, f"a file ending in {', '.join(_ENDINGS)}")


def show_neighbours(console: Console, found: FoundNeighbours) -> int:
    """Print the table; of many queries the first ones. Gives back how many were shown."""
    from uncollapse._base.table import Table

    heads = ["query", "rank", "neighbour", *["label"] * (found.labels is not None)]
    table = Table([*heads, *[""] * (found.right is not None), found.measure], keys=2)
    shown = min(_SHOWN, len(found.queries))
    for entry in found.rows()[: shown * found.hits.rows.shape[1]]:
        first = entry["rank"] == 1
        cells = [entry["query"] if first else "", str(entry["rank"]), entry["neighbour"]]
        cells += [str(entry["label"])] if "label" in entry else []
        cells += ["✓" if entry["same"] else "✗"] if "same" in entry else []
        table.add(*(visible(cell) for cell in (*cells, f"{entry[found.measure]:.4g}")))
    console.print(table)
    return shown


def write_neighbours(
    out: Path,
    found: FoundNeighbours,
    pictures: tuple[Sequence[Any], Sequence[Sequence[Any]]] | None,
) -> Path:
    """All of them as .csv or .json, or as a contact sheet of pictures: queries, neighbours."""
    from uncollapse._base.files import write_csv, write_json

    if pictures is not None and out.suffix == ".png":
        from uncollapse.report.neighbours import contact_sheet, save_png

        return save_png(contact_sheet(*pictures, found.right), out)
    entries = found.rows()
    if out.suffix == ".json":
        write_json(out, entries)
    else:
        write_csv(out, list(entries[0]), [list(entry.values()) for entry in entries])
    return out
