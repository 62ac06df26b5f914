"""Market-1501 person re-identification (Zheng et al. 2015): HNM §4."""

from __future__ import annotations

import re
from pathlib import Path

from uncollapse.data.listing import DataError, DatasetInfo, Listing, Row, find_root, is_image

_FOLDERS = {"train": "bounding_box_train", "query": "query", "gallery": "bounding_box_test"}
_NAME = re.compile(r"(-?\d+)_c(\d+)")  # 0002_c1s1_000451_03.jpg: person 2, camera 1


def listing(info: DatasetInfo, root: Path | None, split: str) -> Listing:
    """`train`, `query` or `gallery`; label = person, with camera.

    In the gallery person 0 stands for distractors, which count as wrong answers, and -1 for junk,
    which evaluation leaves out.
    """
    base = find_root(info, root, _FOLDERS.values())
    folder = base / _FOLDERS[split]
    if not folder.is_dir():
        raise DataError(f"market1501: no folder {_FOLDERS[split]} in {base}")
    rows, ignored = [], []
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        named = _NAME.match(path.name)
        if named is None or not is_image(path.name):
            ignored.append(path.name)
            continue
        rows.append(Row(path, int(named[1]), camera=int(named[2])))
    people = sorted({row.label for row in rows})
    names = {p: {0: "distractor", -1: "junk"}.get(p, f"person {p}") for p in people}
    return Listing.of_rows(rows, class_names=names, ignored=tuple(ignored), origin=str(base))
