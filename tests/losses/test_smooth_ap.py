import pytest
import torch
from hypothesis import given
from pytorch_metric_learning import losses as pml_losses

from losses.loss_oracles import (
    MINERS,
    assert_same,
    batches,
    clouds,
    distances,
    mean,
    measured,
    sets,
    unit,
)
from losses.pml_tester import assert_is_pml_s, pml_batch
from uncollapse.losses import SmoothAPLoss, smooth_ap
from uncollapse.mining import Miner

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")


def average_precision(s, own, every, temperature):
    """Brown et al.: rank among the positives over rank among all, candidate by candidate."""
    found = []
    for i in own:
        above = {j: torch.sigmoid((s[j] - s[i]) / temperature) for j in every if j != i}
        among = 1 + sum(above[j] for j in own if j != i)
        found.append(among / (1 + sum(above.values())))
    return torch.stack(found).mean()


def plain(wide, labels, temperature=0.01, miner=None):
    y = unit(wide)
    s = 1 - distances(y).square() / 2
    tuples = None if miner is None else miner(y, labels)
    each = []
    for q, (own, other) in enumerate(sets(labels, len(wide), tuples)):
        if own:
            own = [q, *own]
            each.append(1 - average_precision(s[q], own, own + other, temperature))
    return mean(each, wide)


@given(batches(), MINERS)
def test_smooth_ap_equals_the_definition(batch, miner):
    x, labels = batch
    x = x + 0.1
    loss = SmoothAPLoss(temperature=0.2, miner=miner)
    assert_same(lambda z: loss(z, labels), lambda z: plain(z, labels, 0.2, miner), x, 1e-7)


@given(batches(grid=True))
def test_ties_count_a_half(batch):
    x, labels = batch
    assert_same(
        lambda z: SmoothAPLoss()(z, labels), lambda z: plain(z, labels), x + torch.tensor(0.5), 1e-6
    )


def test_it_is_pml_s_for_as_many_classes_as_a_class_has_samples():
    assert_is_pml_s(SmoothAPLoss(), pml_losses.SmoothAPLoss(), pml_batch(16), tolerance=1e-6)


@pytest.mark.parametrize(("n", "k"), [(16, 2), (16, 8), (40, 4)])
def test_pml_takes_the_number_of_classes_for_their_size_where_ours_is_the_definition(n, k):
    x, labels = pml_batch(n)[0], torch.arange(n) // k
    ours, theirs = SmoothAPLoss()(x, labels), pml_losses.SmoothAPLoss()(x, labels)
    torch.testing.assert_close(ours, plain(x, labels))
    swapped = torch.arange(n) // (n // k)  # its groups of rows, whatever their labels
    torch.testing.assert_close(theirs.double(), plain(x, swapped), rtol=1e-5, atol=1e-6)
    assert abs(float(ours - theirs)) > 0.01


def test_the_order_of_rows_and_the_sizes_of_classes_do_not_matter():
    x = torch.randn(9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.tensor([0, 0, 1, 1, 1, 1, 2, 2, 2])
    order = torch.randperm(9, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(SmoothAPLoss()(x, labels), SmoothAPLoss()(x[order], labels[order]))


def test_anchors_without_a_positive_are_left_out_and_without_a_negative_cost_nothing():
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    assert SmoothAPLoss().elements(x, [0, 0, 1, 1, 2]).anchor.tolist() == [0, 1, 2, 3]
    assert float(SmoothAPLoss()(x, [0, 0, 0, 0, 0])) == 0
    assert float(SmoothAPLoss()(x, [0, 1, 2, 3, 4])) == 0


def test_with_references_the_candidates_are_these():
    g = torch.Generator().manual_seed(0)
    x, ref = (torch.randn(n, 4, generator=g, dtype=torch.float64) for n in (5, 7))
    labels, ref_labels = torch.tensor([0, 0, 1, 2, 3]), torch.tensor([0, 1, 1, 2, 0, 2, 2])
    s = unit(x) @ unit(ref).T
    own = [[j for j in range(7) if ref_labels[j] == label] for label in labels]
    each = [1 - average_precision(s[q], p, range(7), 0.01) for q, p in enumerate(own) if p]
    found = SmoothAPLoss()(x, labels, ref_embeddings=ref, ref_labels=ref_labels)
    torch.testing.assert_close(found, torch.stack(each).mean())


def test_blocks_change_nothing(monkeypatch):
    x, labels = clouds(40, 5, dtype=torch.float64)
    whole = measured(lambda z: SmoothAPLoss()(z, labels), x)
    monkeypatch.setattr(smooth_ap, "_ELEMENTS", 100)
    parts = measured(lambda z: SmoothAPLoss()(z, labels), x)
    assert whole[0] == pytest.approx(parts[0], rel=1e-12)
    torch.testing.assert_close(whole[1], parts[1], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("noise", [1e-1, 1e-3, 1e-5])
def test_float32_far_from_the_origin_has_the_gradient_of_float64(noise):
    g = torch.Generator().manual_seed(0)
    x, labels = 1 + noise * torch.randn(24, 16, generator=g), torch.arange(24) % 6
    gradient = measured(lambda z: SmoothAPLoss()(z, labels), x)[1]
    truth = measured(lambda z: SmoothAPLoss()(z, labels), x.double())[1]
    assert float((gradient - truth).norm()) <= 1e-5 * float(truth.norm())


def test_when_all_coincide_the_value_is_as_documented_and_the_gradient_zero():
    x, labels = torch.full((12, 6), 0.3), torch.arange(12) // 4
    value, gradient = measured(lambda z: SmoothAPLoss()(z, labels), x)
    assert value == pytest.approx(1 - 5 / 13, rel=1e-6)
    assert float(gradient.abs().max()) < 1e-6


def test_a_miner_of_everything_changes_nothing():
    x, labels = clouds(20, 4)
    torch.testing.assert_close(
        SmoothAPLoss(miner=Miner("all", "all"))(x, labels), SmoothAPLoss()(x, labels)
    )
