"""What the calls of a loop show: embeddings, labels and loss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from uncollapse._base.check import InputError
from uncollapse.losses.columns import join_columns

__all__ = ["Call", "layer_rows", "loss_in", "read_call", "read_labels"]

# What embeddings are called in dictionaries, the surest names first.
_EMBEDDINGS = (
    *("sentence_embedding", "embeddings", "embedding", "features", "feats", "z"),
    *("pooler_output", "image_embeds", "text_embeds", "last_hidden_state"),
)
_LABELS = ("labels", "label", "targets", "target", "y")
_OF_SCORES = (
    *(nn.CrossEntropyLoss, nn.NLLLoss, nn.BCELoss, nn.BCEWithLogitsLoss),
    *(nn.MultiMarginLoss, nn.MultiLabelMarginLoss, nn.MultiLabelSoftMarginLoss),
)
_NAMES = (str, int, np.integer)  # that a list of labels is of
_ADVICE = "embeddings [N, dim] and labels [N]; or name the layer that gives them: layer='...'"


class Call(NamedTuple):
    """Rows of one call of a criterion, their labels, and the tensors they were made of."""

    rows: Tensor
    labels: Any
    sources: list[Tensor]


def read_call(criterion: nn.Module, args: Any, kwargs: Any, output: Any, pairs: int = 0) -> Call:
    """Embeddings and labels in a call of a criterion; `InputError` says what was seen instead.

    Embeddings are float tensors `[N, dim]`, or `[N, views, dim]`: those with a known name, else
    those that get a gradient. Several of one shape are views, or anchors, positives and negatives,
    also if some are detached; what labels are then is not known, except for columns of texts: the
    first two form a class per row, the first of them number `pairs`.

    >>> z = torch.randn(4, 2, requires_grad=True)
    >>> call = read_call(nn.TripletMarginLoss(), (z, 2 * z, 3 * z), {}, z.sum())
    >>> call.rows.shape, call.labels is None
    (torch.Size([12, 2]), True)
    """
    given = (args, kwargs, output if isinstance(output, Mapping) else None)
    # References are compared with, not judged.
    leaves = [(name, x) for name, x in _leaves(given) if not name.startswith("ref")]
    wide = [(name, x) for name, x in leaves if _is_float(x) and x.ndim in (2, 3)]
    named = [name for name in _EMBEDDINGS if any(name == key for key, _ in wide)]
    sources = [x for key, x in wide if key in named[:1]]
    sources = sources or [x for _, x in wide if x.requires_grad] or [x for _, x in wide]
    sources = list({id(x): x for x in sources}.values())  # a model may write into what it is given
    widths = {tuple(x.shape[1:]) for x in sources}
    scores = isinstance(criterion, _OF_SCORES) and "scores of classes, not embeddings: "
    if len(widths) != 1 or scores:
        shown = ", ".join(f"{x.dtype} {list(x.shape)}".removeprefix("torch.") for _, x in wide)
        seen = f"{scores or ''}{shown or 'no float tensors of two dimensions'}"
        raise InputError("criterion", f"a call of {type(criterion).__name__} with {seen}", _ADVICE)
    if named[:1] == ["sentence_embedding"] and len(sources) > 1:
        return Call(*join_columns(*map(Tensor.detach, sources[:2]), first=pairs), sources[:2])
    # Beside another half that is detached, whole numbers may say which pairs belong together.
    halves = sources if named else [x for _, x in wide if x.shape == sources[0].shape]
    alone = len(sources) == len(halves) == 1
    labels: Any = read_labels(args, kwargs, len(sources[0])) if alone else None
    if labels is not None and sources[0].ndim == 3:
        views = sources[0].shape[1]
        labels = labels.repeat(views) if isinstance(labels, Tensor) else np.tile(labels, views)
    return Call(joined(sources), labels, sources)


def joined(parts: list[Tensor]) -> Tensor:
    """The rows of all parts, off the graph; views `[N, views, dim]` one below the other."""
    flat = [x.detach().transpose(0, 1).flatten(0, 1) if x.ndim == 3 else x.detach() for x in parts]
    return flat[0] if len(flat) == 1 else torch.cat(flat)


def read_labels(args: Any, kwargs: Any, n: int) -> Any:
    """The labels in a call: n whole numbers or names; those called labels or targets first."""
    leaves = [(key, x) for key, x in _leaves((args, kwargs)) if _is_labels(x, n)]
    # Other names may be of anything: token ids and offsets are whole numbers too.
    best = [x for key, x in leaves if key in _LABELS] or [x for key, x in leaves if not key]
    return best[0].flatten() if best and isinstance(best[0], Tensor) else (best or [None])[0]


def loss_in(output: Any) -> Tensor | None:
    """The loss in what a criterion returned; the mean of one loss per row; None if there is none.

    >>> loss_in({"loss": torch.tensor(2.0)}), loss_in(torch.eye(3))
    (tensor(2.), None)
    """
    if isinstance(output, Mapping):
        output = output.get("loss")
    elif isinstance(output, tuple | list):
        output = next((x for x in output if _is_float(x) and x.numel() == 1), None)
    if not _is_float(output) or output.ndim > 1:
        return None
    # A copy: the loop may scale its loss in place.
    loss: Tensor = output.detach().mean() if output.ndim else output.detach().clone()
    return loss


def layer_rows(output: Any) -> Tensor:
    """One row per sample of a layer's output: tokens and positions of an image are averaged.

    >>> layer_rows(torch.ones(2, 7, 3)).shape, layer_rows(torch.ones(2, 3, 4, 4)).shape
    (torch.Size([2, 3]), torch.Size([2, 3]))
    """
    leaves = [(name, x) for name, x in _leaves(output) if _is_float(x) and x.ndim >= 2]
    named = [x for wanted in _EMBEDDINGS for name, x in leaves if name == wanted]
    rows: Tensor | None = next(iter([*named, *(x for _, x in leaves)]), None)
    if rows is None:
        raise InputError("layer", f"{type(output).__name__} from it", "a layer that gives [N, dim]")
    if rows.ndim == 2:
        return rows
    return rows.mean(1) if rows.ndim == 3 else rows.flatten(2).mean(2)


def _leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Values in nested dictionaries and lists, with their nearest key; lists of labels are one."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _leaves(value, str(key))
    elif isinstance(tree, list | tuple) and not all(isinstance(x, _NAMES) for x in tree):
        for value in tree:
            yield from _leaves(value, name)
    else:
        yield name, tree


def _is_float(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


def _is_labels(x: Any, n: int) -> bool:
    if isinstance(x, Tensor):
        whole = not x.is_floating_point() and not x.is_complex()
        return whole and tuple(x.shape) in ((n,), (n, 1))
    if isinstance(x, np.ndarray):
        return x.shape == (n,) and x.dtype.kind in "iubUSO"
    return isinstance(x, list | tuple) and len(x) == n
