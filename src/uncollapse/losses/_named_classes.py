"""Parameters with a row per class: whose row is which, and how many columns it has."""

from __future__ import annotations

import json

import torch
from torch import Tensor, nn

from uncollapse._base.arrays import ArrayLike, label_array
from uncollapse._base.check import InputError

__all__ = ["NamedClasses", "check_columns"]


class NamedClasses(nn.Module):
    """Numbers names 0 to `size` - 1 as they first come; numbers stay what they are.

    The names of one batch are numbered in their order, so that its rows may come in any. What was
    numbered is part of the state, so that a restored loss finds the same rows again. Processes that
    train together see different batches first: there names are refused.

    >>> classes = NamedClasses(3)
    >>> classes.numbers(["b", "a", "b"]), classes.numbers(["c", "a"]), classes.numbers([7])
    (tensor([1, 0, 1]), tensor([2, 0]), [7])
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.known: dict[str | int, int] = {}

    def numbers(self, labels: ArrayLike | None) -> ArrayLike | None:
        """Labels as the rows of the parameter."""
        if labels is None or isinstance(labels, Tensor):
            return labels
        array = label_array(labels)
        if array.dtype.kind in "iufb":
            return labels
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            given = "names, in one of several processes"
            raise InputError("labels", given, f"whole numbers in 0..{self.size - 1}")
        names = [n if isinstance(n, str | int) else str(n) for n in array.tolist()]
        fresh = sorted(set(names) - set(self.known), key=lambda name: (str(type(name)), name))
        if len(self.known) + len(fresh) > self.size:
            given = f"{len(self.known) + len(fresh)} names so far, {fresh[-1]!r} among them"
            raise InputError("labels", given, f"at most {self.size} classes, as the loss has")
        self.known |= {name: number for number, name in enumerate(fresh, len(self.known))}
        return torch.tensor([self.known[name] for name in names])

    def get_extra_state(self) -> Tensor:
        """The names in their order, as the bytes of JSON: a state of tensors goes everywhere."""
        text = json.dumps(list(self.known)) if self.known else ""
        return torch.tensor(list(text.encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Take over the names of a saved loss."""
        names = json.loads(bytes(state.tolist())) if len(state) else []
        self.known = {name: number for number, name in enumerate(names)}


def check_columns(given: int, dim: int, classes: int, of: str) -> None:
    """Raise unless embeddings have as many columns as the parameter.

    >>> check_columns(10, 4, 10, "the proxies have")
    Traceback (most recent call last):
    uncollapse._base.check.InputError: embeddings: expected 4 as the proxies have (dim), got 10
    columns (logits, one per class? the loss takes what comes before them)
    """
    if given != dim:
        hint = " (logits, one per class? the loss takes what comes before them)" * (
            given == classes
        )
        raise InputError("embeddings", f"{given} columns{hint}", f"{dim} as {of} (dim)")
