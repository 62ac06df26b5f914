"""Stanford Cars (Krause et al. 2013), both layouts: EPS §5.2, HNM appendix D."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from uncollapse.data.listing import DataError, Listing, Row, dataset_info, find_root

__all__ = ["INFO", "listing", "makes"]

INFO = dataset_info("cars196")
_TWO_WORDS = ("AM General", "Aston Martin", "Land Rover")
_CLASSES = {
    "train": range(1, 99),
    "fit": range(1, 79),
    "val": range(79, 99),
    "test": range(99, 197),
    "all": range(1, 197),
}
_DEVKIT = "devkit/cars_train_annos.mat"


def listing(root: Path | None, split: str) -> Listing:
    """`train`: classes 1-98, `test`: classes 99-196, or `all`; label = class number.

    To choose settings without the test classes, `fit` is classes 1-78 and `val` classes 79-98.
    The dataset's own train and test folders play no part: both papers split by class.
    """
    base = find_root(INFO, root, ["cars_annos.mat", _DEVKIT])
    single = base / "cars_annos.mat"
    pairs, names = _single(single) if single.is_file() else _devkit(base)
    wanted = _CLASSES[split]
    rows = [Row(path, label) for path, label in pairs if label in wanted]
    names = {number: name for number, name in names.items() if number in wanted}
    return Listing.of_rows(rows, class_names=names, origin=str(base))


def makes(root: Path | None, split: str) -> Listing:
    """The same splits; label = make, fine label = class number."""
    found = listing(root, split)
    if not found.class_names:
        raise DataError(
            f"cars196-makes in {found.origin}: no class names, which begin with the make"
        )
    make = {number: _make(name) for number, name in found.class_names.items()}
    places = {name: place for place, name in enumerate(sorted(set(make.values())))}
    return replace(
        found,
        labels=np.array([places[make[number]] for number in found.labels.tolist()], np.int64),
        fine_labels=found.labels,
        class_names={place: name for name, place in places.items()},
        fine_names=found.class_names,
    )


def _make(name: str) -> str:
    return next((two for two in _TWO_WORDS if name.startswith(two)), name.split()[0])


def _single(path: Path) -> tuple[list[tuple[Path, int]], dict[int, str]]:
    mat = _mat(path)
    pairs = [
        (path.parent / str(image), int(label))
        for image, label in zip(
            _column(path, mat, "relative_im_path"), _column(path, mat, "class"), strict=True
        )
    ]
    return pairs, _names(mat)


def _devkit(base: Path) -> tuple[list[tuple[Path, int]], dict[int, str]]:
    labelled = "cars_test_annos_withlabels.mat"
    tests = [base / "devkit" / labelled, base / labelled]
    test = next((path for path in tests if path.is_file()), None)
    if test is None:
        raise DataError(
            f"cars196 in {base}: no {labelled} in devkit/ or beside it; the split by class needs "
            "the labels of both folders, and cars_test_annos.mat has none"
        )
    pairs: list[tuple[Path, int]] = []
    for path, folder in ((base / _DEVKIT, "cars_train"), (test, "cars_test")):
        mat = _mat(path)
        images = base / folder
        if (images / folder).is_dir():  # as Kaggle packs it
            images = images / folder
        columns = zip(_column(path, mat, "fname"), _column(path, mat, "class"), strict=True)
        pairs += [(images / str(image), int(label)) for image, label in columns]
    meta = base / "devkit" / "cars_meta.mat"
    return pairs, _names(_mat(meta)) if meta.is_file() else {}


def _mat(path: Path) -> dict[str, Any]:
    import scipy.io  # slow to import, and only this dataset needs it

    try:
        mat: dict[str, Any] = scipy.io.loadmat(path, squeeze_me=True)
    except Exception as error:  # scipy raises many kinds on damaged files
        raise DataError(f"{path}: not a MATLAB file that can be read ({error})") from None
    return mat


def _column(path: Path, mat: dict[str, Any], field: str) -> list[Any]:
    table = np.atleast_1d(mat.get("annotations", np.zeros(0)))
    if table.dtype.names is None or field not in table.dtype.names:
        raise DataError(f"{path}: no annotations with a field {field!r}")
    return [np.asarray(value).item() for value in table[field]]


def _names(mat: dict[str, Any]) -> dict[int, str]:
    names = np.atleast_1d(mat.get("class_names", np.zeros(0, object)))
    return {place + 1: str(name) for place, name in enumerate(names)}
