"""Whole numbers, one a row, that index a parameter: proxies of classes, β's of samples."""

from __future__ import annotations

import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike
from uncollapse._base.check import InputError

__all__ = ["row_numbers"]


def row_numbers(values: ArrayLike | None, rows: int, size: int, name: str) -> Tensor:
    """`values` as an int64 tensor, one for each row and each in 0 to `size` - 1, or raise.

    >>> row_numbers([2, 0], rows=2, size=3, name="labels")
    tensor([2, 0])
    """
    allowed = f"{rows} whole numbers in 0..{size - 1}, one for each row"
    if values is None:
        raise InputError(name, None, allowed)
    numbers = torch.as_tensor(values)
    if numbers.shape != (rows,):
        raise InputError(name, f"shape {tuple(numbers.shape)}", allowed)
    if numbers.is_floating_point() or numbers.is_complex() or numbers.dtype == torch.bool:
        raise InputError(name, str(numbers.dtype), allowed)
    if rows and not 0 <= int(numbers.min()) <= int(numbers.max()) < size:
        raise InputError(name, f"{int(numbers.min())}..{int(numbers.max())}", allowed)
    return numbers.long()
