"""What tests of losses share: float64 arithmetic, batches that are hard on distances, and the
`Definition` that the test file of each registered loss gives of it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from uncollapse.losses import IdentityLoss, TrimmedLoss
from uncollapse.losses.registry import LOSSES, make_loss
from uncollapse.mining import Miner

Batch = tuple[Tensor, Tensor]


def distances(y):
    """All distances by direct differences, with subgradient 0 at 0."""
    square = (y[:, None] - y[None]).square().sum(-1)
    return torch.where(square > 0, square, torch.ones_like(square)).sqrt() * (square > 0)


def unit(x):
    norm = x.square().sum(-1, keepdim=True)
    return x / torch.where(norm > 0, norm, torch.ones_like(norm)).sqrt()


def mean(values, like):
    return torch.stack(list(values)).mean() if values else like.sum() * 0


@dataclass
class Given:
    """What a loss is given, for a formula that loops over it: float64 rows on the graph.

    Rows are normalised already where the loss does so; `tuples` are those of a miner, None: all.
    `parameter` is what the loss learns: proxies, or β.
    """

    rows: Tensor
    labels: list[int]
    tuples: Any = None
    ids: list[int] | None = None
    parameter: Tensor | None = None

    @cached_property
    def distance(self):
        return distances(self.rows)

    @cached_property
    def cosine(self):
        return 1 - self.distance.square() / 2

    @cached_property
    def triplets(self):
        if self.tuples is not None:
            return list(zip(*(index.tolist() for index in self.tuples), strict=True))
        return [(a, p, n) for a, (own, other) in enumerate(self.sets) for p in own for n in other]

    @property
    def pairs(self):
        """Positive and negative pairs: each once, or once for each triplet that was named."""
        if self.tuples is not None:
            return [(a, p) for a, p, _ in self.triplets], [(a, n) for a, _, n in self.triplets]
        sets = list(enumerate(self.sets))
        return [(a, p) for a, (own, _) in sets for p in own], [
            (a, n) for a, (_, other) in sets for n in other
        ]

    @cached_property
    def sets(self):
        """Positives and negatives of each anchor."""
        rows, y = range(len(self.labels)), self.labels
        if self.tuples is not None:
            named = self.triplets
            positives = [sorted({p for a, p, _ in named if a == i}) for i in rows]
            negatives = [sorted({n for a, _, n in named if a == i}) for i in rows]
            return list(zip(positives, negatives, strict=True))
        return [
            ([j for j in rows if j != i and y[j] == y[i]], [j for j in rows if y[j] != y[i]])
            for i in rows
        ]


@dataclass(frozen=True)
class Definition:
    """What the test file of a loss declares for the tests of every loss.

    `formula` is the paper's, by loops: `formula(given, **settings)`. `drawn` has the values of each
    setting it is asked about, `forms` settings that each get a test of their own. `refused` has for
    each number among the settings one that is refused. `collapsed` are settings and what the loss
    costs with them, when 4 classes of 3 coincide.
    """

    formula: Callable[..., Tensor]
    drawn: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    forms: Sequence[Mapping[str, Any]] = ({},)
    refused: Mapping[str, Any] = field(default_factory=dict)
    collapsed: Sequence[tuple[Mapping[str, Any], float]] = ()


def definition(kind):
    """That of a registered loss: in `DEFINITIONS` of the test file named after its module."""
    name = f"losses.test_{kind.__module__.rpartition('.')[2]}"
    return import_module(name).DEFINITIONS.get(kind) if find_spec(name) else None


def oracle(loss, x):
    """Value and gradient in float64."""
    wide = x.detach().double().requires_grad_()
    value = loss(wide)
    gradient = torch.zeros_like(wide)
    if value.requires_grad:
        (gradient,) = torch.autograd.grad(value, wide, allow_unused=True)
    return value.item(), torch.zeros_like(wide) if gradient is None else gradient


def measured(loss, x):
    """Value and gradient of the product's loss; its gradient has the input's dtype."""
    leaf = x.detach().clone().requires_grad_()
    value = loss(leaf)
    value.backward()
    assert leaf.grad is not None
    assert leaf.grad.dtype == x.dtype
    return value.item(), leaf.grad.double()


def assert_same(ours, theirs, x, tolerance=1e-5):
    value, gradient = measured(ours, x)
    true_value, true_gradient = oracle(theirs, x)
    scale = max(float(true_gradient.norm()), 1e-3)
    np.testing.assert_allclose(value, true_value, rtol=tolerance, atol=tolerance)
    assert float((gradient - true_gradient).norm()) <= tolerance * scale


def assert_right_in_float32(loss, x, labels):
    """The gradient by float32 rows is that by the same rows in float64."""
    gradient = measured(lambda z: loss(z, labels), x)[1]
    truth = measured(lambda z: loss(z, labels), x.double())[1]
    assert float((gradient - truth).norm()) <= 1e-5 * float(truth.norm())


@st.composite
def batches(draw, grid=False):
    """Float64 rows with labels: duplicates, singletons, one class, tight, far from the origin.

    `grid` puts them on whole numbers, so that distances tie exactly.
    """
    n, dim = draw(st.integers(1, 10)), draw(st.integers(1, 4))
    seed = draw(st.integers(0, 2**31))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, draw(st.integers(1, 4)), (n,), generator=generator)
    if grid:
        x = torch.randint(-2, 3, (n, dim), generator=generator).double()
    else:
        x = torch.randn(n, dim, generator=generator, dtype=torch.float64)
        kind = draw(st.sampled_from(["plain", "duplicates", "tight classes", "offset", "equal"]))
        if kind == "duplicates":
            x = x[torch.randint(0, max(n // 2, 1), (n,), generator=generator)]
        elif kind == "tight classes":
            x = 1e-4 * x + torch.randn(4, dim, generator=generator, dtype=torch.float64)[labels]
        elif kind == "offset":
            x = 1e-3 * x + 5.0
        elif kind == "equal":
            x = x[:1].expand(n, dim).clone()
    return x, labels


MINERS = st.sampled_from(
    [
        None,
        *(Miner(*words) for words in (("easy", "hard"), ("easy", "all"), ("all", "all"))),
        Miner("hard", "hard"),
        *(Miner(word, "multi_similarity") for word in ("multi_similarity", "easy", "all")),
    ]
)


def clouds(n=200, k=4, dim=16, seed=0, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    labels = (torch.arange(n) // k)[torch.randperm(n, generator=g)]
    x = torch.randn(n, dim, generator=g, dtype=torch.float64)
    return (x + torch.randn(n, dim, generator=g, dtype=torch.float64)[labels]).to(dtype), labels


def makers(num_classes=4, dim=6, *, gentle=False):
    """What makes each loss of the registry, from settings, by its name in a config.

    With `gentle`, at settings where differences tell its derivatives.
    """

    def maker(kind):
        def make(miner=None, **settings):
            own = {**(kind.info.gentle if gentle else {}), **settings}
            sizes = {"num_classes": num_classes, "dim": dim}
            seeded = torch.Generator().manual_seed(0)
            return make_loss(kind, own, miner=miner, generator=seeded, **sizes)

        return make

    return {name: maker(kind) for name, kind in LOSSES.items()}


FORMS: dict[str, list[dict[str, Any]]] = {  # of the registered losses, beside their defaults
    "triplet": [
        {"reduction": "nonzero", "soft": True},
        {"reduction": "max"},
        {"scale_free": True, "normalize": True, "reduction": "nonzero"},
        {"scale_free": "hardest-negative"},
        {"distance": "squared", "swap": True},
        {"distance": "cosine"},
    ],
    "contrastive": [
        {"reduction": "pairs", "distance": "squared"},
        {"reduction": "nonzero", "normalize": True},
    ],
    "margin": [
        {"reduction": "mean", "normalize": True},
        {"beta_per": "class", "normalize": True, "nu": 0.1},
    ],
    "n-pair": [{"l2": 0.1}, {"normalize": True}],
    "spread": [{"stand_in": "self"}],
    "arcface": [{"sub_centers": 2}],
    "cosface": [{"sub_centers": 2}],
    "soft-triple": [{"tau": 0.1}],
}


def every_loss(num_classes=4, dim=6, *, gentle=False):
    """What makes each registered loss, their further forms, and wrappers: from a miner or None."""
    make = makers(num_classes, dim, gentle=gentle)
    triplet, contrastive = make["triplet"], make["contrastive"]

    def classified(miner=None, **settings):
        seeded = torch.Generator().manual_seed(0)
        sizes = {"num_classes": num_classes, "dim": dim, "generator": seeded}
        return IdentityLoss(triplet(miner), **sizes, **settings)

    return {
        **make,
        **{f"{k} {form}": partial(make[k], **form) for k, forms in FORMS.items() for form in forms},
        "trimmed triplet": lambda miner=None: TrimmedLoss(triplet(miner), fraction=0.6),
        "trimmed contrastive": lambda miner=None: TrimmedLoss(
            contrastive(miner), fraction=0.6, on="positives"
        ),
        "identity": classified,
        "identity, neck": partial(classified, neck="batch-norm", label_smoothing=0.1),
    }
