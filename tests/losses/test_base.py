import math

import pytest
import torch
from pytorch_metric_learning import losses as pml_losses

from losses.loss_oracles import EVERY_LOSS, makers, measured
from losses.pml_tester import MINED, PML_EASY, assert_is_pml_s
from uncollapse.losses import (
    ContrastiveLoss,
    MarginLoss,
    MultiSimilarityLoss,
    NPairLoss,
    ProxyNCALoss,
    SupConLoss,
)
from uncollapse.mining import Miner

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")


@MINED
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            ContrastiveLoss(margin=1.0, normalize=True, reduction="nonzero"),
            pml_losses.ContrastiveLoss(),
        ),
        (MultiSimilarityLoss(base=0.5), pml_losses.MultiSimilarityLoss(2, 50, 0.5)),
        (SupConLoss(temperature=0.1), pml_losses.SupConLoss(0.1)),
        (MarginLoss(normalize=True), pml_losses.MarginLoss()),
    ],
)
def test_losses_equal_pml(ours, theirs, mined):
    if isinstance(ours, MarginLoss) and mined is not PML_EASY:
        pytest.skip("PML counts a pair once for each triplet it makes of the pairs; here once")
    assert_is_pml_s(ours, theirs, mined=mined)


def test_n_pair_and_proxy_nca_equal_pml():
    assert_is_pml_s(NPairLoss(normalize=True), pml_losses.NPairsLoss())
    ours = ProxyNCALoss(num_classes=10, dim=8, scale=2.0, exclude_positive=False)
    assert_is_pml_s(ours, pml_losses.ProxyNCALoss(10, 8, softmax_scale=4))


@pytest.mark.parametrize(
    ("loss", "value"),
    [
        (ContrastiveLoss(margin=0.5), 0.5),
        (MarginLoss(), 1.4),
        (MultiSimilarityLoss(), math.log(4) / 2 + math.log(9) / 50),
        (
            MultiSimilarityLoss(miner=Miner("easy", "multi_similarity")),
            math.log(2) / 2 + math.log(9) / 50,
        ),
        (SupConLoss(), math.log(11)),
        (SupConLoss(miner=Miner("easy", "all")), math.log(9)),
        (NPairLoss(), math.log(3)),
    ],
)
def test_when_all_coincide_the_value_is_as_documented_and_the_gradient_zero(loss, value):
    x = torch.full((12, 6), 0.3)
    got, gradient = measured(lambda z: loss(z, torch.arange(12) // 4), x)
    assert got == pytest.approx(value, rel=1e-5)
    assert float(gradient.abs().max()) < 1e-7


@pytest.mark.parametrize("loss", EVERY_LOSS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_loss_takes_every_dtype_and_ignores_autocast(loss, dtype):
    x = torch.randn(12, 6, generator=torch.Generator().manual_seed(0)).to(dtype)
    labels = torch.arange(12) // 3
    value, gradient = measured(lambda z: loss(z, labels), x)
    assert math.isfinite(value)
    assert bool(torch.isfinite(gradient).all())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again, other = measured(lambda z: loss(z, labels), x)
    assert value == again
    assert torch.equal(gradient, other)


@pytest.mark.parametrize("loss", EVERY_LOSS)
@pytest.mark.parametrize("noise", [1e-2, 1e-5])
def test_every_float32_gradient_is_right_near_collapse(loss, noise):
    if isinstance(loss, NPairLoss):
        pytest.skip("inner products of raw embeddings have no centre to be taken about")
    x = 1.0 + noise * torch.randn(24, 6, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(24) // 6
    gradient = measured(lambda z: loss(z, labels), x)[1]
    truth = measured(lambda z: loss(z, labels), x.double())[1]
    assert float((gradient - truth).norm()) <= 1e-5 * float(truth.norm())


@pytest.mark.parametrize("loss", EVERY_LOSS)
@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2], [3]])
def test_every_loss_is_finite_on_one_class_and_on_singletons(loss, labels):
    value, gradient = measured(lambda z: loss(z, labels), torch.randn(len(labels), 6))
    assert math.isfinite(value)
    assert bool(torch.isfinite(gradient).all())


@pytest.mark.parametrize("positives", ["easy", "hard", "random", "inside", "all"])
@pytest.mark.parametrize(
    "negatives", ["hard", "semihard", "random", "distance", "multi_similarity"]
)
def test_every_loss_takes_every_miner(positives, negatives):
    x = torch.randn(18, 6, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(18) % 4
    miner = Miner(positives, negatives, generator=torch.Generator().manual_seed(0))
    for make in makers().values():
        loss = make(miner=miner)
        value, gradient = measured(lambda z, f=loss: f(z, labels), x)
        assert math.isfinite(value)
        assert bool(torch.isfinite(gradient).all())
