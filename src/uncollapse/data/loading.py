"""Samples of a dataset, by name: `load("cub200", split="train")`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from uncollapse._base.arrays import Array
from uncollapse._base.check import InputError
from uncollapse._base.progress import ProgressOption, progress_reporter
from uncollapse.data.augment import Compose, center_crop, horizontal_flip, random_resized_crop
from uncollapse.data.cache import cached
from uncollapse.data.images import Decoding, FileSource, decode_all
from uncollapse.data.listing import DataError, DatasetInfo, Listing, LoadReport, TextSource
from uncollapse.data.registry import describe, list_split
from uncollapse.data.types import ImageSource, LabelledImages, TensorSource, Transform


def load(
    name: str,
    root: str | Path | None = None,
    split: str | None = None,
    *,
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    fit: str | None = None,
    middle: float | None = None,
    cache: bool = True,
    strict: bool = False,
    transform: Transform | None = None,
    progress: ProgressOption = None,
) -> LabelledImages:
    """Load a split of a dataset: one of `DATASETS`, or your own (`OWN`).

    `name` may be `module.path:function`, your own function, or what an installed package adds
    (entry point `uncollapse.datasets`). It is called with `root` and `split` and returns a
    `Listing`; `function.splits` may be the names of its splits, `function.texts` True for texts.

    `root` is the dataset's folder (or your file), or a folder that holds it under its usual name;
    by default that is `UNCOLLAPSE_DATA`. `split` defaults to `train`; `describe` lists the others.
    Image files are decoded once, into a memory-mapped cache, to `size` (height, width; one number
    is square), `channels` and `fit` (`"cover"`, `"contain"`, `"stretch"`), by default as in the
    papers; `cache=False` decodes them at every access. Before that they are cropped to the middle
    share `middle` of height and width (for lfw 0.6, the face). Samples that were left out or
    converted are in `.report`; with `strict` they are an error. `transform` changes batches.

    >>> data = load("digits", split="test")
    >>> len(data), data.shape, data.split
    (599, (1, 8, 8), 'test')
    """
    info = describe(name)
    listing = list_split(name, root, split)
    if isinstance(listing.images, tuple):
        how = decoding(info, size, channels, fit, middle)
        source, listing, odd = _decoded(listing, name, how, cache, strict, progress)
    else:
        _check_undecoded(name, size=size, channels=channels, fit=fit, middle=middle)
        source, odd = _held(listing.images)
    report = replace(odd, missing=listing.missing, ignored=listing.ignored)
    if strict and not report.clean:
        raise DataError(f"{name} in {listing.origin}, strict: {report.summary()}")
    if len(source) == 0:
        kind = "texts" if info.texts else "images"
        raise DataError(f"{name} in {listing.origin}: no usable {kind} ({report.summary()})")
    return LabelledImages(
        source=source,
        labels=torch.as_tensor(listing.labels),
        fine_labels=_tensor(listing.fine_labels),
        cameras=_tensor(listing.cameras),
        class_names=listing.class_names,
        fine_names=listing.fine_names,
        name=name,
        split=listing.split,
        origin=listing.origin,
        report=report,
        transform=transform,
        files=tuple(map(str, listing.images)) if isinstance(listing.images, tuple) else None,
    )


def paper_transform(name: str, *, train: bool, seed: int = 0) -> Compose:
    """The batch transform of the papers for a dataset, applied after `load`.

    Where the network's input is cropped from the cached images (CUB, Cars, SOP): for training a
    random resized crop and a flip, for evaluation the middle. Market-1501: a flip in training.
    Nothing for the others.

    >>> import torch
    >>> crop = paper_transform("cub200", train=False)
    >>> tuple(crop(torch.zeros(2, 3, 256, 256)).shape)
    (2, 3, 224, 224)
    """
    info = describe(name)
    if info.crop is not None:
        size = (info.crop, info.crop)
        if not train:
            return Compose([partial(center_crop, size=size)])
        return Compose([partial(random_resized_crop, size=size), horizontal_flip], seed=seed)
    return Compose([horizontal_flip] if train and name == "market1501" else [], seed=seed)


def _decoded(
    listing: Listing,
    name: str,
    how: Decoding,
    cache: bool,
    strict: bool,
    progress: ProgressOption,
) -> tuple[ImageSource, Listing, LoadReport]:
    """The decoded images, the listing of the readable ones, and the report of decoding."""
    assert isinstance(listing.images, tuple)
    files = FileSource(listing.images, how)
    if cache and len(files):
        origin = f"{listing.origin} {listing.split}"
        called = f"{name}-{listing.split}".replace(":", "-")  # no name of a file on Windows
        images = cached(files, called, origin=origin, progress=progress)
        return images.source, listing.select(images.rows), images.report
    if not strict:
        return files, listing, LoadReport()
    with progress_reporter(progress, "decoding images") as show:
        return files, listing, decode_all(files, lambda row, pixels: None, show)


def _held(samples: Any) -> tuple[ImageSource, LoadReport]:
    """The samples that a listing holds, and the report of the texts among them that are cut."""
    if isinstance(samples, TextSource):
        return samples, LoadReport(converted=samples.shortened())
    source = samples if hasattr(samples, "read") else TensorSource(torch.as_tensor(samples))
    return source, LoadReport()


def _check_undecoded(name: str, **options: object) -> None:
    for option, value in options.items():
        if value is not None:
            why = f"{name} is not decoded from image files"
            raise InputError.conflict(f"{option} = {value} has no meaning: {why}")


def _tensor(numbers: Array | None) -> Tensor | None:
    return None if numbers is None else torch.as_tensor(numbers)


def decoding(
    info: DatasetInfo,
    size: int | tuple[int, int] | None,
    channels: int | None,
    fit: str | None,
    middle: float | None,
) -> Decoding:
    """How images of a dataset are decoded: as it says where nothing else is asked for."""
    chosen = (size, size) if isinstance(size, int) else size or info.size or (224, 224)
    share = info.middle if middle is None else middle
    return Decoding(chosen, channels or info.channels, fit or info.fit, info.invert, share)
