"""Stanford Cars (Krause et al. 2013), both layouts: EPS §5.2, HNM appendix D."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from uncollapse.data.listing import DataError, DatasetInfo, Listing, find_root

_TWO_WORDS = ("AM General", "Aston Martin", "Land Rover")
_DEVKIT = "devkit/cars_train_annos.mat"


def listing(info: DatasetInfo, root: Path | None, split: str) -> Listing:
    """`train`: classes 1-98, `test`: classes 99-196, or `all`; label = class number.

    To choose settings without the test classes, `fit` is classes 1-78 and `val` classes 79-98.
    The dataset's own train and test folders play no part: both papers split by class.
    """
    base = find_root(info, root, ["cars_annos.mat", _DEVKIT])
    single = base / "cars_annos.mat"
    images, names = _single(single) if single.is_file() else _devkit(base)
    return Listing.of_classes(images, names, info.classes_of(split), base)


def makes(info: DatasetInfo, root: Path | None, split: str) -> Listing:
    """The same splits; label = make, fine label = class number."""
    models = listing(info, root, split)
    if not models.class_names:
        why = "no class names, which begin with the make"
        raise DataError(f"cars196-makes in {models.origin}: {why}")
    make = {
        number: next((two for two in _TWO_WORDS if name.startswith(two)), name.split()[0])
        for number, name in models.class_names.items()
    }
    numbers = {name: number for number, name in enumerate(sorted(set(make.values())))}
    return replace(
        models,
        labels=np.array([numbers[make[number]] for number in models.labels.tolist()], np.int64),
        fine_labels=models.labels,
        class_names={number: name for name, number in numbers.items()},
        fine_names=models.class_names,
    )


def _single(path: Path) -> tuple[dict[Path, int], dict[int, str]]:
    return _labelled(path, "relative_im_path", path.parent), _names(path)


def _devkit(base: Path) -> tuple[dict[Path, int], dict[int, str]]:
    labelled = "cars_test_annos_withlabels.mat"
    tests = [base / "devkit" / labelled, base / labelled]
    test = next((path for path in tests if path.is_file()), None)
    if test is None:
        raise DataError(
            f"cars196 in {base}: no {labelled} in devkit/ or beside it; the split by class needs "
            "the labels of both folders, and cars_test_annos.mat has none"
        )
    images: dict[Path, int] = {}
    for path, folder in ((base / _DEVKIT, "cars_train"), (test, "cars_test")):
        packed = base / folder / folder  # by Kaggle
        images |= _labelled(path, "fname", packed if packed.is_dir() else base / folder)
    meta = base / "devkit" / "cars_meta.mat"
    return images, _names(meta) if meta.is_file() else {}


def _mat(path: Path) -> dict[str, Any]:
    import scipy.io  # slow to import, and only this dataset needs it

    try:
        mat: dict[str, Any] = scipy.io.loadmat(path, squeeze_me=True)
    except Exception as error:  # scipy raises many kinds on damaged files
        raise DataError(f"{path}: not a MATLAB file that can be read ({error})") from None
    return mat


def _labelled(path: Path, field: str, folder: Path) -> dict[Path, int]:
    """The images of a file of annotations, with their classes."""
    table = np.atleast_1d(_mat(path).get("annotations", np.zeros(0)))
    for name in (field, "class"):
        if table.dtype.names is None or name not in table.dtype.names:
            raise DataError(f"{path}: no annotations with a field {name!r}")
    names, labels = ([np.asarray(v).item() for v in table[key]] for key in (field, "class"))
    return {folder / str(name): int(label) for name, label in zip(names, labels, strict=True)}


def _names(path: Path) -> dict[int, str]:
    names = np.atleast_1d(_mat(path).get("class_names", np.zeros(0, object)))
    return {number: str(name) for number, name in enumerate(names, 1)}
