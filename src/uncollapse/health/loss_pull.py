"""What a loss does to the rows of one batch: the gradient that every drift is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike, class_ids, label_array, points
from uncollapse._base.check import InputError
from uncollapse.distances import centre, pairwise_distances
from uncollapse.losses.memory import reading

__all__ = ["LEFT_OUT", "Batch", "LossFn", "Pull", "check_loss_fn", "leave_out", "pull", "several"]

LossFn = Callable[[Tensor, ArrayLike], Tensor]
Batch = tuple[ArrayLike, ArrayLike]

LEFT_OUT = 0.25  # share of the rows that each resample leaves out


class Pull(NamedTuple):
    """Rows about their centre, ∇L at them, their distances and the mean of these, and the loss."""

    rows: Tensor
    slope: Tensor
    distances: Tensor
    mean: float
    loss: float


def pull(loss_fn: LossFn, z: ArrayLike, labels: ArrayLike, normalized: bool = False) -> Pull:
    """One backward pass, to the embeddings alone; on the sphere if `normalized`.

    Rows are then normalised first, and ∇L is projected onto the sphere's tangents. A memory in the
    loss is compared with, and enqueues nothing.

    >>> found = pull(lambda x, y: x.square().sum(), torch.tensor([[1.0], [3.0]]), [0, 0])
    >>> found.rows.flatten().tolist(), found.slope.flatten().tolist(), found.mean, found.loss
    ([-1.0, 1.0], [2.0, 6.0], 2.0, 10.0)
    """
    leaf = points(z, "embeddings", min_rows=2).detach()
    if normalized:
        leaf = torch.nn.functional.normalize(leaf, dim=1)
    leaf = leaf.clone().requires_grad_(True)
    with torch.enable_grad(), reading(loss_fn):
        loss = loss_fn(leaf, labels)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        shape = f" of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else ""
        raise InputError("loss_fn", f"a {type(loss).__name__}{shape} from it", "one number: a mean")
    gradient = torch.zeros_like(leaf)
    if loss.requires_grad:
        found = torch.autograd.grad(loss, leaf, torch.ones_like(loss), allow_unused=True)[0]
        gradient = gradient if found is None else found
    rows = centre(leaf)
    slope = gradient.to(rows.dtype)
    if normalized:
        unit = leaf.detach().to(slope.dtype)
        slope = slope - (slope * unit).sum(1, keepdim=True) * unit
    distances = pairwise_distances(rows)
    mean = float(distances.sum()) / (len(rows) * (len(rows) - 1))
    return Pull(rows, slope, distances, mean, float(loss.detach()))


def check_loss_fn(loss_fn: object) -> None:
    """Raise if it is not a loss but, most likely, the embeddings."""
    if not callable(loss_fn) or isinstance(loss_fn, type):
        allowed = "a loss, before embeddings and labels"
        raise InputError("loss_fn", f"{type(loss_fn).__name__} (swapped?)", allowed)


def several(given: object) -> Sequence[Batch]:
    """Several (embeddings, labels), or an error that says what is missing."""
    pairs = given if isinstance(given, list | tuple) else []
    if not pairs or not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        raise InputError("labels", None, "one label per row, or several (embeddings, labels)")
    return pairs


def leave_out(z: Tensor, labels: ArrayLike, rng: np.random.Generator) -> Batch:
    """The batch without a quarter of each class, as nearly as its size allows."""
    ids, _ = class_ids(labels, len(z))
    order = rng.permutation(len(z))
    order = order[np.argsort(ids[order], kind="stable")]
    # A random phase, so that classes of two or three lose a member a quarter of the time each.
    kept = np.floor((np.arange(len(z)) + rng.random()) * (1 - LEFT_OUT))
    keep = np.sort(order[np.diff(kept, prepend=-1) > 0])
    chosen = torch.from_numpy(keep)
    if isinstance(labels, Tensor):
        return z[chosen.to(z.device)], labels[chosen.to(labels.device)]
    return z[chosen.to(z.device)], label_array(labels, len(z))[keep]
