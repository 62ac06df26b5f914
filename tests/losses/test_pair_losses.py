import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import distances as pml_distances
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning import miners as pml_miners
from pytorch_metric_learning import reducers as pml_reducers
from torch import nn

from losses.loss_oracles import assert_same, batches, distances, measured, unit
from uncollapse._base.check import InputError
from uncollapse.losses import (
    ContrastiveLoss,
    MarginLoss,
    MultiSimilarityLoss,
    NPairLoss,
    ProxyNCALoss,
    SupConLoss,
    TripletLoss,
    TupleLoss,
    _engine,
    margin_loss,
    multi_similarity_loss,
    proxy_nca_loss,
)
from uncollapse.mining import Miner

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")


def sets(labels, n, tuples=None):
    """Positives and negatives of each anchor, from all pairs or from named triplets."""
    rows = range(n)
    if tuples is None:
        return [
            (
                [j for j in rows if j != i and labels[j] == labels[i]],
                [j for j in rows if labels[j] != labels[i]],
            )
            for i in rows
        ]
    named = list(zip(*(t.tolist() for t in tuples), strict=True))
    return [
        (sorted({p for a, p, _ in named if a == i}), sorted({k for a, _, k in named if a == i}))
        for i in rows
    ]


def mean(values, like):
    return torch.stack(values).mean() if values else like.sum() * 0


MINERS = st.sampled_from(
    [
        None,
        Miner("easy", "hard"),
        Miner("easy", "all"),
        Miner("all", "all"),
        Miner("multi_similarity", "multi_similarity"),
        Miner("easy", "multi_similarity"),
        Miner("all", "multi_similarity"),
    ]
)


@given(batches(), MINERS, st.booleans())
@settings(max_examples=50, deadline=None)
def test_contrastive_equals_the_definition(batch, miner, normalize):
    x, labels = batch

    def truth(wide):
        y = unit(wide) if normalize else wide
        d = distances(y)
        if miner is None:
            pairs = sets(labels, len(x))
            positive = [d[i, j] for i, (own, _) in enumerate(pairs) for j in own]
            negative = [(1.3 - d[i, j]).clamp(min=0) for i, (_, o) in enumerate(pairs) for j in o]
        else:
            t = list(zip(*miner(y, labels), strict=True))
            positive = [d[a, p] for a, p, _ in t]
            negative = [(1.3 - d[a, n]).clamp(min=0) for a, _, n in t]
        return mean(positive, wide) + mean(negative, wide)

    loss = ContrastiveLoss(1.3, miner, normalize)
    assert_same(lambda z: loss(z, labels), truth, x, 1e-7)


@given(batches(), MINERS, st.booleans())
@settings(max_examples=50, deadline=None)
def test_margin_equals_the_definition(batch, miner, normalize):
    x, labels = batch
    beta = torch.linspace(0.7, 1.9, len(x), dtype=torch.float64)

    def truth(wide):
        y = unit(wide) if normalize else wide
        d = distances(y)
        if miner is None:
            pairs = sets(labels, len(x))
            ap = [(i, j) for i, (own, _) in enumerate(pairs) for j in own]
            an = [(i, j) for i, (_, other) in enumerate(pairs) for j in other]
        else:
            t = list(zip(*miner(y, labels), strict=True))
            ap, an = [(a, p) for a, p, _ in t], [(a, n) for a, _, n in t]
        each = [(d[i, j] - beta[i] + 0.2).clamp(min=0) for i, j in ap]
        each += [(beta[i] - d[i, j] + 0.2).clamp(min=0) for i, j in an]
        if not each:
            return wide.sum() * 0
        count = sum(float(e.detach()) > 0 for e in each)
        return torch.stack(each).sum() / max(count, 1)

    assert_same(
        lambda z: margin_loss(z, labels, beta=beta, miner=miner, normalize=normalize),
        truth,
        x,
        1e-7,
    )


def test_margin_learns_a_boundary_for_all_for_each_class_and_for_each_sample():
    x, labels = torch.tensor([[0.0], [1.5], [2.0], [2.2]]), torch.tensor([0, 0, 1, 1])
    one, by_class = MarginLoss(nu=0.1), MarginLoss(beta_per="class", size=2)
    by_sample = MarginLoss(beta_per="sample", size=9)
    assert one.beta.tolist() == pytest.approx([1.2])
    one(x, labels).backward()
    by_class(x, labels).backward()
    by_sample(x, labels, samples=[4, 0, 8, 3]).backward()
    # Charged: (0, 1) both ways as positives; (1, 2), (1, 3) both ways as negatives.
    assert by_class.beta.grad.tolist() == pytest.approx([0.0, 2 / 6])
    assert one.beta.grad.tolist() == pytest.approx([2 / 6 + 0.1])
    expected = torch.zeros(9)
    expected[[4, 0, 8, 3]] = torch.tensor([-1.0, 1.0, 1.0, 1.0]) / 6
    torch.testing.assert_close(by_sample.beta.grad, expected)
    assert not MarginLoss(learn_beta=False).beta.requires_grad


def test_margin_names_what_it_needs_for_its_boundaries():
    with pytest.raises(InputError, match="size: expected"):
        MarginLoss(beta_per="class")
    with pytest.raises(InputError, match="samples: expected"):
        MarginLoss(beta_per="sample", size=3)(torch.randn(2, 2), [0, 1])
    with pytest.raises(InputError, match=r"labels: expected 2 whole numbers in 0\.\.2"):
        MarginLoss(beta_per="class", size=3)(torch.randn(2, 2), [0, 3])


@given(batches(), MINERS, st.sampled_from([0.5, 1.0]))
@settings(max_examples=70, deadline=None)
def test_multi_similarity_equals_the_definition(batch, miner, base):
    x, labels = batch
    x = x + 0.1  # no row is zero: a zero row has no cosine

    def truth(wide):
        y = unit(wide)
        s = 1 - distances(y).square() / 2
        tuples = None if miner is None else miner(y, labels)
        each = []
        for i, (own, other) in enumerate(sets(labels, len(x), tuples)):
            pull = sum((torch.exp(-2 * (s[i, j] - base)) for j in own), torch.ones(()).double())
            push = sum((torch.exp(50 * (s[i, j] - base)) for j in other), torch.ones(()).double())
            each.append(torch.log(pull) / 2 + torch.log(push) / 50)
        return torch.stack(each).sum() / len(x) + wide.sum() * 0

    loss = MultiSimilarityLoss(base=base, miner=miner)
    assert_same(lambda z: loss(z, labels), truth, x, 1e-6)
    assert_same(lambda z: TupleLoss.forward(loss, z, labels), truth, x, 1e-6)


@pytest.mark.parametrize(
    "words",
    [("multi_similarity", "multi_similarity"), ("easy", "multi_similarity"), ("all", "all")],
)
@pytest.mark.parametrize("tight", [1.0, 1e-3])
def test_fused_multi_similarity_equals_the_listed_pairs_on_a_large_float32_batch(words, tight):
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 60, (300,), generator=g)
    centre = torch.randn(20, 32, generator=g)  # three classes share a centre
    x = tight * torch.randn(300, 32, generator=g) + centre[labels % 20]
    loss = MultiSimilarityLoss(miner=Miner(*words))
    fused = measured(lambda z: loss(z, labels), x)
    listed = measured(lambda z: TupleLoss.forward(loss, z, labels), x)
    assert fused[0] == pytest.approx(listed[0], rel=1e-5)
    assert float((fused[1] - listed[1]).norm() / listed[1].norm()) < 5e-5


@pytest.mark.parametrize("positives", ["all", "easy", "multi_similarity"])
@pytest.mark.parametrize("negatives", ["all", "multi_similarity"])
@pytest.mark.parametrize("tight", [1.0, 1e-4])
def test_numba_and_torch_charge_multi_similarity_alike(positives, negatives, tight, monkeypatch):
    pytest.importorskip("numba")
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 60, (200,), generator=g)
    x = tight * torch.randn(200, 8, generator=g) + torch.randn(20, 8, generator=g)[labels % 20]
    x = x.double()
    loss = MultiSimilarityLoss(base=0.5, miner=Miner(positives, negatives, epsilon=0.02))
    numba = measured(lambda z: loss(z, labels), x)
    monkeypatch.setattr(_engine, "kernels", lambda: None)
    plain = measured(lambda z: loss(z, labels), x)
    assert numba[0] == pytest.approx(plain[0], rel=1e-10)
    torch.testing.assert_close(numba[1], plain[1], rtol=1e-7, atol=1e-12)


@given(batches(), MINERS)
@settings(max_examples=50, deadline=None)
def test_sup_con_equals_the_definition(batch, miner):
    x, labels = batch
    x = x + 0.1

    def truth(wide):
        y = unit(wide)
        s = (1 - distances(y).square() / 2) / 0.3
        tuples = None if miner is None else miner(y, labels)
        each = []
        for i, (own, other) in enumerate(sets(labels, len(x), tuples)):
            if own:
                log_sum = torch.logsumexp(torch.stack([s[i, j] for j in own + other]), 0)
                each.append(torch.stack([log_sum - s[i, p] for p in own]).mean())
        return mean(each, wide)

    loss = SupConLoss(0.3, miner)
    assert_same(lambda z: loss(z, labels), truth, x, 1e-7)


@given(batches(), st.booleans(), st.sampled_from([0.0, 0.02]))
@settings(max_examples=50, deadline=None)
def test_n_pair_equals_the_definition(batch, easy, l2):
    x, labels = batch
    miner = Miner("easy", "hard") if easy else None

    def truth(wide):
        if miner is None:
            firsts = [(labels == c).nonzero().flatten().tolist() for c in labels.unique()]
            pairs = [(rows[0], rows[1]) for rows in firsts if len(rows) > 1]
        else:
            t = miner(wide, labels)
            pairs = sorted(zip(t.anchor.tolist(), t.positive.tolist(), strict=True))
        each = []
        for a, p in pairs:
            other = [wide[a] @ (wide[q] - wide[p]) for b, q in pairs if labels[b] != labels[a]]
            if other:
                gaps = torch.stack([torch.zeros(()).double(), *other])
                squares = wide[a] @ wide[a] + wide[p] @ wide[p]
                each.append(torch.logsumexp(gaps, 0) + l2 * squares / 2)
        return mean(each, wide)

    loss = NPairLoss(miner, l2=l2)
    assert_same(lambda z: loss(z, labels), truth, x, 1e-7)


@given(batches(), st.booleans(), st.integers(1, 3))
@settings(max_examples=50, deadline=None)
def test_proxy_nca_equals_the_definition_for_embeddings_and_proxies(batch, exclude, per_class):
    x, labels = batch
    x = x + 0.1
    g = torch.Generator().manual_seed(0)
    proxies = torch.randn(4, per_class, x.shape[1], generator=g, dtype=torch.float64)

    def truth(wide, points=proxies):
        y, p = unit(wide), unit(points.reshape(-1, x.shape[1])).view(points.shape)
        each = []
        for i in range(len(x)):
            square = 9 * (y[i] - p).square().sum(-1)
            own = int(labels[i])
            near = square[own].min()
            rest = [square[c, k] for c in range(4) for k in range(per_class) if c != own]
            if not exclude:
                rest.append(near)
            each.append(near + torch.logsumexp(-torch.stack(rest), 0))
        return torch.stack(each).mean()

    def ours(z, points=proxies):
        return proxy_nca_loss(z, labels, points, exclude_positive=exclude)

    assert_same(ours, truth, x, 1e-7)
    leaf, other = proxies.clone().requires_grad_(), proxies.clone().requires_grad_()
    ours(x, leaf).backward()
    truth(x, other).backward()
    torch.testing.assert_close(leaf.grad, other.grad, rtol=1e-6, atol=1e-9)


def test_proxies_are_seeded_and_a_miner_restricts_the_anchors():
    loss = ProxyNCALoss(3, 2, generator=torch.Generator().manual_seed(5))
    again = ProxyNCALoss(3, 2, generator=torch.Generator().manual_seed(5))
    assert torch.equal(loss.proxies, again.proxies)
    x, labels = torch.randn(5, 2), torch.tensor([0, 0, 1, 2, 2])
    only = [torch.tensor(i) for i in ([0, 4], [1, 3], [2, 2])]
    assert loss(x, labels, only).item() == pytest.approx(loss(x[[0, 4]], labels[[0, 4]]).item())
    with pytest.raises(InputError, match="2 as the proxies have"):
        loss(torch.randn(5, 3), labels)


def pml_batch(n=40, dim=8):
    g = torch.Generator().manual_seed(1)
    labels = torch.arange(n) // 4
    return torch.randn(n, dim, generator=g) + torch.randn(n, dim, generator=g)[labels], labels


PML_MINED = pml_miners.MultiSimilarityMiner(0.1)
PML_EASY = pml_miners.BatchEasyHardMiner("easy", "hard")


def pml_proxies(exclude_positive=False):
    ours = ProxyNCALoss(10, 8, scale=2.0, exclude_positive=exclude_positive)
    theirs = pml_losses.ProxyNCALoss(10, 8, softmax_scale=4)
    theirs.proxies = nn.Parameter(ours.proxies.detach()[:, 0].clone())
    return ours, theirs


@pytest.mark.parametrize("mined", [None, PML_MINED, PML_EASY])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (ContrastiveLoss(1.0, normalize=True, reduction="nonzero"), pml_losses.ContrastiveLoss()),
        (MultiSimilarityLoss(base=0.5), pml_losses.MultiSimilarityLoss(2, 50, 0.5)),
        (SupConLoss(0.1), pml_losses.SupConLoss(0.1)),
        (MarginLoss(normalize=True), pml_losses.MarginLoss()),
    ],
)
def test_losses_equal_pml(ours, theirs, mined):
    if isinstance(ours, MarginLoss) and mined is not PML_EASY:
        pytest.skip("PML counts a pair once for each triplet it makes of the pairs; here once")
    x, labels = pml_batch()
    tuples = None if mined is None else mined(x, labels)
    a, b = (measured(lambda z, f=f: f(z, labels, tuples), x) for f in (ours, theirs))
    assert a[0] == pytest.approx(b[0], abs=1e-5)
    torch.testing.assert_close(a[1], b[1], rtol=1e-4, atol=2e-6)


def test_n_pair_and_proxy_nca_equal_pml():
    x, labels = pml_batch()
    n_pair = NPairLoss(normalize=True), pml_losses.NPairsLoss()
    for ours, theirs in (n_pair, pml_proxies()):
        a, b = (measured(lambda z, f=f: f(z, labels), x) for f in (ours, theirs))
        assert a[0] == pytest.approx(b[0], rel=1e-5)
        torch.testing.assert_close(a[1], b[1], rtol=1e-4, atol=2e-6)


def test_margin_over_all_triplets_equals_pml_when_its_triplets_are_given():
    x, labels = pml_batch(16)
    every = Miner("all", "all")(x, labels)
    ours, theirs = MarginLoss(normalize=True), pml_losses.MarginLoss()
    a, b = (measured(lambda z, f=f: f(z, labels, every), x) for f in (ours, theirs))
    assert a[0] == pytest.approx(b[0], abs=1e-5)
    torch.testing.assert_close(a[1], b[1], rtol=1e-4, atol=2e-6)


def test_pml_contrastive_in_plain_mean_is_the_default_here():
    x, labels = pml_batch()
    theirs = pml_losses.ContrastiveLoss(
        distance=pml_distances.LpDistance(normalize_embeddings=False),
        reducer=pml_reducers.MeanReducer(),
        neg_margin=3.0,
    )
    a, b = (measured(lambda z, f=f: f(z, labels), x) for f in (ContrastiveLoss(3.0), theirs))
    assert a[0] == pytest.approx(b[0], abs=1e-5)
    torch.testing.assert_close(a[1], b[1], rtol=1e-4, atol=2e-6)


EVERY_LOSS = [
    ContrastiveLoss(),
    TripletLoss(0.2),
    MarginLoss(),
    MultiSimilarityLoss(),
    ProxyNCALoss(4, 6),
    NPairLoss(),
    SupConLoss(),
]


@pytest.mark.parametrize(
    ("loss", "value"),
    [
        (ContrastiveLoss(0.5), 0.5),
        (MarginLoss(), 1.4),
        (MultiSimilarityLoss(), math.log(4) / 2 + math.log(9) / 50),
        (
            MultiSimilarityLoss(miner=Miner("easy", "multi_similarity")),
            math.log(2) / 2 + math.log(9) / 50,
        ),
        (SupConLoss(), math.log(11)),
        (SupConLoss(miner=Miner("easy", "all")), math.log(9)),
        (NPairLoss(), math.log(3)),
    ],
)
def test_when_all_coincide_the_value_is_as_documented_and_the_gradient_zero(loss, value):
    x = torch.full((12, 6), 0.3)
    got, gradient = measured(lambda z: loss(z, torch.arange(12) // 4), x)
    assert got == pytest.approx(value, rel=1e-5)
    assert float(gradient.abs().max()) < 1e-7


def test_when_all_coincide_proxies_still_pull_classes_apart_until_they_coincide_too():
    x, labels = torch.full((8, 6), 0.3), torch.arange(8) // 2
    loss = ProxyNCALoss(4, 6, generator=torch.Generator().manual_seed(0))
    assert float(measured(lambda z: loss(z, labels), x)[1].norm()) > 0.1
    value, gradient = measured(lambda z: proxy_nca_loss(z, labels, torch.ones(4, 1, 6)), x)
    assert value == pytest.approx(math.log(3), rel=1e-6)
    assert float(gradient.abs().max()) < 1e-7


@pytest.mark.parametrize("loss", EVERY_LOSS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_loss_takes_every_dtype_and_ignores_autocast(loss, dtype):
    x = torch.randn(12, 6, generator=torch.Generator().manual_seed(0)).to(dtype)
    labels = torch.arange(12) // 3
    value, gradient = measured(lambda z: loss(z, labels), x)
    assert math.isfinite(value)
    assert bool(torch.isfinite(gradient).all())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again, other = measured(lambda z: loss(z, labels), x)
    assert value == again
    assert torch.equal(gradient, other)


@pytest.mark.parametrize("loss", EVERY_LOSS)
@pytest.mark.parametrize("noise", [1e-2, 1e-5])
def test_every_float32_gradient_is_right_near_collapse(loss, noise):
    if isinstance(loss, NPairLoss):
        pytest.skip("inner products of raw embeddings have no centre to be taken about")
    x = 1.0 + noise * torch.randn(24, 6, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(24) // 6
    gradient = measured(lambda z: loss(z, labels), x)[1]
    truth = measured(lambda z: loss(z, labels), x.double())[1]
    assert float((gradient - truth).norm()) <= 1e-5 * float(truth.norm())


@pytest.mark.parametrize("loss", EVERY_LOSS)
@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2], [3]])
def test_every_loss_is_finite_on_one_class_and_on_singletons(loss, labels):
    value, gradient = measured(lambda z: loss(z, labels), torch.randn(len(labels), 6))
    assert math.isfinite(value)
    assert bool(torch.isfinite(gradient).all())


@pytest.mark.parametrize("positives", ["easy", "hard", "random", "inside", "all"])
@pytest.mark.parametrize(
    "negatives", ["hard", "semihard", "random", "distance", "multi_similarity"]
)
def test_every_loss_takes_every_miner(positives, negatives):
    x = torch.randn(18, 6, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(18) % 4
    miner = Miner(positives, negatives, generator=torch.Generator().manual_seed(0))
    for loss in (
        ContrastiveLoss(miner=miner),
        TripletLoss(0.2, miner),
        MarginLoss(miner=miner),
        MultiSimilarityLoss(miner=miner),
        ProxyNCALoss(4, 6, miner=miner),
        NPairLoss(miner),
        SupConLoss(miner=miner),
    ):
        value, gradient = measured(lambda z, f=loss: f(z, labels), x)
        assert math.isfinite(value)
        assert bool(torch.isfinite(gradient).all())


def test_the_functions_equal_the_modules():
    x, labels = pml_batch(12, 6)
    assert multi_similarity_loss(x, labels) == MultiSimilarityLoss()(x, labels)
    assert margin_loss(x, labels) == MarginLoss()(x, labels)
