import math

import torch

from losses.loss_oracles import Definition, mean
from uncollapse.losses import NPairLoss


def n_pair(given, l2, normalize):
    """Sohn (6): of each class its first two samples, or all distinct pairs of a miner."""
    x, y = given.rows, given.labels
    if given.tuples is None:
        members = [[i for i, label in enumerate(y) if label == c] for c in sorted(set(y))]
        pairs = [(rows[0], rows[1]) for rows in members if len(rows) > 1]
    else:
        pairs = sorted({(a, p) for a, p, _ in given.triplets})
    each = []
    for a, p in pairs:
        other = [x[a] @ (x[q] - x[p]) for b, q in pairs if y[b] != y[a]]
        if other:
            gaps = torch.stack([torch.zeros(()).double(), *other])
            squares = x[a] @ x[a] + x[p] @ x[p]
            each.append(torch.logsumexp(gaps, 0) + l2 * squares / 2)
    return mean(each, x)


DEFINITIONS = {
    NPairLoss: Definition(
        n_pair,
        drawn={"l2": [0.0, 0.02], "normalize": [False, True]},
        refused={"l2": -1},
        collapsed=[({}, math.log(4))],
    )
}
