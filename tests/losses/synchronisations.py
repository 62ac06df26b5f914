"""What makes the host wait for a device: reads of values, and shapes that depend on them."""

import traceback
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from uncollapse.distances.frame import device_path

_READS = ("aten._local_scalar_dense", "aten.item", "aten.equal", "aten.is_nonzero")
_SHAPES = (
    "aten.nonzero",
    "aten.unique",
    "aten._unique",
    "aten.masked_select",
    "aten.repeat_interleave",
    "aten.bincount",
)


class Synchronisations(TorchDispatchMode):
    """Counts `reads` of values by the host, and `shapes` that it must wait to know."""

    def __init__(self):
        super().__init__()
        self.reads = []
        self.shapes = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = str(func).removesuffix(".default")
        if name.startswith(_READS):
            self.reads.append(_place())
        elif name.startswith(_SHAPES) or _indexes_by_mask(name, args):
            self.shapes.append(f"{name} {_place()}")
        return func(*args, **(kwargs or {}))


@contextmanager
def device_step():
    """Everything inside takes the path of a device, may not ask for NumPy, and is counted.

    `tolist` reads as many numbers as it gives and waits once: it counts as one.
    """
    seen = Synchronisations()
    listed = Tensor.tolist

    def refuse(self, *args, **kwargs):
        raise AssertionError(f"a device's tensor has no NumPy view: {_place()}")

    def tolist(self):
        before = len(seen.reads)
        result = listed(self)
        seen.reads[before:] = [_place()]
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "numpy", refuse)
        patch.setattr(Tensor, "__array__", refuse)
        patch.setattr(Tensor, "tolist", tolist)
        with device_path(), seen:
            yield seen


def _indexes_by_mask(name, args):
    if not name.startswith(("aten.index", "aten._index_put_impl")) or len(args) < 2:
        return False
    given = args[1] if isinstance(args[1], list | tuple) else []
    return any(isinstance(i, Tensor) and i.dtype == torch.bool for i in given)


def _place():
    ours = [f for f in traceback.extract_stack() if "/src/uncollapse/" in f.filename]
    return f"{ours[-1].filename.split('/src/uncollapse/')[1]}:{ours[-1].lineno}" if ours else "?"
