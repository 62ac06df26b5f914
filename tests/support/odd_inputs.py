"""The same numbers and labels in every form a user may have them in, and what nobody can use."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

# Small whole numbers: exact in every dtype below, so every form must give the same result.
ROWS = np.array(
    [
        [0, 1, 2], [1, 1, 0], [2, 0, 1], [0, 3, 1], [5, 6, 7], [6, 5, 7],
        [7, 7, 5], [5, 7, 6], [0, 7, 3], [1, 6, 2], [2, 7, 4], [0, 5, 3],
    ],
    np.float64,
)  # fmt: skip
CLASSES = np.array([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2])
FINE = np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5])
Form = Callable[[np.ndarray[Any, Any]], Any]


def _frozen(x):
    kept = x.copy()
    kept.flags.writeable = False
    return kept


def _negated(x):
    """A tensor whose sign is flipped on paper only: `.numpy()` refuses it."""
    made = torch.complex(torch.zeros(x.shape), -torch.tensor(x, dtype=torch.float32)).conj().imag
    assert made.is_neg()
    return made


def _inference(x):
    with torch.inference_mode():
        return torch.tensor(x)


def _unaligned(x):
    raw = np.zeros(x.nbytes + 1, np.uint8)
    view = raw[1:].view(np.float64).reshape(x.shape)
    view[...] = x
    return view


class Arraylike:
    """An object that only knows how to become an array, as a data frame does."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return self.values.astype(dtype or self.values.dtype)

    def __len__(self):
        return len(self.values)


EMBEDDINGS: Mapping[str, Form] = {
    "tensor float64": lambda x: torch.tensor(x),
    "tensor float32": lambda x: torch.tensor(x, dtype=torch.float32),
    "tensor float16": lambda x: torch.tensor(x, dtype=torch.float16),
    "tensor bfloat16": lambda x: torch.tensor(x, dtype=torch.bfloat16),
    "tensor uint8": lambda x: torch.tensor(x, dtype=torch.uint8),
    "tensor on the graph": lambda x: torch.tensor(x, requires_grad=True) * 1.0,
    "parameter": lambda x: torch.nn.Parameter(torch.tensor(x)),
    "tensor transposed": lambda x: torch.tensor(x.T.copy()).T,
    "tensor strided": lambda x: torch.tensor(np.repeat(x, 2, axis=1))[:, ::2],
    "tensor negated": _negated,
    "tensor of inference mode": _inference,
    "array float64": lambda x: x.copy(),
    "array float16": lambda x: x.astype(np.float16),
    "array longdouble": lambda x: x.astype(np.longdouble),
    "array int8": lambda x: x.astype(np.int8),
    "array uint64": lambda x: x.astype(np.uint64),
    "array of negative strides": lambda x: x[::-1].copy()[::-1],
    "array big-endian float64": lambda x: x.astype(">f8"),
    "array big-endian float16": lambda x: x.astype(">f2"),
    "array read-only": _frozen,
    "array Fortran": np.asfortranarray,
    "array unaligned": _unaligned,
    "array of objects": lambda x: x.astype(object),
    "array masked nowhere": lambda x: np.ma.MaskedArray(x),
    "lists": lambda x: x.tolist(),
    "tuples": lambda x: tuple(map(tuple, x.tolist())),
    "list of arrays": list,
    "list of tensors": lambda x: list(torch.tensor(x)),
    "data frame": Arraylike,
}

LABELS: Mapping[str, Form] = {
    "list": lambda y: y.tolist(),
    "list of NumPy numbers": list,
    "list of tensors": lambda y: list(torch.tensor(y)),
    "list of names": lambda y: [f"c{i}" for i in y],
    "array of names": lambda y: np.array([f"c{i}" for i in y]),
    "array of bytes": lambda y: np.array([f"c{i}" for i in y], dtype="S"),
    "array of name objects": lambda y: np.array([f"c{i}" for i in y], dtype=object),
    "data frame column": lambda y: Arraylike(y),
    "names of scripts": lambda y: [["Åäö", "\u202eabc", "日本"][i % 3] + str(i) for i in y],
    "array uint64": lambda y: y.astype(np.uint64),
    "array big-endian": lambda y: y.astype(">i8"),
    "array of negative strides": lambda y: y[::-1].copy()[::-1],
    "array read-only": _frozen,
    "array float64": lambda y: y.astype(np.float64),
    "array float16": lambda y: y.astype(np.float16),
    "tensor int32": lambda y: torch.tensor(y, dtype=torch.int32),
    "tensor float32": lambda y: torch.tensor(y, dtype=torch.float32),
    "tensor bfloat16": lambda y: torch.tensor(y, dtype=torch.bfloat16),
    "tensor strided": lambda y: torch.tensor(np.repeat(y, 2))[::2],
}

_Z, _N = torch.tensor(ROWS), len(ROWS)


def _holed(value):
    z = _Z.clone()
    z[3, 1] = value
    return z


BAD_EMBEDDINGS: Mapping[str, Any] = {
    "one dimension": _Z[:, 0],
    "three dimensions": _Z[:, None].expand(-1, 2, -1),
    "a number": 3.0,
    "None": None,
    "no rows": _Z[:0],
    "no columns": _Z[:, :0],
    "complex": _Z.to(torch.complex64),
    "complex array": ROWS.astype(np.complex128),
    "text": [["a", "b", "c"]] * _N,
    "one text": "embeddings.npy",
    "numbers as text": ROWS.astype(str),
    "ragged": [[1.0, 2.0], [3.0]] * (_N // 2),
    "dictionary": {"embeddings": ROWS},
    "dates": ROWS.astype("datetime64[s]"),
    "sparse": _Z.to_sparse(),
    "meta": _Z.to("meta"),
    "labels": CLASSES,
    "a model": torch.nn.Linear(3, 3),
    "missing entries": [[1.0, None, 2.0]] * _N,
}
NOT_FINITE: Mapping[str, Any] = {"NaN": _holed(math.nan), "infinite": _holed(math.inf)}

BAD_LABELS: Mapping[str, Any] = {
    "complex": CLASSES.astype(np.complex64),
    "complex tensor": torch.tensor(CLASSES).to(torch.complex64),
    "infinite": np.where(CLASSES == 1, np.inf, CLASSES),
    "infinite tensor": torch.tensor(np.where(CLASSES == 1, np.inf, CLASSES)),
    "NaN": [0.0, math.nan] * (_N // 2),
    "fractions": CLASSES + 0.5,
    "one-hot": np.eye(3, dtype=int)[CLASSES],
    "one-hot tensor": torch.eye(3)[torch.tensor(CLASSES)],
    "a column": CLASSES[:, None],
    "too few": CLASSES[:-1].tolist(),
    "too many": np.append(CLASSES, 0),
    "too few, tensor": torch.tensor(CLASSES[:-1]),
    "a number": 1,
    "a number, tensor": torch.tensor(1),
    "ragged": [[0, 1], [2]] * (_N // 2),
    "names and numbers": ["a", 0, 1] * (_N // 3),
    "None inside": [None, 0, 1] * (_N // 3),
    "embeddings": ROWS + 0.25,
    "dictionary": {"labels": CLASSES},
    "dates missing": np.array(["NaT"] * _N, "datetime64[s]"),
    "a function": len,
}
