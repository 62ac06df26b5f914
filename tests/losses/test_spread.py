import math

import pytest
import torch

from losses.loss_oracles import Definition, mean, unit
from uncollapse.losses import SpreadLoss
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
        drawn={"temperature": [0.3], "alpha": [0.0, 0.3, 1.0], "sample_ids": [True, False]},
        forms=[{"stand_in": word} for word in STAND_INS],
        refused={"temperature": 0, "alpha": 1.5},
        collapsed=[
            ({"stand_in": "nearest"}, (math.log(10) + math.log(2)) / 2),
            ({"stand_in": "self"}, (math.log(10) + math.log(3)) / 2),
        ],
    )
}


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
