"""A stand-in for an accelerator: tensors whose memory the host may not touch, computed on the host.

Inside `device()` there is a torch device named `standin`. As on a GPU, its tensors do not mix with
tensors in host memory (those without dimensions aside) and have no NumPy view; unlike on a GPU,
everything that would make the host wait for it is counted:

    with device() as waits:
        loss(to_device(x), to_device(labels)).backward()
    assert len(waits) <= 1, waits

torch knows one such device per process, once registered for good; outside `device()` it says that
it is not available, so that other tests of the process do not see it.
"""

import functools
import traceback
from collections import Counter
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

NAME = "standin"

# Operations whose result the host must know before it goes on, or whose size depends on values. A
# decomposition is among them because torch reads whether it succeeded.
_WAITS = {
    "_local_scalar_dense": "item",
    "is_nonzero": "item",
    "equal": "equal",
    "nonzero": "nonzero",
    "nonzero_numpy": "nonzero",
    "masked_select": "mask",
    "unique_dim": "unique",
    "unique_consecutive": "unique",
    "unique_dim_consecutive": "unique",
    "_unique": "unique",
    "_unique2": "unique",
    "bincount": "bincount",
    "histc": "bincount",
    "histogram": "bincount",
    "multinomial": "multinomial",
    "_linalg_check_errors": "decomposition",
    "_linalg_eigh": "decomposition",
    "_linalg_svd": "decomposition",
    "linalg_eig": "decomposition",
    "linalg_lstsq": "decomposition",
}
_PYTHON = torch._C.DispatchKeySet(torch._C.DispatchKey.Python)
# Host tensors mix with the device's as arguments of these.
_COPIES = {"_to_copy", "copy_", "lift_fresh", "lift_fresh_copy"}


class Waits(list):
    """What made the host wait: `(kind, place)` each, the place being the innermost of ours."""

    @property
    def kinds(self):
        """How often each kind occurred."""
        return Counter(kind for kind, _ in self)

    def note(self, kind):
        """Add one of a kind, from where it happens."""
        self.append((kind, _place()))


class DeviceTensor(Tensor):
    """A tensor on the stand-in device; `_memory`, a host tensor, is what it computes with."""

    @staticmethod
    def __new__(cls, memory, requires_grad=False):
        tensor = Tensor._make_wrapper_subclass(
            cls,
            memory.size(),
            strides=memory.stride(),
            storage_offset=memory.storage_offset(),
            dtype=memory.dtype,
            device=torch.device(NAME, 0),
            requires_grad=requires_grad,
        )
        tensor._memory = memory
        return tensor

    def __repr__(self, *, tensor_contents=None):
        return f"{NAME}{tuple(self.shape)}"

    def tolist(self):
        return self.detach().cpu().tolist()

    def __reduce_ex__(self, protocol):  # a file holds the values, and is read on the host
        return self._memory.__reduce_ex__(protocol)

    def __deepcopy__(self, memo):
        copy = self.detach().clone().requires_grad_(self.requires_grad)
        if isinstance(self, torch.nn.Parameter):
            copy = torch.nn.Parameter(copy, self.requires_grad)
        memo[id(self)] = copy
        return copy

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {}, None)


class _Dispatch(TorchDispatchMode):
    """Sees every operation, also those that make a tensor of none; `waits` are counted."""

    def __init__(self, waits):
        super().__init__()
        self.waits = waits

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {}, self.waits)


class _FromNumbers(TorchFunctionMode):
    """Tensors of numbers, which torch makes on the host, and copies past every dispatch."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        asked = kwargs.get("device")
        if func is Tensor.new_tensor:
            like, args = args[0], args[1:]
            asked = like.device if asked is None else asked
            kwargs = {"dtype": like.dtype, **kwargs}
        elif func not in (torch.tensor, torch.as_tensor) or isinstance(args[0], Tensor):
            return func(*args, **kwargs)
        made = torch.tensor(*args, **{**kwargs, "device": "cpu"})
        return made if asked is None else made.to(asked)


def _run(func, args, kwargs, waits):
    name = func._schema.name.removeprefix("aten::")
    flat = tree_flatten((args, kwargs))[0]
    here = any(isinstance(x, DeviceTensor) for x in flat)
    asked = kwargs.get("device")
    made = asked is not None and torch.device(asked).type == NAME
    if not here and not made:
        return func(*args, **kwargs)
    hosted = [x for x in flat if isinstance(x, Tensor) and not isinstance(x, DeviceTensor)]
    if name not in _COPIES and any(x.ndim for x in hosted):
        raise RuntimeError(f"{func}: expected all tensors on one device, {NAME} and cpu found")
    kind = _kind(name, args, kwargs)
    if kind is not None and waits is not None:
        waits.note(kind)
    device = torch.device("cpu") if made or asked is None else torch.device(asked)
    given = {**kwargs, "device": device} if "device" in kwargs else kwargs
    given.pop("pin_memory", None) if made else None
    if name == "_conj":  # a flag of the memory, which the operations on it would not see
        return DeviceTensor(torch.conj_physical(args[0]._memory))
    result = func(*_unwrapped(args), **_unwrapped(given))
    if func._schema.is_mutable:
        return _written(func, args, kwargs, result)
    to_host = name == "_to_copy" and asked is not None and not made
    if to_host or name == "_local_scalar_dense":
        return result
    return tree_map(lambda x: DeviceTensor(x) if isinstance(x, Tensor) else x, result)


def _kind(name, args, kwargs, device=NAME):
    """Of the wait for a device that an operation causes; None where the host goes on."""
    if name in _WAITS:
        return _WAITS[name]
    if name in ("_to_copy", "copy_"):
        # From memory that is not pinned a copy waits for the device too, unless told not to.
        source = args[1] if name == "copy_" else args[0]
        target = args[0].device if name == "copy_" else kwargs.get("device") or source.device
        eager = kwargs.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2])
        ends = source.device.type == device, torch.device(target).type == device
        if ends == (True, False):
            return "to host"
        return "to device" if ends == (False, True) and source.numel() and not eager else None
    if name == "repeat_interleave" and kwargs.get("output_size") is None:
        return "repeat_interleave"
    if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
        masks = [i for i in args[1] if i is not None and i.dtype in (torch.bool, torch.uint8)]
        scalar = len(args) > 2 and args[2].ndim == 0  # then it is a masked fill
        return "mask" if masks and not scalar else None
    return None


def _unwrapped(tree):
    return tree_map(lambda x: x._memory if isinstance(x, DeviceTensor) else x, tree)


def _written(func, args, kwargs, result):
    """The tensors that an operation wrote into, in the order of its results."""
    given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
    written = [
        given[a.name]
        for a in func._schema.arguments
        if a.alias_info is not None and a.alias_info.is_write and given.get(a.name) is not None
    ]
    if not func._schema.returns:
        return None
    plain = [w for w in written if not isinstance(w, list | tuple)]
    if isinstance(result, tuple | list):
        return type(result)(plain) if len(plain) == len(result) else plain
    target = plain[0]
    if isinstance(target, DeviceTensor) and target.shape != target._memory.shape:
        with torch._C._ExcludeDispatchKeyGuard(_PYTHON):  # squeeze_ and the like: its own shape too
            func(*args, **kwargs)
    return target


def _place():
    ours = [f for f in traceback.extract_stack() if "/src/uncollapse/" in f.filename]
    return f"{ours[-1].filename.split('/src/uncollapse/')[1]}:{ours[-1].lineno}" if ours else "?"


_available = False


class _Module:
    """`torch.standin`, as torch asks for it."""

    def is_initialized(self):
        return True

    def is_available(self):
        return _available

    def current_device(self):
        return 0

    def device_count(self):
        return int(_available)

    def _is_in_bad_fork(self):
        return False

    def manual_seed_all(self, seed):
        pass

    def get_amp_supported_dtype(self):
        return [torch.bfloat16, torch.float16]


@functools.cache
def _register():
    registration = pytest.importorskip("torch.utils.backend_registration")
    setup = getattr(registration, "_setup_privateuseone_for_python_backend", None)
    if setup is None:
        pytest.skip("this torch has no device written in Python")

    class Hook(torch._C._acc.PrivateUse1Hooks):
        def is_available(self):
            return _available

        def has_primary_context(self, index):
            return _available

        def is_built(self):
            return True

    setup(rename=NAME, backend_module=_Module(), hook=Hook())


@contextmanager
def device():
    """The stand-in device is there; gives the `Waits` of what runs inside.

    Backward passes run in the calling thread: torch starts its threads for devices at the first
    backward pass of a process, which may have been before the device was there.
    """
    global _available
    _register()
    waits, before = Waits(), _available
    _available = True
    try:
        single = torch.autograd.set_multithreading_enabled(False)
        with single, _FromNumbers(), _Dispatch(waits):
            yield waits
    finally:
        _available = before


class _Counting(TorchDispatchMode):
    """Counts the waits for a device that torch itself knows, and changes nothing."""

    def __init__(self, name):
        super().__init__()
        self.name, self.waits = name, Waits()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.removeprefix("aten::")
        if kind := _kind(name, args, kwargs or {}, self.name):
            self.waits.note(kind)
        return func(*args, **(kwargs or {}))


@contextmanager
def waits_of(name):
    """Gives the `Waits` for a real device, `"cuda"`; for the CPU, as if it were one."""
    counting, listed = _Counting(name), Tensor.tolist

    def tolist(self):  # reads memory of the CPU without an operation
        if self.device.type == name == "cpu":
            counting.waits.note("to host")
        return listed(self)

    with pytest.MonkeyPatch.context() as patch, counting:
        patch.setattr(Tensor, "tolist", tolist)
        yield counting.waits


def to_device(x):
    """A copy of a tensor, or a module moved for good, on the device; not counted as a wait."""
    _register()
    if isinstance(x, torch.nn.Module):
        for module in x.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    moved = DeviceTensor(parameter.detach().clone())
                    module._parameters[name] = torch.nn.Parameter(moved, parameter.requires_grad)
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = DeviceTensor(buffer.detach().clone())
        return x
    return DeviceTensor(x.detach().clone()).requires_grad_(x.requires_grad)


def host(x):
    """The values of a tensor, off the graph, as the host has them; not counted as a wait."""
    return x.detach()._memory if isinstance(x, DeviceTensor) else x.detach()
