"""Arrays: their one alias, and the one way in from NumPy, lists and tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.check import InputError

__all__ = ["Array", "ArrayLike", "class_ids", "eager", "points", "points64"]

Array = np.ndarray[Any, Any]
ArrayLike = Tensor | Array | Sequence[Any]
_F = TypeVar("_F", bound=Callable[..., Any])


def eager(function: _F) -> _F:
    """Keep `torch.compile` out of a function: what depends on the data is not traced.

    `torch.compiler.disable` loads the compiler at once, which takes as long as loading torch;
    torch's own optimisers use the one that loads it when the function is first called.
    """
    disable: Any = getattr(torch, "_disable_dynamo", torch.compiler.disable)
    return cast(_F, disable(function))


def points(
    x: ArrayLike, name: str = "x", *, min_rows: int = 1, check_finite: bool = True
) -> Tensor:
    """Return `x` as a 2-D finite floating-point tensor, one row a point; keeps device and graph.

    float16 and bfloat16 are promoted to float32, integers to float64; arrays may have any strides
    and byte order. `check_finite=False` is for those who find out in another way: on a GPU the look
    at the values makes the host wait.

    >>> points([[0, 1], [2, 3]]).dtype
    torch.float64
    """
    try:
        tensor = x if isinstance(x, Tensor) else _from_numpy(np.asarray(x))
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(name, f"{type(x).__name__} ({error})", "a 2-D array of numbers") from None
    if tensor.ndim != 2:
        raise InputError(name, f"shape {tuple(tensor.shape)}", "a 2-D array, one row a point")
    if tensor.is_complex():
        raise InputError(name, str(tensor.dtype), "real numbers")
    rows, columns = tensor.shape
    if rows < min_rows or columns < 1:
        allowed = f"at least {min_rows} row{'s' * (min_rows != 1)} and 1 column"
        raise InputError(name, f"shape {(rows, columns)}", allowed)
    if not tensor.is_floating_point():
        tensor = tensor.to(torch.float64)
    elif tensor.dtype in (torch.float16, torch.bfloat16):
        tensor = tensor.to(torch.float32)
    # One reduction decides the common case; the rows are looked for only when it fails.
    if check_finite and not math.isfinite(float(tensor.detach().sum())):
        finite = torch.isfinite(tensor.detach()).all(dim=1)
        if not bool(finite.all()):
            bad = torch.nonzero(~finite).flatten().tolist()
            raise InputError(name, f"NaN or infinity in {_rows(bad)}", "finite numbers")
    return tensor


def points64(x: ArrayLike, name: str = "x", *, min_rows: int = 1) -> Array:
    """Return `x` checked, as a float64 NumPy array off the graph."""
    tensor = points(x, name, min_rows=min_rows).detach()
    return tensor.to(device="cpu", dtype=torch.float64).numpy()


def class_ids(
    labels: ArrayLike, n: int, name: str = "labels", *, min_classes: int = 1
) -> tuple[Array, Array]:
    """Return `(ids, classes)`: a class number 0..C-1 a row, and the sorted labels they stand for.

    Labels may be integers of any size, strings or booleans; nothing is cast to float.

    >>> ids, classes = class_ids(["b", "a", "b"], 3)
    >>> ids.tolist(), classes.tolist()
    ([1, 0, 1], ['a', 'b'])
    """
    array = _label_array(labels, name)
    if array.ndim != 1:
        raise InputError(name, f"shape {array.shape}", "a 1-D array, one label a row")
    if len(array) != n:
        raise InputError(name, f"{len(array)} labels", f"{n}, one for each row")
    if array.dtype.kind in "fc":
        whole = np.isfinite(array) & (array == np.floor(array.real)) & (array.dtype.kind == "f")
        if not bool(whole.all()):
            given = f"{array.dtype} values such as {array[~whole][0]}"
            raise InputError(name, given, "integers or strings")
    try:
        classes, ids = np.unique(array, return_inverse=True)
    except TypeError as error:  # objects that have no order among them
        raise InputError(
            name, f"labels of several kinds ({error})", "integers or strings"
        ) from None
    if len(classes) < min_classes:
        raise InputError(
            name, f"{len(classes)} class in {n} rows", f"at least {min_classes} classes"
        )
    return ids.astype(np.int64, copy=False), classes


def _from_numpy(array: Array) -> Tensor:
    """The array's own memory where torch can use it, else a copy that it can."""
    if array.dtype.kind in "iub":
        dtype: type = np.float64
    elif array.dtype.kind == "f":
        dtype = np.float32 if array.dtype.itemsize <= 4 else np.float64
    elif array.dtype.kind == "c":
        dtype = np.complex128  # refused where the reason can be given
    else:
        raise TypeError(f"{array.dtype} values")
    return torch.from_numpy(np.require(array, dtype, ["C", "W"]))


def _label_array(labels: ArrayLike, name: str) -> Array:
    if isinstance(labels, Tensor):
        plain = labels.detach().cpu()
        return (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()
    try:
        array = np.asarray(labels)
    except ValueError as error:
        raise InputError(name, f"a ragged list ({error})", "a 1-D array, one label a row") from None
    if array.dtype.kind == "f" and not hasattr(labels, "dtype"):
        # NumPy makes floats of integers that no one type of its own holds: 2**63 beside -1.
        listed = np.array(labels, dtype=object)
        if all(isinstance(label, int) for label in listed.flat):
            return listed
    return array


def _rows(indices: list[int]) -> str:
    shown = ", ".join(map(str, indices[:5]))
    more = f" and {len(indices) - 5} more" if len(indices) > 5 else ""
    return f"row{'s' * (len(indices) > 1)} {shown}{more}"
