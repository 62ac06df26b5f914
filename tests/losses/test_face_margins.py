import math

import pytest
import torch

from losses.loss_oracles import Definition, measured, unit
from uncollapse.losses import ArcFaceLoss, CosFaceLoss


def softmax_of(changed):
    """Deng et al. 2019 (3) and Wang et al. 2018, sample by sample: nearest sub-centres alone."""

    def loss(given, margin, scale, sub_centers):
        p, each = unit(given.parameter), []
        for row, label in zip(given.rows, given.labels, strict=True):
            cosine = [(p[c] @ row).max() for c in range(len(p))]
            others = sum(torch.exp(scale * s) for c, s in enumerate(cosine) if c != label)
            top = torch.exp(scale * changed(cosine[label], margin))
            each.append(-torch.log(top / (top + others)))
        return torch.stack(each).mean()

    return loss


def by_angle(cosine, margin):
    if cosine >= -math.cos(margin):
        return torch.cos(torch.acos(cosine) + margin)
    return cosine - margin * math.sin(margin)


DRAWN = {"margin": [0.6], "scale": [5.0], "sub_centers": [1, 2, 3]}
DEGREES = {"margin": 28.6, "scale": 0, "sub_centers": 0}
PUSH = {ArcFaceLoss: 64 * (1 - math.cos(0.3)), CosFaceLoss: 64 * 0.3}
CHANGED = {ArcFaceLoss: by_angle, CosFaceLoss: lambda cosine, margin: cosine - margin}
DEFINITIONS = {
    kind: Definition(
        softmax_of(changed),
        DRAWN,
        refused=DEGREES,
        collapsed=[({"margin": 0.3}, math.log1p(3 * math.exp(PUSH[kind])))],
    )
    for kind, changed in CHANGED.items()
}


@pytest.mark.parametrize("angle", [1e-2, 1e-4, 1e-6])
def test_the_gradient_of_arcface_is_right_beside_the_class_vector(angle):
    """∂/∂θ of log(1 + exp(s (cos φ - cos(θ + m)))) for φ = π/2 - θ, in closed form."""
    loss = ArcFaceLoss(num_classes=2, dim=2, margin=0.5, scale=2.0).double()
    loss.proxies.data = torch.eye(2, dtype=torch.float64)[:, None]
    x = torch.tensor([[math.cos(angle), math.sin(angle)]], dtype=torch.float64)
    _, gradient = measured(lambda z: loss(z, [0]), x)
    tangent = torch.tensor([[-math.sin(angle), math.cos(angle)]], dtype=torch.float64)
    gap = 2.0 * (math.sin(angle) - math.cos(angle + 0.5))
    slope = 2.0 * (math.cos(angle) + math.sin(angle + 0.5)) / (1 + math.exp(-gap))
    assert float((gradient * tangent).sum()) == pytest.approx(slope, rel=1e-8)
