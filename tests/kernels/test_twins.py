"""Each compiled kernel beside its torch twin, on the same inputs: values and gradients.

`TWINS` names for each kernel a call that reaches it, of 128 rows and more, and gives back tensors.
"""

from collections.abc import Callable

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from uncollapse._base.extras import compiled, without_kernels
from uncollapse.distances.frame import Frame
from uncollapse.losses import MultiSimilarityLoss, TripletLoss
from uncollapse.metrics import retrieval
from uncollapse.mining import Miner

pytestmark = [
    pytest.mark.skipif(compiled.kernels is None, reason="needs numba"),
    pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning"),
]
Call = Callable[[Tensor, Tensor], list[Tensor]]


def loss(make, **settings):
    def call(x, labels):
        leaf = x.clone().requires_grad_()
        value = make(**settings)(leaf, labels)
        value.backward()
        return [value.detach(), leaf.grad]

    return call


def frame(normalize):
    def call(x, labels):
        made = Frame.of(x, normalize=normalize)
        return [made.wide, made.norms, made.centre, torch.tensor(made.zoom)]

    return call


def triplets(*strategies):
    return lambda x, labels: [*Miner(*strategies)(x, labels)]


def ranking(x, labels):
    # Six copies, each farther out: more rows than a tile has, so that tiles are scanned both ways.
    many = torch.cat([x + 3 * k for k in range(6)])
    return figures(retrieval(many, labels.repeat(6), full_map=True))


def figures(ranked):
    return [torch.from_numpy(values) for _, values in sorted(ranked.per_query.items())]


def guessed(x, labels):
    # Enough rows for a guess at the limit from a sample; few positives of many are near.
    many = torch.cat([x + 0.01 * k for k in range(-(-1100 // len(x)))])
    return figures(retrieval(many, torch.arange(len(many)) % 40, ks=(1,)))


EASY = Miner("easy", "hard")
WINDOW = loss(TripletLoss, miner=Miner("all", "all", keep="semihard"))
TWINS: list[tuple[str, Call]] = [
    ("frame_rows", frame(False)),
    ("frame_rows", frame(True)),
    ("choose", triplets("easy", "hard")),
    ("choose", triplets("hard", "hard")),
    ("choose", triplets("easy", "semihard")),
    ("choose", triplets("hard", "semihard")),
    ("tangent", loss(TripletLoss, normalize=True, miner=EASY)),
    ("hinge_rows", loss(TripletLoss, margin=0.5)),
    ("hinge_rows", loss(TripletLoss, margin=0.5, normalize=True, reduction="nonzero")),
    ("hinge_rows", WINDOW),
    ("class_distances", loss(TripletLoss, soft=True)),
    ("class_gradient", loss(TripletLoss, scale_free=True)),
    ("triplet_charge", loss(TripletLoss, miner=EASY)),
    ("triplet_charge", loss(TripletLoss, soft=True, miner=EASY)),
    ("triplet_charge", loss(TripletLoss, reduction="nonzero", miner=EASY)),
    ("triplet_charge", loss(TripletLoss, reduction="max", miner=EASY)),
    ("similarity_before", loss(MultiSimilarityLoss)),
    ("similarity_after", loss(MultiSimilarityLoss, miner=Miner("easy", "multi_similarity"))),
    ("similarity_after", loss(MultiSimilarityLoss, miner=Miner(*["multi_similarity"] * 2))),
    ("own_squares", ranking),
    ("count_tile", ranking),
    ("count_tile", guessed),
]
TYPES = {"RankedPoints", "CountArrays", "SORTED_BELOW"}  # what kernels are handed, not kernels


@st.composite
def batches(draw):
    """128 to 300 rows: plain, near collapse, tight classes, one large class, duplicates."""
    g = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    n, dim = draw(st.integers(128, 200)), draw(st.sampled_from([2, 16]))
    classes = draw(st.sampled_from([2, 5, 40]))
    labels = torch.randint(0, classes, (n,), generator=g)
    x = torch.randn(n, dim, generator=g, dtype=torch.float64)
    kind = draw(st.sampled_from(["plain", "collapse", "tight", "uneven", "duplicates", "equal"]))
    if kind == "collapse":
        x = 1 + 1e-4 * x
    elif kind == "tight":
        x = 1e-4 * x + torch.randn(classes, dim, generator=g, dtype=torch.float64)[labels]
    elif kind == "uneven":
        labels[: n // 2] = 0
    elif kind == "duplicates":
        x = x[torch.randint(0, n // 2, (n,), generator=g)]
    elif kind == "equal":
        x = x[:1].repeat(n, 1)
    return x.to(draw(st.sampled_from([torch.float32, torch.float64]))), labels


@pytest.mark.parametrize(
    ("kernel", "call"), TWINS, ids=[f"{k}-{i}" for i, (k, _) in enumerate(TWINS)]
)
@settings(max_examples=3, deadline=None)
@example(batch=(torch.randn(190, 8, generator=torch.manual_seed(0)), torch.arange(190) % 4 // 3))
@given(batch=batches())
def test_a_kernel_gives_what_its_twin_gives(kernel, call, batch):
    fast = call(*batch)
    with without_kernels():
        plain = call(*batch)
    for a, b in zip(fast, plain, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        a, b = a.nan_to_num(), b.nan_to_num()  # a query without a positive has no rank
        if not a.is_floating_point():
            assert torch.equal(a, b)
            continue
        # The batch decides what is small: rows of equal points have a gradient of rounding alone.
        scale = max(float(b.norm()), 1e-3)
        # A triplet at the edge of the semi-hard window is in or out by rounding: one of thousands.
        assert float((a - b).norm()) <= (2e-4 if call is WINDOW else 2e-5) * scale


def test_each_call_reaches_its_kernel(monkeypatch):
    """And every kernel has a call: one that is added without a twin fails here."""
    room = compiled.kernels
    assert {name for name, _ in TWINS} | TYPES == set(room.__all__)
    x = torch.randn(150, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(150) % 10
    for name, call in TWINS:
        reached = []
        with monkeypatch.context() as patch:
            patch.setattr(room, name, _watched(getattr(room, name), reached))
            call(x, labels)
        assert reached, name


def _watched(kernel, reached):
    def call(*args):
        reached.append(kernel)
        return kernel(*args)

    return call
