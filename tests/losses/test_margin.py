import pytest
import torch

from losses.loss_oracles import Definition
from support.errors import refused
from uncollapse.losses import MarginLoss


def margin_loss(given, beta_per, normalize, nu, reduction):
    """EPS §3; Wu et al. (6)."""
    numbers = {"global": [0] * len(given.rows), "class": given.labels, "sample": given.ids}
    d, beta = given.distance, given.parameter[numbers[beta_per]]
    positive, negative = given.pairs
    each = [(d[i, j] - beta[i] + 0.2).clamp(min=0) for i, j in positive]
    each += [(beta[i] - d[i, j] + 0.2).clamp(min=0) for i, j in negative]
    held = nu * given.parameter.mean() + given.rows.sum() * 0
    if not each:
        return held
    count = sum(float(e.detach()) > 0 for e in each) if reduction == "nonzero" else len(each)
    return torch.stack(each).sum() / max(count, 1) + held


DEFINITIONS = {
    MarginLoss: Definition(
        margin_loss,
        drawn={"normalize": [False, True], "nu": [0.0, 0.1], "reduction": ["nonzero", "mean"]},
        forms=[{"beta_per": word} for word in ("global", "class", "sample")],
        refused={"margin": -1.0, "beta": float("inf"), "nu": -1},
        collapsed=[({}, 1.4)],
    )
}


def test_a_boundary_starts_at_beta_and_is_learned_unless_it_is_not():
    assert MarginLoss(nu=0.1).beta.tolist() == pytest.approx([1.2])
    assert MarginLoss(beta_per="class", size=2, beta=0.7).beta.tolist() == pytest.approx([0.7] * 2)
    assert not MarginLoss(learn_beta=False).beta.requires_grad


def test_what_boundaries_need_is_named():
    with refused("size"):
        MarginLoss(beta_per="class")
    with refused("sample_ids"):
        MarginLoss(beta_per="sample", size=3)(torch.randn(2, 2), [0, 1])
    with refused("labels"):
        MarginLoss(beta_per="class", size=3)(torch.randn(2, 2), [0, 3])
