import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from losses.loss_oracles import (
    MINERS,
    assert_same,
    batches,
    distances,
    mean,
    measured,
    sets,
    unit,
)
from uncollapse.losses import NTXentLoss, SpreadLoss
from uncollapse.losses.spread import STAND_INS
from uncollapse.mining import Miner

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")
T = 0.3


def attract(e, a, own, other):
    negatives = sum((e[a, n] for n in other), torch.zeros(()))
    return torch.stack([-torch.log(e[a, p] / (e[a, p] + negatives)) for p in own]).mean()


def spread(e, a, own, views, stand_in):
    """Class-conditional InfoNCE: the view among the positives."""
    own = list(own)
    if not views:
        views = [a] if stand_in == "self" else [max(own, key=lambda p: float(e[a, p].detach()))]
        own += [a] * (stand_in == "self")
    whole = sum(e[a, p] for p in own)
    return torch.stack([-torch.log(e[a, v] / whole) for v in views]).mean()


def plain(wide, labels, alpha, stand_in, ids=None, miner=None):
    y = unit(wide)
    e = torch.exp((1 - distances(y).square() / 2) / T)
    tuples = None if miner is None else miner(y, labels)
    each = []
    for a, (own, other) in enumerate(sets(labels, len(wide), tuples)):
        if own:
            views = [] if ids is None else [p for p in own if ids[p] == ids[a]]
            apart = spread(e, a, own, views, stand_in)
            each.append((1 - alpha) * attract(e, a, own, other) + alpha * apart)
    return mean(each, wide)


@given(
    batches(),
    MINERS,
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from(STAND_INS),
    st.booleans(),
)
def test_spread_equals_the_definition(batch, miner, alpha, stand_in, with_ids):
    x, labels = batch
    x = x + 0.1
    ids = torch.arange(len(x)) // 2 + 10 * labels if with_ids else None
    loss = SpreadLoss(temperature=T, alpha=alpha, stand_in=stand_in, miner=miner)

    def truth(wide):
        return plain(wide, labels, alpha, stand_in, ids, miner)

    assert_same(lambda z: loss(z, labels, sample_ids=ids), truth, x, 1e-7)


def authors_form(first, second, labels):
    """Chen et al.'s code for two views: anchors of one, candidates of the other, its own view in P.

    Weights 1 and 1, T 0.5, without its clamp of cosines over T at 1.
    """
    s, each = unit(first) @ unit(second).T / 0.5, []
    for i in range(len(labels)):
        own = [j for j in range(len(labels)) if labels[j] == labels[i]]
        other = [j for j in range(len(labels)) if labels[j] != labels[i]]
        pulled = [torch.logsumexp(s[i, [p, *other]], 0) - s[i, p] for p in own]
        apart = torch.logsumexp(s[i, own], 0) - s[i, i]
        each.append((torch.stack(pulled).mean() + apart) / 2)
    return torch.stack(each).mean()


def test_with_two_views_it_is_the_authors_form_but_for_candidates_of_the_anchor_s_own_view():
    """Where the anchor's own view holds no other sample of the batch, the two are one."""
    g = torch.Generator().manual_seed(0)
    first, second = (torch.randn(6, 4, generator=g, dtype=torch.float64) for _ in range(2))
    labels = torch.tensor([0, 0, 0, 1, 1, 1])
    views = torch.cat([first, second])
    both = SpreadLoss().elements(views, labels.repeat(2), sample_ids=torch.arange(6).repeat(2))
    assert both.anchor.tolist() == list(range(12))
    # The same with the pairs named: each anchor of the first view, every row of the second.
    a, j = (i.flatten() for i in torch.meshgrid(torch.arange(6), torch.arange(6), indexing="ij"))
    same = labels[a] == labels[j]
    named = (a[same], j[same] + 6, a[~same], j[~same] + 6)
    found = SpreadLoss()(views, labels.repeat(2), named, sample_ids=torch.arange(6).repeat(2))
    torch.testing.assert_close(found, authors_form(first, second, labels))


def test_without_spread_it_is_nt_xent_by_anchor():
    x, labels = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
    torch.testing.assert_close(
        SpreadLoss(alpha=0.0, temperature=0.2)(x, labels), NTXentLoss(temperature=0.2)(x, labels)
    )


def test_a_view_is_a_row_of_the_same_sample_and_of_no_other_class():
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    labels, ids = torch.arange(8) // 4, torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    loss = SpreadLoss()
    assert not torch.equal(loss(x, labels, sample_ids=ids), loss(x, labels))
    across = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])  # the same id in two classes is no view
    assert torch.equal(loss(x, labels, sample_ids=across), loss(x, labels))


@pytest.mark.parametrize("stand_in", STAND_INS)
def test_references_have_no_views(stand_in):
    g = torch.Generator().manual_seed(0)
    x, ref = (torch.randn(n, 4, generator=g, dtype=torch.float64) for n in (4, 6))
    labels, ref_labels = torch.arange(4) % 2, torch.arange(6) % 2
    e, each = torch.exp(unit(x) @ unit(ref).T / 0.5), []
    for a in range(4):
        own = [j for j in range(6) if ref_labels[j] == labels[a]]
        other = [j for j in range(6) if ref_labels[j] != labels[a]]
        if stand_in == "self":
            top = torch.tensor(math.exp(2.0), dtype=torch.float64)
            apart = -torch.log(top / (top + e[a, own].sum()))
        else:
            apart = -torch.log(e[a, own].max() / e[a, own].sum())
        each.append((attract(e, a, own, other) + apart) / 2)
    found = SpreadLoss(stand_in=stand_in)(x, labels, ref_embeddings=ref, ref_labels=ref_labels)
    torch.testing.assert_close(found, torch.stack(each).mean())


@pytest.mark.parametrize(("stand_in", "rivals"), [("nearest", 3), ("self", 4)])
def test_when_all_coincide_the_value_is_as_documented_and_the_gradient_zero(stand_in, rivals):
    x, labels = torch.full((12, 6), 0.3), torch.arange(12) // 4
    value, gradient = measured(lambda z: SpreadLoss(stand_in=stand_in)(z, labels), x)
    assert value == pytest.approx((math.log(9) + math.log(rivals)) / 2, rel=1e-6)
    assert float(gradient.abs().max()) < 1e-7


def test_the_row_itself_pushes_a_class_apart_that_is_nearly_one_point():
    g = torch.Generator().manual_seed(0)
    x = torch.nn.functional.one_hot(torch.arange(12) // 4, 6).double()
    x = x + 0.05 * torch.randn(12, 6, generator=g, dtype=torch.float64)
    z = x.clone().requires_grad_()
    SpreadLoss(stand_in="self", alpha=1.0)(z, torch.arange(12) // 4).backward()
    stepped = unit(x) - 1e-3 * z.grad
    for c in range(3):
        own = slice(4 * c, 4 * c + 4)
        assert float(distances(unit(stepped[own])).sum()) > float(distances(unit(x[own])).sum())


def test_anchors_without_a_positive_are_left_out():
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    assert SpreadLoss().elements(x, [0, 0, 1, 1, 2]).anchor.tolist() == [0, 1, 2, 3]
    assert SpreadLoss(miner=Miner("all", "all"))(x, [0, 0, 1, 1, 2]) == SpreadLoss()(
        x, [0, 0, 1, 1, 2]
    )
