from losses.loss_oracles import Definition, mean
from uncollapse.losses import ContrastiveLoss


def contrastive(given, margin, pos_margin, normalize, reduction):
    d = given.distance
    positive, negative = given.pairs
    near = [(d[a, p] - pos_margin).relu() for a, p in positive]
    far = [(margin - d[a, n]).relu() for a, n in negative]
    if reduction == "pairs":
        return mean(near + far, given.rows)
    if reduction == "nonzero":
        near, far = ([cost for cost in costs if cost > 0] for costs in (near, far))
    return mean(near, given.rows) + mean(far, given.rows)


DEFINITIONS = {
    ContrastiveLoss: Definition(
        contrastive,
        drawn={"margin": [1.3], "pos_margin": [0.0, 0.4], "normalize": [False, True]},
        forms=[{"reduction": word} for word in ("mean", "nonzero", "pairs")],
        refused={"margin": -1.0, "pos_margin": -1e-9},
        collapsed=[({"margin": 0.5}, 0.5)],
    )
}
