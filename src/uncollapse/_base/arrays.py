"""Arrays: their type alias, and the conversion of NumPy arrays, lists and tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.check import InputError

Array = np.ndarray[Any, Any]
ArrayLike = Tensor | Array | Sequence[Any]
_F = TypeVar("_F", bound=Callable[..., Any])


def eager(function: _F) -> _F:
    """Keep `torch.compile` out of a function whose control flow depends on the data.

    `torch.compiler.disable` loads the compiler at once, which takes as long as loading torch;
    torch's own optimisers use the one that loads it when the function is first called.
    """
    return cast(_F, getattr(torch, "_disable_dynamo", torch.compiler.disable)(function))


def points(
    x: ArrayLike, name: str = "x", *, min_rows: int = 1, check_finite: bool = True
) -> Tensor:
    """Return `x` as a 2-D finite floating-point tensor, one row per point; keeps device and graph.

    float16 and bfloat16 are promoted to float32, integers to float64; arrays may have any strides
    and byte order. `check_finite=False` is for callers that check in another way: on a GPU this
    check makes the host wait.

    >>> points([[0, 1], [2, 3]]).dtype
    torch.float64
    """
    tensor = as_rows(x, name, min_rows=min_rows)
    if tensor.dtype in (torch.float16, torch.bfloat16):
        tensor = tensor.to(torch.float32)
    # One reduction decides the common case; the rows are looked for only when it fails.
    if check_finite and not math.isfinite(float(tensor.detach().sum())):
        bad = torch.nonzero(~torch.isfinite(tensor.detach()).all(dim=1)).flatten().tolist()
        if bad:
            more = f" and {len(bad) - 1} more" * (len(bad) > 1)
            raise InputError(name, f"NaN or infinity in row {bad[0]}{more}", "finite numbers")
    return tensor


def points64(x: ArrayLike, name: str = "x", *, min_rows: int = 1) -> Array:
    """Return `x` checked, as a float64 NumPy array off the graph."""
    return points(x, name, min_rows=min_rows).detach().to("cpu", torch.float64).numpy()


def as_rows(x: ArrayLike, name: str = "x", *, min_rows: int = 1) -> Tensor:
    """Return `x` as a 2-D tensor, in the float dtype it has (float64 of integers), finite or not.

    >>> as_rows(np.ones((2, 3), np.float16)).dtype
    torch.float16
    """
    tensor = _tensor(x, name, "a 2-D array of numbers")
    if tensor.ndim != 2:
        hint = "labels? the embeddings come first; points on a line are x[:, None]"
        hint = "one row for each point: x.flatten(1)" if tensor.ndim > 2 else hint
        given = f"shape {tuple(tensor.shape)}" + f" ({hint})" * bool(tensor.ndim)
        raise InputError(name, given, "a 2-D array, one row per point")
    rows, columns = tensor.shape
    if rows < min_rows or columns < 1:
        allowed = f"at least {min_rows} row{'s' * (min_rows != 1)} and 1 column"
        raise InputError(name, f"shape {(rows, columns)}", allowed)
    return tensor if tensor.is_floating_point() else tensor.to(torch.float64)


def numbers64(values: ArrayLike, name: str = "values", *, least: int = 1) -> Array:
    """Return a list of at least `least` numbers as a float64 array; NaN may be among them."""
    allowed = f"a list of at least {least} number{'s' * (least != 1)}"
    tensor = _tensor(values, name, allowed)
    if tensor.ndim != 1 or len(tensor) < least:
        raise InputError(name, f"shape {tuple(tensor.shape)}", allowed)
    return tensor.detach().to(device="cpu", dtype=torch.float64).numpy()


def scalar(value: Any, name: str) -> float:
    """Return the one number, finite or not, that `value` holds."""
    try:
        return float(value.detach() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError, RuntimeError):
        shape = tuple(getattr(value, "shape", ()))
        given = f"shape {shape} (its mean()?)" if shape else type(value).__name__
        raise InputError(name, given, "one number") from None


def class_ids(
    labels: ArrayLike, n: int | None, name: str = "labels", *, min_classes: int = 1
) -> tuple[Array, Array]:
    """Return `(ids, classes)`: a class number 0..C-1 per row, and the sorted labels they stand for.

    Labels may be integers of any size, strings or booleans; nothing is cast to float. There must be
    `n` of them, or any number, at least one, where `n` is None.

    >>> ids, classes = class_ids(["b", "a", "b"], 3)
    >>> ids.tolist(), classes.tolist()
    ([1, 0, 1], ['a', 'b'])
    """
    array = label_array(labels, n, name)
    try:
        classes, ids = np.unique(array, return_inverse=True)
    except TypeError as error:  # objects that have no order among them
        given = f"labels of several kinds ({error})"
        raise InputError(name, given, "integers or strings") from None
    if len(classes) < min_classes:
        given = f"{len(classes)} class in {len(array)} rows"
        raise InputError(name, given, f"at least {min_classes} classes")
    return ids.astype(np.int64, copy=False), classes


def label_array(labels: ArrayLike, n: int | None = None, name: str = "labels") -> Array:
    """Labels as a 1-D array of `n` (any number of, if None) integers, whole floats or names."""
    array = _plain_labels(labels, name)
    if array.ndim != 1:
        given = f"shape {array.shape}{_label_hint(array)}"
        raise InputError(name, given, "a 1-D array, one label per row")
    if n is None and not len(array):
        raise InputError(name, "0 labels", "at least one")
    if n is not None and len(array) != n:
        raise InputError(name, f"{len(array)} labels", f"{n}, one for each row")
    unusable = _not_labels(array)
    if bool(unusable.any()):
        row = int(unusable.argmax())
        raise InputError(name, f"{array[row]} in row {row}", "integers or strings")
    return array


def _not_labels(array: Array) -> Array:
    """Rows that name no class: fractions, missing values, non-texts among texts."""
    if array.dtype.kind == "f":
        return np.asarray(~np.isfinite(array) | (array != np.floor(array)))
    if array.dtype.kind in "mM":
        return np.isnat(array)
    if array.dtype.kind != "O":
        return np.full(len(array), array.dtype.kind == "c")
    texts = np.array([isinstance(label, str | bytes) for label in array])
    return ~texts if texts.any() else np.array(list(map(_is_no_class, array)), dtype=bool)


def _tensor(x: ArrayLike, name: str, allowed: str) -> Tensor:
    """Real numbers of any shape as a dense tensor."""
    try:
        tensor = x if isinstance(x, Tensor) else _from_numpy(_unmasked(x))
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(name, f"{type(x).__name__} ({error})", allowed) from None
    if tensor.is_complex():
        raise InputError(name, str(tensor.dtype), "real numbers")
    return _dense(tensor, name)


def _dense(tensor: Tensor, name: str) -> Tensor:
    if tensor.layout is not torch.strided or tensor.is_meta:
        given = "no data (device meta)" if tensor.is_meta else f"a {tensor.layout} tensor"
        raise InputError(name, given, "a dense tensor with data, as to_dense() gives")
    # torch may negate lazily, by a flag that NumPy does not know.
    return tensor.resolve_neg()


def _from_numpy(array: Array) -> Tensor:
    """A tensor that shares the array's memory where torch can use it, else a copy."""
    kind = array.dtype.kind
    dtype: type = np.float64
    if kind == "f":
        dtype = {2: np.float16, 4: np.float32}.get(array.dtype.itemsize, np.float64)
    elif kind == "c":
        dtype = np.complex128  # refused where the reason can be given
    elif kind not in "iubO" or (kind == "O" and not all(isinstance(v, Real) for v in array.flat)):
        raise TypeError(f"{array.dtype} values")
    return torch.from_numpy(np.require(array, dtype, ["C", "W"]))


def _unmasked(x: Any) -> Array:
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise ValueError("masked entries, which have no value")
    return np.asarray(x)


def _plain_labels(labels: ArrayLike, name: str) -> Array:
    if isinstance(labels, Tensor):
        plain = _dense(labels.detach(), name).cpu()
        return (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()
    try:
        array = _unmasked(labels)
    except (TypeError, ValueError, RuntimeError) as error:
        allowed = "a 1-D array, one label per row"
        raise InputError(name, f"a ragged list ({error})", allowed) from None
    if hasattr(labels, "dtype") or array.dtype.kind not in "fUS" or array.ndim != 1:
        return array
    # NumPy makes floats of integers that no one type of its own holds, 2**63 beside -1, and text
    # of what stands beside text: 1 and "1" would be one class, and nan a name.
    if array.dtype.kind == "f":
        misread = all(isinstance(label, int) for label in labels)
    else:
        misread = not all(isinstance(label, str | bytes) for label in labels)
    return np.array(list(labels), dtype=object) if misread else array


def _is_no_class(label: object) -> bool:
    if isinstance(label, Real):
        return label != label // 1
    return label is None or isinstance(label, complex)


def _label_hint(array: Array) -> str:
    """A hint for labels that are not 1-D."""
    if array.ndim == 2 and array.shape[1] == 1:
        return " (one column: labels.flatten())"
    if array.ndim != 2 or array.dtype.kind not in "iufb":
        return ""
    if bool(np.isin(array, (0, 1)).all() and (array.sum(axis=1) == 1).all()):
        return " (one-hot? labels.argmax(1) gives the classes)"
    return " (embeddings? they come first, then the labels)"


# Texts as rows of a tensor, so that whatever carries samples carries texts: bytes of UTF-8.


def rows_of_texts(texts: Sequence[str], length: int | None = None) -> Tensor:
    """The UTF-8 bytes of each text as int16 `[B, length]`, padded with zeros.

    `length` is by default that of the longest; what is longer is cut between two characters. Not
    uint8: images have that type, and are scaled where they are read.

    >>> rows_of_texts(["ab", "é"])
    tensor([[ 97,  98],
            [195, 169]], dtype=torch.int16)
    """
    encoded = [text.encode("utf-8", "replace") for text in texts]
    length = length or max([1, *map(len, encoded)])
    whole = [data[:length].decode("utf-8", "ignore").encode() for data in encoded]
    packed = np.array(whole, dtype=f"S{length}").view(np.uint8)
    return torch.from_numpy(packed.reshape(-1, length).astype(np.int16))


def texts_of_rows(rows: Tensor) -> list[str]:
    """The texts of rows that `rows_of_texts` made, of any integer type and on any device.

    >>> texts_of_rows(rows_of_texts(["naïve", "", "a\\nb"]))
    ['naïve', '', 'a\\nb']
    """
    array = rows.detach().cpu().numpy().astype(np.uint8)
    return [row.tobytes().rstrip(b"\0").decode("utf-8", "replace") for row in array]


# Class layout of a labelled batch: which rows share a class, without an N × N mask.


@dataclass(frozen=True)
class ClassLayout:
    """Rows grouped by class, in O(N log N).

    `ids[i]` is the class number of row i; `order` lists the rows class by class (rows ascending
    inside a class); class c is `order[starts[c] : starts[c] + counts[c]]`.

    >>> layout = ClassLayout.of([7, 5, 7, 7], 4)
    >>> layout.ids.tolist(), layout.order.tolist(), layout.counts.tolist()
    ([1, 0, 1, 1], [1, 0, 2, 3], [1, 3])
    """

    ids: Array
    classes: Array
    order: Array
    starts: Array
    counts: Array

    @classmethod
    def of(
        cls, labels: ArrayLike, n: int | None, name: str = "labels", *, min_classes: int = 1
    ) -> ClassLayout:
        """Group `n` rows (any number, if None) by their labels."""
        ids, classes = class_ids(labels, n, name, min_classes=min_classes)
        counts = np.bincount(ids, minlength=len(classes))
        return cls(ids, classes, np.argsort(ids, kind="stable"), counts.cumsum() - counts, counts)

    def members(self, c: int) -> Array:
        """Rows of class c, ascending."""
        return self.order[self.starts[c] : self.starts[c] + self.counts[c]]
