"""Texts as rows of a tensor, so that whatever carries samples carries texts: bytes of UTF-8."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["MOST_BYTES", "rows_of_texts", "texts_of_rows"]

MOST_BYTES = 1 << 16  # of one text: beyond what any of the usual transformers reads


def rows_of_texts(texts: Sequence[str], length: int | None = None) -> Tensor:
    """The UTF-8 bytes of each text as int16 `[B, length]`, zeros behind them.

    `length` is by default that of the longest; what is longer is cut between two characters. Not
    uint8: images have that type, and are scaled where they are read.

    >>> rows_of_texts(["ab", "é"])
    tensor([[ 97,  98],
            [195, 169]], dtype=torch.int16)
    """
    import torch  # a listing of texts does without

    encoded = [text.encode("utf-8", "replace") for text in texts]
    if length is None:
        length = max([1, *map(len, encoded)])
    rows = np.zeros((len(encoded), length), np.int16)
    for row, data in zip(rows, encoded, strict=True):
        kept = data if len(data) <= length else _cut(data, length)
        row[: len(kept)] = np.frombuffer(kept, np.uint8)
    return torch.from_numpy(rows)


def texts_of_rows(rows: Tensor) -> list[str]:
    """The texts of rows that `rows_of_texts` made, of any integer type and on any device.

    >>> texts_of_rows(rows_of_texts(["naïve", "", "a\\nb"]))
    ['naïve', '', 'a\\nb']
    """
    array = rows.detach().cpu().numpy().astype(np.uint8)
    return [row.tobytes().rstrip(b"\0").decode("utf-8", "replace") for row in array]


def _cut(data: bytes, length: int) -> bytes:
    return data[:length].decode("utf-8", "ignore").encode()
