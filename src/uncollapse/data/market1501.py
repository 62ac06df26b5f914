"""Market-1501 person re-identification (Zheng et al. 2015): HNM §4."""

from __future__ import annotations

import re
from pathlib import Path

from uncollapse.data.listing import (
    Counts,
    DataError,
    DatasetInfo,
    Listing,
    Row,
    find_root,
    is_image,
    list_rows,
)

__all__ = ["INFO", "listing"]

_FOLDERS = {"train": "bounding_box_train", "query": "query", "gallery": "bounding_box_test"}
_NAME = re.compile(r"(-?\d+)_c(\d+)")  # 0002_c1s1_000451_03.jpg: person 2, camera 1

INFO = DatasetInfo(
    name="market1501",
    title="Market-1501: 1,501 people seen by six cameras (Zheng et al. 2015)",
    home="https://zheng-lab.cecs.anu.edu.au/Project/project_reid.html",
    licence="free for research; no licence is stated",
    layout="""\
bounding_box_train/0002_c1s1_000451_03.jpg  (person, camera, sequence, frame, box)
query/
bounding_box_test/""",
    splits=("train", "query", "gallery"),
    official={
        "train": Counts(12_936, 751),
        "query": Counts(3_368, 750),
        # 750 people, distractors (0) and junk (-1); 3,819 of the images are junk.
        "gallery": Counts(19_732, 752),
    },
    folders=("market1501", "Market-1501-v15.09.15", "Market-1501"),
    size=(256, 128),  # as Hermans et al. 2017, whom HNM follows
    aliases={"bounding_box_train": "train", "bounding_box_test": "gallery", "test": "gallery"},
)


def listing(root: Path | None, split: str) -> Listing:
    """`train`, `query` or `gallery`; label = person, with camera.

    In the gallery person 0 stands for distractors, which count as wrong answers, and -1 for junk,
    which evaluation leaves out.
    """
    base = find_root(INFO, root, _FOLDERS.values())
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
    return list_rows(rows, class_names=names, ignored=ignored, origin=str(base))
