import math

import pytest
import torch

from losses.loss_oracles import Definition, distances, mean, unit
from uncollapse.losses import NTXentLoss, SpreadLoss
from uncollapse.losses.spread import STAND_INS


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


def both(given, temperature, alpha, stand_in):
    e, ids, each = torch.exp(given.cosine / temperature), given.ids, []
    for a, (own, other) in enumerate(given.sets):
        if own:
            views = [] if ids is None else [p for p in own if ids[p] == ids[a]]
            apart = spread(e, a, own, views, stand_in)
            each.append((1 - alpha) * attract(e, a, own, other) + alpha * apart)
    return mean(each, given.rows)


DEFINITIONS = {
    SpreadLoss: Definition(
        both,
        drawn={
            "temperature": [0.3],
            "alpha": [0.0, 0.3, 1.0],
            "stand_in": STAND_INS,
            "sample_ids": [True, False],
        },
        refused={"temperature": 0, "alpha": 1.5},
        collapsed=[
            ({"stand_in": "nearest"}, (math.log(10) + math.log(2)) / 2),
            ({"stand_in": "self"}, (math.log(10) + math.log(3)) / 2),
        ],
    )
}


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
    # The pairs are named: each anchor of the first view, every row of the second.
    a, j = (i.flatten() for i in torch.meshgrid(torch.arange(6), torch.arange(6), indexing="ij"))
    same = labels[a] == labels[j]
    named = (a[same], j[same] + 6, a[~same], j[~same] + 6)
    loss = SpreadLoss()(views, labels.repeat(2), named, sample_ids=torch.arange(6).repeat(2))
    torch.testing.assert_close(loss, authors_form(first, second, labels))


def test_without_spread_it_is_nt_xent_by_anchor():
    x, labels = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
    torch.testing.assert_close(
        SpreadLoss(alpha=0.0, temperature=0.2)(x, labels), NTXentLoss(temperature=0.2)(x, labels)
    )


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
    loss = SpreadLoss(stand_in=stand_in)(x, labels, ref_embeddings=ref, ref_labels=ref_labels)
    torch.testing.assert_close(loss, torch.stack(each).mean())


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
