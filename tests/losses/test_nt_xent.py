import math

import torch

from losses.loss_oracles import Definition, mean, unit
from uncollapse.losses import NTXentLoss


def nt_xent(given, temperature):
    """van den Oord et al., pair by pair."""
    e, each = torch.exp(given.cosine / temperature), []
    for i, (own, other) in enumerate(given.sets):
        for p in own:
            whole = e[i, p] + sum((e[i, n] for n in other), torch.zeros(()))
            each.append(-torch.log(e[i, p] / whole))
    return mean(each, given.rows)


DEFINITIONS = {
    NTXentLoss: Definition(
        nt_xent,
        drawn={"temperature": [0.3]},
        refused={"temperature": 0},
        collapsed=[({}, math.log(10))],
    )
}


def test_it_is_simclr_s_for_two_views_of_each_sample():
    g = torch.Generator().manual_seed(0)
    z = unit(torch.randn(8, 4, generator=g, dtype=torch.float64))
    s = (z @ z.T / 0.5).fill_diagonal_(-torch.inf)  # Chen et al.: all but the sample itself
    expected = torch.nn.functional.cross_entropy(s, torch.arange(8).roll(4))
    labels = torch.arange(4).repeat(2)
    torch.testing.assert_close(NTXentLoss(temperature=0.5)(z, labels), expected)
