"""Stanford Online Products (Oh Song et al. 2016): HNM appendix D."""

from __future__ import annotations

from pathlib import Path

from uncollapse.data.listing import (
    Counts,
    DataError,
    DatasetInfo,
    Listing,
    Row,
    find_root,
    list_rows,
)
from uncollapse.data.readers import read_lines

__all__ = ["INFO", "listing"]

INFO = DatasetInfo(
    name="sop",
    title="Stanford Online Products: 120,053 photographs of 22,634 products (Oh Song et al. 2016)",
    home="https://cvgl.stanford.edu/projects/lifted_struct/",
    licence="MIT (metadata); images belong to their sellers, research use",
    layout="""\
Ebay_train.txt  image_id class_id super_class_id path
Ebay_test.txt   image_id class_id super_class_id path
bicycle_final/111085122871_0.JPG""",
    splits=("train", "test", "all"),
    official={
        "train": Counts(59_551, 11_318),
        "test": Counts(60_502, 11_316),
        "all": Counts(120_053, 22_634),
    },
    folders=("sop", "Stanford_Online_Products"),
    size=(256, 256),
    fit="cover",
    crop=224,
)
_LISTS = {"train": "Ebay_train.txt", "test": "Ebay_test.txt"}


def listing(root: Path | None, split: str) -> Listing:
    """`train`: Ebay_train.txt, `test`: Ebay_test.txt, or `all`; label = product."""
    base = find_root(INFO, root, _LISTS.values())
    rows: list[Row] = []
    names: dict[int, str] = {}
    for part in _LISTS if split == "all" else (split,):
        for label, path in _table(base / _LISTS[part]):
            rows.append(Row(base / path, label))
            # bicycle_final/...: the kind of product, which the list only numbers
            names[label] = f"{path.split('/')[0].removesuffix('_final')} {label}"
    return list_rows(rows, class_names=names, origin=str(base))


def _table(path: Path) -> list[tuple[int, str]]:
    pairs = []
    for number, line in enumerate(
        read_lines(path, INFO.name)[1:], start=2
    ):  # the first line is a heading
        fields = line.split(maxsplit=3)
        if not fields:
            continue
        if len(fields) != 4 or not fields[1].isdigit():
            raise DataError(f"{path}, line {number}: expected 4 fields, got {line!r}")
        pairs.append((int(fields[1]), fields[3].strip()))
    return pairs
