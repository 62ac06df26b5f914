"""Samples that are texts: each is a row of bytes (`_base.text_rows`), padded to the longest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from uncollapse._base.text_rows import MOST_BYTES, rows_of_texts

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["TextSource"]


@dataclass(frozen=True)
class TextSource:
    """Texts held in memory; of one above 65,536 bytes the beginning is read.

    >>> import torch
    >>> source = TextSource(("hello", "you"))
    >>> source.shape, source.read(torch.tensor([1])).tolist()
    ((5,), [[121, 111, 117, 0, 0]])
    """

    texts: tuple[str, ...]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Bytes of the longest text."""
        longest = max((len(text.encode("utf-8", "replace")) for text in self.texts), default=1)
        return (min(max(longest, 1), MOST_BYTES),)

    def __len__(self) -> int:
        return len(self.texts)

    def read(self, rows: Tensor) -> Tensor:
        """The texts of these rows, `[B, L]` in int16."""
        return rows_of_texts([self.texts[row] for row in rows.tolist()], self.shape[0])

    def select(self, rows: Sequence[int]) -> TextSource:
        """These texts only."""
        return TextSource(tuple(self.texts[row] for row in rows))
