import math

import torch

from losses.loss_oracles import Definition, Given, mean
from uncollapse.losses import CircleLoss


def circle(given, margin, gamma):
    """Sun et al., pair by pair."""
    s, each = given.cosine, []
    for i, (own, other) in enumerate(given.sets):
        if own and other:
            near = [
                torch.exp(-gamma * (1 + margin - s[i, p].detach()).relu() * (s[i, p] - 1 + margin))
                for p in own
            ]
            far = [
                torch.exp(gamma * (s[i, n].detach() + margin).relu() * (s[i, n] - margin))
                for n in other
            ]
            each.append(torch.log(1 + sum(far) * sum(near)))
    return mean(each, given.rows)


DEFINITIONS = {
    CircleLoss: Definition(
        circle,
        drawn={"margin": [0.25], "gamma": [7.0]},
        refused={"margin": 1.5, "gamma": 0},
        collapsed=[({}, math.log(2 * 9) + 80 * (1 - 2 * 0.4**2))],
    )
}


def test_its_second_derivative_is_that_of_fixed_weights():
    g = torch.Generator().manual_seed(0)
    x, labels = torch.randn(8, 3, generator=g, dtype=torch.float64), torch.arange(8) % 3

    def plain(z, y):
        rows = torch.nn.functional.normalize(z, dim=1)
        return circle(Given(rows, y.tolist()), 0.4, 4.0)

    seconds = []
    for loss in (CircleLoss(gamma=4.0), plain):
        z = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(loss(z, labels), z, create_graph=True)
        seconds.append(torch.autograd.grad(first.square().sum(), z)[0])
    torch.testing.assert_close(*seconds, rtol=1e-8, atol=1e-10)
