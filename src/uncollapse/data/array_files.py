"""The user's own arrays: features for training a head on a frozen network, or uint8 images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from uncollapse.data.listing import DataError, DatasetInfo, Listing
from uncollapse.data.readers import ARRAY_FILES, read_arrays

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array

__all__ = ["INFO", "listing"]

INFO = DatasetInfo(
    name="arrays",
    title="Your own arrays of features or images",
    home="your own",
    licence="your own",
    layout="""\
.npz or .safetensors with features [N, D] (or x, embeddings) or images [N, C, H, W] of uint8,
    labels [N] (or y), optional: fine_labels, cameras, split (words, .npz only)
.npy with the features, and <same name>_labels.npy or labels.npy beside it
or a folder with one such file a split: train.npz, test.npz, ...""",
    splits=("train", "val", "test", "query", "gallery", "all"),
)
_SAMPLES = ("features", "embeddings", "x", "X", "images")


def listing(root: Path | None, split: str | None) -> Listing:
    """The rows whose `split` is the one asked for, or the file of that split in a folder."""
    if root is None or not root.exists():
        raise DataError(f"arrays: root must be a file or folder of arrays, got {root}")
    if root.is_dir():
        split = split or "train"
        files = [root / f"{split}{suffix}" for suffix in ARRAY_FILES]
        path = next((file for file in files if file.is_file()), None)
        if path is None:
            names = ", ".join(file.name for file in files)
            raise DataError(f"arrays: none of {names} in {root}")
        return replace(_listing(path, _read(path), "all"), split=split)
    arrays = _read(root)
    words = [str(word) for word in arrays.get("split", ())]
    return _listing(root, arrays, split or ("train" if "train" in words else "all"))


def _listing(path: Path, arrays: dict[str, Array], split: str) -> Listing:
    name = next((key for key in _SAMPLES if key in arrays), None)
    if name is None:
        raise DataError(f"{path}: none of {', '.join(_SAMPLES)}; it holds {_names(arrays)}")
    samples = arrays[name]
    features = samples.ndim == 2 and samples.dtype.kind in "fiu"
    images = samples.ndim == 4 and samples.dtype == np.uint8 and samples.shape[1] in (1, 3)
    if not features and not images:
        given = f"{samples.dtype} of shape {samples.shape}"
        raise DataError(f"{path}: {name} is {given}; expected numbers [N, D] or uint8 [N, C, H, W]")
    if features:
        samples = samples.astype(np.float32)
        if not np.isfinite(samples).all():
            raise DataError(f"{path}: {name} holds NaN or infinity")
    labels = next((arrays[key] for key in ("labels", "y") if key in arrays), None)
    if labels is None:
        raise DataError(f"{path}: no labels; it holds {_names(arrays)}")
    labels, class_names = _numbered(path, "labels", labels, len(samples))
    fine, fine_names = (
        _numbered(path, "fine_labels", arrays["fine_labels"], len(samples))
        if "fine_labels" in arrays
        else (None, {})
    )
    cameras = (
        _numbered(path, "cameras", arrays["cameras"], len(samples))[0]
        if "cameras" in arrays
        else None
    )
    keep = _rows(path, arrays, split, len(samples))
    return Listing(
        images=samples[keep],
        labels=labels[keep],
        fine_labels=None if fine is None else fine[keep],
        cameras=None if cameras is None else cameras[keep],
        class_names=class_names,
        fine_names=fine_names,
        origin=str(path),
        split=split,
    )


def _rows(path: Path, arrays: dict[str, Array], split: str, count: int) -> Array:
    if split == "all":
        return np.ones(count, bool)
    words = np.asarray([str(word) for word in arrays.get("split", ())])
    if len(words) != count or split not in words:
        there = ", ".join([*sorted(set(words.tolist())), "all"])
        raise DataError(f"{path}: no rows of split {split!r}; there is: {there}")
    keep: Array = words == split
    return keep


def _read(path: Path) -> dict[str, Array]:
    """The arrays of a file by name; the labels of a .npy are in another file beside it."""
    if path.suffix not in ARRAY_FILES:
        raise DataError(f"arrays: expected one of {', '.join(ARRAY_FILES)}, got {path.name}")
    arrays = read_arrays(path)
    if path.suffix != ".npy":
        return arrays
    beside = (path.with_name(f"{path.stem}_labels.npy"), path.with_name("labels.npy"))
    labels = next((file for file in beside if file.is_file()), None)
    if labels is None:
        names = " or ".join(file.name for file in beside)
        raise DataError(f"{path}: no labels: neither {names} is beside it")
    return arrays | {"labels": next(iter(read_arrays(labels).values()))}


def _numbered(path: Path, name: str, values: Array, count: int) -> tuple[Array, dict[int, str]]:
    """Labels as numbers, and the names of those that were words."""
    if values.shape != (count,) or values.dtype.kind not in "iubUS":
        given = f"{values.dtype} of shape {values.shape}"
        raise DataError(f"{path}: {name} is {given}; expected {count} whole numbers or words")
    if values.dtype == np.uint64 and values.max(initial=0) > np.iinfo(np.int64).max:
        values = values.astype(str)  # beyond torch's numbers: names
    if values.dtype.kind in "US":
        words, numbers = np.unique(values, return_inverse=True)
        return numbers.astype(np.int64), {place: str(word) for place, word in enumerate(words)}
    numbers = values.astype(np.int64)
    return numbers, {int(number): str(number) for number in np.unique(numbers)}


def _names(arrays: dict[str, Array]) -> str:
    return ", ".join(arrays) or "nothing"
