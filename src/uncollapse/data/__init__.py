"""Datasets of both papers and the user's own, decoded once, checked, and augmented in batches."""

from typing import TYPE_CHECKING

from uncollapse._base.extras import lazy_names

if TYPE_CHECKING:
    from uncollapse.data.augment import (
        Compose,
        center_crop,
        color_jitter,
        horizontal_flip,
        per_image,
        random_crop,
        random_erasing,
        random_resized_crop,
        standardize,
    )
    from uncollapse.data.cache import CacheError, cache_folder, with_features
    from uncollapse.data.images import UnreadableImageError
    from uncollapse.data.listing import Counts, DataError, DatasetInfo, LoadReport
    from uncollapse.data.loading import load, paper_transform
    from uncollapse.data.registry import DATASETS, OWN, Survey, check, describe, survey
    from uncollapse.data.types import LabelledImages, TensorSource

__all__ = [
    "DATASETS",
    "OWN",
    "CacheError",
    "Compose",
    "Counts",
    "DataError",
    "DatasetInfo",
    "LabelledImages",
    "LoadReport",
    "Survey",
    "TensorSource",
    "UnreadableImageError",
    "cache_folder",
    "center_crop",
    "check",
    "color_jitter",
    "describe",
    "horizontal_flip",
    "load",
    "paper_transform",
    "per_image",
    "random_crop",
    "random_erasing",
    "random_resized_crop",
    "standardize",
    "survey",
    "with_features",
]

# Loaded when first used: to list datasets takes neither torch nor Pillow.
__getattr__ = lazy_names(
    __name__,
    {
        "augment": "Compose center_crop color_jitter horizontal_flip per_image random_crop "
        "random_erasing random_resized_crop standardize",
        "cache": "CacheError cache_folder with_features",
        "images": "UnreadableImageError",
        "listing": "Counts DataError DatasetInfo LoadReport",
        "loading": "load paper_transform",
        "registry": "DATASETS OWN Survey check describe survey",
        "types": "LabelledImages TensorSource",
    },
)
