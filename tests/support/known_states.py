"""States of an embedding whose verdict is known by construction: what `measure` is judged by."""

from dataclasses import dataclass

import torch
from torch import Tensor

from uncollapse.geometry import diameter

__all__ = ["State", "known_states"]

_CLASSES, _EACH = 10, 8


@dataclass(frozen=True)
class State:
    """An embedding and its true verdict; `reference` is a healthy diameter where one is needed.

    `cosine` is False where rows are compared by Euclidean distance alone.
    """

    name: str
    verdict: str
    embeddings: Tensor
    labels: Tensor
    reference: float | None = None
    cosine: bool = True


def known_states(dim, scale=1.0, dtype=torch.float32, seed=0):
    """Eleven states of 80 rows in 10 classes, `scale` in size, stored in `dtype`.

    Each class is a Gaussian of half the standard deviation that the class means have. What cannot
    be decided from one snapshot (shrinking, a point at the origin, diverging) has a reference.

    >>> [state.name for state in known_states(2)][:4]
    ['healthy', 'healthy, far out', 'healthy after training', 'shrinking']
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    labels = torch.arange(_CLASSES).repeat_interleave(_EACH)
    means, inside = normal(_CLASSES, dim)[labels], 0.5 * normal(len(labels), dim)
    healthy = means + inside
    size = diameter(healthy)
    away = normal(dim)
    away *= size / float(away.norm())
    rank = 1 if dim < 16 else 3
    axes = torch.linalg.qr(normal(dim, rank)).Q
    few = (normal(_CLASSES, rank)[labels] + 0.5 * normal(len(labels), rank)) @ axes.T
    some = torch.where((labels < 4)[:, None], 1e-3 * inside, inside)
    across = 1.25 * max(dim - 1, 1)  # variance at right angles to the offset of the cone
    cone = (across / 0.003) ** 0.5  # how far out `healthy` has a mean cosine of about 0.997
    every = [
        ("healthy", "healthy", healthy, False),
        ("healthy, far out", "healthy", healthy + 3 * away, False),
        ("healthy after training", "healthy", 3 * (means + 0.4 * inside), True),
        ("shrinking", "shrinking", 0.1 * healthy, True),
        ("point at the origin", "network-collapse", 1e-4 * healthy, True),
        ("point far out", "network-collapse", 100 * away + 1e-4 * healthy, False),
        ("class collapse", "class-collapse", means + 1e-3 * inside, False),
        ("partial class collapse", "class-collapse", means + some, False),
        ("dimensional collapse", "dimensional-collapse", few + 1e-3 * inside, False),
        ("diverging", "diverging", 1e4 * healthy, True),
        ("cone", "cone", healthy + cone * away / away.norm(), False),
    ]
    for name, verdict, rows, compared in every:
        stored = (rows * scale).to(dtype)
        cosine = name != "healthy, far out"  # in two dimensions three diameters out is a cone
        yield State(name, verdict, stored, labels, size * scale if compared else None, cosine)
