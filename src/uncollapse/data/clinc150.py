"""CLINC150 (Larson et al. 2019): requests to an assistant; label = domain, fine label = intent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from uncollapse._base.files import DamagedFileError, read_json
from uncollapse.data.listing import DataError, DatasetInfo, Listing, TextSource, find_root

_FILES = ("data_full.json", "domains.json")
# Which parts of the file a split has: those out of scope have no domain, and are in no other split.
_PARTS = {
    "train": ("train",),
    "val": ("val",),
    "test": ("test",),
    "oos": ("oos_train", "oos_val", "oos_test"),
    "all": ("train", "val", "test"),
}
_OUTSIDE = "oos"


def listing(info: DatasetInfo, root: Path | None, split: str) -> Listing:
    """`train`, `val`, `test` or `all` three; or `oos`, the requests that are out of scope."""
    base = find_root(info, root, _FILES)
    rows, domains = (_read(base / file, info) for file in _FILES)
    domain_of = {intent: name for name, intents in domains.items() for intent in intents}
    groups, intents = [*sorted(domains), _OUTSIDE], [*sorted(domain_of), _OUTSIDE]
    domain_of[_OUTSIDE] = _OUTSIDE
    requests = [row for part in _PARTS[split] for row in _part(base, rows, part)]
    unknown = next((intent for _, intent in requests if intent not in domain_of), None)
    if unknown is not None:
        raise DataError(f"clinc150: no domain of {base / _FILES[1]} has the intent {unknown!r}")
    number, fine = ({name: i for i, name in enumerate(names)} for names in (groups, intents))
    return Listing(
        images=TextSource(tuple(text for text, _ in requests)),
        labels=np.array([number[domain_of[intent]] for _, intent in requests]),
        fine_labels=np.array([fine[intent] for _, intent in requests]),
        class_names=dict(enumerate(groups)),
        fine_names=dict(enumerate(intents)),
        origin=str(base),
        split=split,
    )


def _read(path: Path, info: DatasetInfo) -> dict[str, Any]:
    try:
        content: dict[str, Any] = read_json(path)
    except FileNotFoundError:
        raise DataError(f"clinc150: no file {path}; expected layout:\n{info.layout}") from None
    except DamagedFileError as error:
        raise DataError(f"clinc150: {error}") from None
    wrong = next((key for key, value in content.items() if not isinstance(value, list)), None)
    if wrong is not None:
        raise DataError(f"clinc150: {path} is not as published: {wrong!r} holds no list")
    return content


def _part(base: Path, rows: dict[str, Any], part: str) -> list[tuple[str, str]]:
    requests = []
    for number, row in enumerate(rows.get(part, ()), 1):
        words = isinstance(row, list) and len(row) == 2 and all(isinstance(w, str) for w in row)
        if not words:
            what = f"row {number} of {part!r} is no request with its intent"
            raise DataError(f"clinc150: {base / _FILES[0]} is not as published: {what}")
        requests.append((row[0], row[1]))
    if not requests:
        raise DataError(f"clinc150: {base / _FILES[0]} has no rows of {part!r}")
    return requests
