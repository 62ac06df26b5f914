import math

import torch

from losses.loss_oracles import Definition, unit
from uncollapse.losses import ProxyAnchorLoss


def proxy_anchor(given, margin, alpha):
    """Kim et al., term by term."""
    y, p = given.rows, unit(given.parameter[:, 0])
    near, far = [], []
    for c in range(len(p)):
        s = [(row @ p[c], label == c) for row, label in zip(y, given.labels, strict=True)]
        own = [torch.exp(-alpha * (cosine - margin)) for cosine, same in s if same]
        other = [torch.exp(alpha * (cosine + margin)) for cosine, same in s if not same]
        if own:
            near.append(torch.log(1 + sum(own)))
        far.append(torch.log(1 + sum(other)) if other else y.sum() * 0)
    return torch.stack(near).mean() + torch.stack(far).mean()


COSTS = math.log1p(3 * math.exp(-32 * 0.9)) + math.log1p(9 * math.exp(32 * 1.1))
DEFINITIONS = {
    ProxyAnchorLoss: Definition(
        proxy_anchor,
        drawn={"margin": [0.2], "alpha": [5.0]},
        refused={"margin": -0.1, "alpha": 0},
        collapsed=[({}, COSTS)],
    )
}
