"""Datasets of both papers and the user's own, decoded once, checked, and augmented in batches."""

from typing import TYPE_CHECKING

from uncollapse._base.extras import lazy_names

if TYPE_CHECKING:
    from uncollapse.data.cache import CacheError, with_features
    from uncollapse.data.listing import Counts, DataError, Listing, LoadReport, Row, TextSource
    from uncollapse.data.loading import load, paper_transform
    from uncollapse.data.registry import DATASETS, OWN, Survey, check, describe, survey
    from uncollapse.data.types import LabelledImages, TensorSource

__all__ = [
    "DATASETS",
    "OWN",
    "CacheError",
    "Counts",
    "DataError",
    "LabelledImages",
    "Listing",
    "LoadReport",
    "Row",
    "Survey",
    "TensorSource",
    "TextSource",
    "check",
    "describe",
    "load",
    "paper_transform",
    "survey",
    "with_features",
]

# Loaded when first used: to list datasets takes neither torch nor Pillow.
__getattr__ = lazy_names(
    __name__,
    {
        "cache": "CacheError with_features",
        "listing": "Counts DataError Listing LoadReport Row TextSource",
        "loading": "load paper_transform",
        "registry": "DATASETS OWN Survey check describe survey",
        "types": "LabelledImages TensorSource",
    },
)
