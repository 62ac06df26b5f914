import math

import torch

from losses.loss_oracles import Definition, mean
from uncollapse.losses import SupConLoss
from uncollapse.mining import Miner


def sup_con(given, temperature):
    """Khosla et al. (2)."""
    s, each = given.cosine / temperature, []
    for i, (own, other) in enumerate(given.sets):
        if own:
            log_sum = torch.logsumexp(torch.stack([s[i, j] for j in own + other]), 0)
            each.append(torch.stack([log_sum - s[i, p] for p in own]).mean())
    return mean(each, given.rows)


DEFINITIONS = {
    SupConLoss: Definition(
        sup_con,
        drawn={"temperature": [0.3]},
        refused={"temperature": 0},
        collapsed=[({}, math.log(11)), ({"miner": Miner("easy", "all")}, math.log(10))],
    )
}
