"""Say which files of a dataset were skipped, on standard error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from uncollapse.data import LabelledImages

__all__ = ["tell_skipped"]


def tell_skipped(data: LabelledImages, split: str) -> None:
    """A warning with counts and the first names; nothing where nothing was skipped."""
    if data.report.skipped:
        text = f"warning: {split}: {data.report.skipped_summary()}"
        Console(stderr=True, soft_wrap=True).print(text, highlight=False, markup=False)
