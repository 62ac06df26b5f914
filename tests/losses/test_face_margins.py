import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytorch_metric_learning import losses as pml_losses

from losses.loss_oracles import assert_same, batches, measured, unit
from losses.pml_tester import assert_is_pml_s
from support.errors import refused
from uncollapse.losses import ArcFaceLoss, CosFaceLoss

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")


def plain(wide, points, labels, kind, margin, scale):
    """Deng et al. 2019 (3) and Wang et al. 2018, sample by sample, by their angles."""
    y, p = unit(wide), unit(points.flatten(0, 1)).view(points.shape)
    each = []
    for i, label in enumerate(labels.tolist()):
        cosine = [(p[c] @ y[i]).max() for c in range(len(p))]
        own = cosine[label]
        if kind is CosFaceLoss:
            changed = own - margin
        elif own >= -math.cos(margin):
            changed = torch.cos(torch.acos(own) + margin)
        else:
            changed = own - margin * math.sin(margin)
        rest = sum(torch.exp(scale * s) for c, s in enumerate(cosine) if c != label)
        top = torch.exp(scale * changed)
        each.append(-torch.log(top / (top + rest)))
    return torch.stack(each).mean()


@given(batches(), st.sampled_from([ArcFaceLoss, CosFaceLoss]), st.integers(1, 3))
def test_both_equal_the_definition_for_embeddings_and_class_vectors(batch, kind, sub_centers):
    x, labels = batch
    x = x + 0.1
    dim = x.shape[1] + 1  # in one dimension every angle is 0 or π
    x = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], dim=1)
    g = torch.Generator().manual_seed(0)
    vectors = torch.randn(4, sub_centers, dim, generator=g, dtype=torch.float64)
    loss = kind(num_classes=4, dim=dim, margin=0.6, scale=5.0, sub_centers=sub_centers)

    def truth(wide, points=vectors):
        return plain(wide, points, labels, kind, 0.6, 5.0)

    def ours(z, points=vectors):
        return torch.func.functional_call(loss, {"proxies": points}, (z, labels))

    assert_same(ours, truth, x, 1e-7)
    leaf, other = vectors.clone().requires_grad_(), vectors.clone().requires_grad_()
    ours(x, leaf).backward()
    truth(x, other).backward()
    torch.testing.assert_close(leaf.grad, other.grad, rtol=1e-6, atol=1e-9)


PAIRS = {
    "arcface": (
        lambda: ArcFaceLoss(num_classes=12, dim=8, margin=math.radians(28.6)),
        lambda: pml_losses.ArcFaceLoss(12, 8),
    ),
    "sub-centres": (
        lambda: ArcFaceLoss(num_classes=12, dim=8, margin=math.radians(28.6), sub_centers=3),
        lambda: pml_losses.SubCenterArcFaceLoss(num_classes=12, embedding_size=8, sub_centers=3),
    ),
    "cosface": (
        lambda: CosFaceLoss(num_classes=12, dim=8),
        lambda: pml_losses.CosFaceLoss(12, 8),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_they_are_pml_s_for_embeddings_and_class_vectors(name):
    ours, theirs = PAIRS[name]
    assert_is_pml_s(ours(), theirs())


@pytest.mark.parametrize(
    ("kind", "push"), [(ArcFaceLoss, 64 * (1 - math.cos(0.3))), (CosFaceLoss, 64 * 0.3)]
)
def test_when_all_coincide_vectors_still_pull_classes_apart_until_they_coincide_too(kind, push):
    x, labels = torch.full((8, 6), 0.3), torch.arange(8) // 2
    loss = kind(num_classes=4, dim=6, margin=0.3, generator=torch.Generator().manual_seed(0))
    assert float(measured(lambda z: loss(z, labels), x)[1].norm()) > 0.1
    loss.proxies.data = torch.ones(4, 1, 6)
    value, gradient = measured(lambda z: loss(z, labels), x)
    assert value == pytest.approx(math.log1p(3 * math.exp(push)), rel=1e-6)
    assert float(gradient.abs().max()) < 1e-6


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


def test_degrees_are_refused_as_a_margin():
    with refused("margin"):
        ArcFaceLoss(num_classes=4, dim=6, margin=28.6)


def test_sub_centres_are_drawn_and_counted():
    loss = CosFaceLoss(num_classes=4, dim=6, sub_centers=3)
    assert tuple(loss.proxies.shape) == (4, 3, 6)
    with refused("sub_centers"):
        CosFaceLoss(num_classes=4, dim=6, sub_centers=0)
