"""Stanford Online Products (Oh Song et al. 2016): HNM appendix D."""

from __future__ import annotations

from pathlib import Path

from uncollapse.data.listing import DataError, DatasetInfo, Listing, Row, find_root
from uncollapse.data.readers import read_lines

_LISTS = {"train": "Ebay_train.txt", "test": "Ebay_test.txt"}


def listing(info: DatasetInfo, root: Path | None, split: str) -> Listing:
    """`train`: Ebay_train.txt, `test`: Ebay_test.txt, or `all`; label = product."""
    base = find_root(info, root, _LISTS.values())
    rows: list[Row] = []
    names: dict[int, str] = {}
    for part in _LISTS if split == "all" else (split,):
        for label, path in _table(base / _LISTS[part]):
            rows.append(Row(base / path, label))
            # bicycle_final/...: the kind of product, which the list only numbers
            names[label] = f"{path.split('/')[0].removesuffix('_final')} {label}"
    return Listing.of_rows(rows, class_names=names, origin=str(base))


def _table(path: Path) -> list[tuple[int, str]]:
    pairs = []
    lines = read_lines(path, "sop")[1:]  # the first line is a heading
    for number, line in enumerate(lines, start=2):
        fields = line.split(maxsplit=3)
        if not fields:
            continue
        if len(fields) != 4 or not fields[1].isdigit():
            raise DataError(f"{path}, line {number}: expected 4 fields, got {line!r}")
        pairs.append((int(fields[1]), fields[3].strip()))
    return pairs
