"""Embeddings that minimise an expected loss of EPS §4, by multistart descent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from uncollapse._base.check import check_choice, check_int, check_number
from uncollapse.distances import paired_distances
from uncollapse.noise.expected import (
    DIAGONALS,
    contrastive_of_distances,
    easy_margin_of_distances,
    easy_triplet_of_distances,
    margin_of_distances,
    triplet_of_distances,
)
from uncollapse.noise.model import NoiseModel, simplex

__all__ = ["OBJECTIVES", "Minimum", "minimise"]

_PAIRS: dict[str, Callable[[Tensor, Tensor, NoiseModel, float, str], Tensor]] = {
    "contrastive": contrastive_of_distances,
    "triplet": triplet_of_distances,
    "eps-triplet": easy_triplet_of_distances,
}
_WITH_BETA: dict[str, Callable[[Tensor, Tensor, Tensor, NoiseModel, float, str], Tensor]] = {
    "margin": margin_of_distances,
    "eps-margin": easy_margin_of_distances,
}
OBJECTIVES = (*_PAIRS, *_WITH_BETA)


@dataclass(frozen=True)
class Minimum:
    """The best embedding found. It is an upper bound of the minimum, not a certificate.

    `values` are the final values of all starts: `"collapsed"` and `"one point"` first (they keep
    coinciding points together, so they are the best of their kind), then the random ones.
    `beta` is None for losses without boundaries.
    """

    embedding: Tensor
    labels: Tensor
    beta: Tensor | None
    value: float
    values: dict[str, float]
    class_diameters: Tensor
    class_gap: float
    collapsed: bool


def minimise(
    objective: str,
    model: NoiseModel,
    n: int,
    dim: int,
    *,
    margin: float = 1.0,
    diagonal: str = "distinct",
    starts: int = 8,
    steps: int = 1500,
    generator: torch.Generator | None = None,
) -> Minimum:
    """Minimise an expected loss over embeddings of `n` samples in R^dim, and over β if it has any.

    `objective` is one of `contrastive`, `triplet`, `eps-triplet`, `margin`, `eps-margin`. Adam with
    a step that falls to 0, from `starts` random embeddings and two structured ones at once.
    `collapsed` says whether every class has a diameter below 2 % of the margin; `class_gap` is
    the smallest distance between two classes. Without a generator a fixed seed is used.

    >>> best = minimise("triplet", NoiseModel(2, 0.8), 6, 2, starts=2, steps=300)
    >>> best.collapsed, round(best.class_gap, 3)
    (True, 1.0)
    """
    check_choice("objective", objective, OBJECTIVES)
    check_choice("diagonal", diagonal, DIAGONALS)
    check_number("margin", margin, low=0.0)
    for name, value in (("dim", dim), ("starts", starts), ("steps", steps)):
        check_int(name, value)
    labels = model.labels(n)
    generator = generator or torch.Generator().manual_seed(0)
    z, beta = _starts(labels, model, dim, margin, starts, generator)
    row, column = torch.triu_indices(n, n, 1)

    def loss() -> tuple[Tensor, Tensor]:
        distances = _distances(z, row, column)
        if objective in _PAIRS:
            return _PAIRS[objective](distances, labels, model, margin, diagonal), distances
        value = _WITH_BETA[objective](distances, beta, labels, model, margin, diagonal)
        return value, distances

    optimiser = torch.optim.Adam([z, beta], lr=0.05 * (margin or 1.0))
    falling = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda k: (1 - k / steps) ** 2)
    for _ in range(steps):
        optimiser.zero_grad()
        loss()[0].sum().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        falling.step()
    with torch.no_grad():
        values, distances = loss()

    best = int(values.argmin())
    apart = labels[:, None] != labels
    d = distances[best]
    diameters = torch.stack([d[labels == c][:, labels == c].max() for c in range(model.classes)])
    names = ["collapsed", "one point", *(f"random {k}" for k in range(starts))]
    return Minimum(
        embedding=z[best].detach().clone(),
        labels=labels,
        beta=beta[best].detach().clone() if objective in _WITH_BETA else None,
        value=float(values[best]),
        values=dict(zip(names, values.tolist(), strict=True)),
        class_diameters=diameters,
        class_gap=float(d[apart].min()),
        collapsed=bool(diameters.max() <= 0.02 * margin),
    )


def _starts(
    labels: Tensor, model: NoiseModel, dim: int, margin: float, count: int, g: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Embeddings `[count + 2, n, dim]` and boundaries `[count + 2, n]` to start from."""
    z = torch.randn(count + 2, len(labels), dim, generator=g, dtype=torch.float64) * margin
    if dim >= model.classes - 1:
        corners = torch.zeros(model.classes, dim, dtype=torch.float64)
        corners[:, : model.classes - 1] = simplex(model.classes, margin)
    else:  # no room for equidistant classes: random places
        corners = z[0, : model.classes].clone()
    z[0], z[1] = corners[labels], 0.0
    beta = torch.full((count + 2, len(labels)), float(margin), dtype=torch.float64)
    beta[1] = -margin
    return z.requires_grad_(), beta.requires_grad_()


def _distances(z: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """`[starts, n, n]` by direct differences, exact however far an embedding has collapsed."""
    count, n, dim = z.shape
    d = paired_distances(z[:, row].reshape(-1, dim), z[:, column].reshape(-1, dim))
    full = z.new_zeros(count, n, n)
    full[:, row, column] = d.view(count, -1)
    return full + full.transpose(-1, -2)
