import math

import torch

from losses.loss_oracles import Definition, unit
from uncollapse.losses import SoftTripleLoss


def soft_triple(given, centers_per_class, la, gamma, margin, tau):
    """Qian et al., sample by sample, centre by centre."""
    p, each, centres = unit(given.parameter), [], range(centers_per_class)
    for row, label in zip(given.rows, given.labels, strict=True):
        similar = []
        for c in range(len(p)):
            s = [p[c, k] @ row for k in centres]
            weight = [torch.exp(v / gamma) for v in s]
            similar.append(sum(w * v for w, v in zip(weight, s, strict=True)) / sum(weight))
        top = torch.exp(la * (similar[label] - margin))
        others = sum(torch.exp(la * v) for c, v in enumerate(similar) if c != label)
        each.append(-torch.log(top / (top + others)))
    value = torch.stack(each).mean()
    pairs = [(t, s) for t in centres for s in range(t + 1, centers_per_class)]
    apart = [(p[c, t] - p[c, s]).norm() for c in range(len(p)) for t, s in pairs]
    scale = len(p) * centers_per_class * (centers_per_class - 1)
    return value + tau * sum(apart) / scale if apart else value


DEFINITIONS = {
    SoftTripleLoss: Definition(
        soft_triple,
        drawn={
            "centers_per_class": [1, 2, 3],
            "la": [5.0],
            "gamma": [0.4],
            "margin": [0.2],
            "tau": [0.0, 0.3],
        },
        refused={"centers_per_class": 0, "la": 0, "gamma": 0, "margin": -0.1, "tau": -0.1},
        collapsed=[({}, math.log1p(3 * math.exp(20 * 0.01)))],
    )
}
