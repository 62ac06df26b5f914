import math

import torch

from losses.loss_oracles import Definition, unit
from uncollapse.losses import ProxyNCALoss


def proxy_nca(given, exclude_positive, per_class):
    """Movshovitz-Attias et al. (5), of the nearest own proxy."""
    proxies, each = unit(given.parameter), []
    for row, own in zip(given.rows, given.labels, strict=True):
        square = 9 * (row - proxies).square().sum(-1)
        near = square[own].min()
        others = [square[c, k] for c in range(len(proxies)) for k in range(per_class) if c != own]
        if not exclude_positive:
            others.append(near)
        each.append(near + torch.logsumexp(-torch.stack(others), 0))
    return torch.stack(each).mean()


DEFINITIONS = {
    ProxyNCALoss: Definition(
        proxy_nca,
        drawn={"exclude_positive": [True, False], "per_class": [1, 2, 3]},
        refused={"scale": 0, "per_class": 0},
        collapsed=[({}, math.log(3))],
    )
}
