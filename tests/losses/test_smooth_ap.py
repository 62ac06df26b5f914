import pytest
import torch
from hypothesis import given

from losses import loss_oracles
from losses.loss_oracles import Definition, Given, assert_same, batches, clouds, measured, unit
from peers.pml_page import pml_batch
from uncollapse.losses import SmoothAPLoss, smooth_ap


def average_precision(s, own, every, temperature):
    """Brown et al.: rank among the positives over rank among all, candidate by candidate."""
    ratios = []
    for i in own:
        above = {j: torch.sigmoid((s[j] - s[i]) / temperature) for j in every if j != i}
        among = 1 + sum(above[j] for j in own if j != i)
        ratios.append(among / (1 + sum(above.values())))
    return torch.stack(ratios).mean()


def one_minus_ap(given, temperature=0.01):
    each = [
        1 - average_precision(given.cosine[q], [q, *own], [q, *own, *other], temperature)
        for q, (own, other) in enumerate(given.sets)
        if own
    ]
    return loss_oracles.mean(each, given.rows)


DEFINITIONS = {
    SmoothAPLoss: Definition(
        one_minus_ap,
        drawn={"temperature": [0.2]},
        refused={"temperature": 0},
        collapsed=[({}, 1 - 2 / 6.5)],
    )
}


@given(batches(grid=True))
def test_ties_count_a_half(batch):
    x, labels = batch
    assert_same(
        lambda z: SmoothAPLoss()(z, labels),
        lambda z: one_minus_ap(Given(unit(z), labels.tolist())),
        x + 0.5,
        1e-6,
    )


@pytest.mark.parametrize(("n", "k"), [(16, 4), (16, 2), (40, 4)])
def test_pml_takes_the_number_of_classes_for_their_size_where_ours_is_the_definition(n, k):
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    x, labels = pml_batch(n)[0], torch.arange(n) // k
    ours, theirs = SmoothAPLoss()(x, labels), losses.SmoothAPLoss()(x, labels)
    swapped = torch.arange(n) // (n // k)  # its groups of rows, whatever their labels
    truth, other = (one_minus_ap(Given(unit(x), y.tolist())) for y in (labels, swapped))
    torch.testing.assert_close(ours, truth)
    torch.testing.assert_close(theirs.double(), other, rtol=1e-5, atol=1e-6)
    assert (abs(float(ours - theirs)) > 0.01) is (n != k * k)


def test_anchors_without_a_positive_or_without_a_negative_cost_nothing():
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    assert float(SmoothAPLoss()(x, [0, 0, 0, 0, 0])) == 0
    assert float(SmoothAPLoss()(x, [0, 1, 2, 3, 4])) == 0


def test_with_references_the_candidates_are_these():
    g = torch.Generator().manual_seed(0)
    x, ref = (torch.randn(n, 4, generator=g, dtype=torch.float64) for n in (5, 7))
    labels, ref_labels = torch.tensor([0, 0, 1, 2, 3]), torch.tensor([0, 1, 1, 2, 0, 2, 2])
    s = unit(x) @ unit(ref).T
    own = [[j for j in range(7) if ref_labels[j] == label] for label in labels]
    each = [1 - average_precision(s[q], p, range(7), 0.01) for q, p in enumerate(own) if p]
    loss = SmoothAPLoss()(x, labels, ref_embeddings=ref, ref_labels=ref_labels)
    torch.testing.assert_close(loss, torch.stack(each).mean())


def test_blocks_change_nothing(monkeypatch):
    x, labels = clouds(40, 5, dtype=torch.float64)
    whole = measured(lambda z: SmoothAPLoss()(z, labels), x)
    monkeypatch.setattr(smooth_ap, "_ELEMENTS", 100)
    parts = measured(lambda z: SmoothAPLoss()(z, labels), x)
    assert whole[0] == pytest.approx(parts[0], rel=1e-12)
    torch.testing.assert_close(whole[1], parts[1], rtol=1e-10, atol=1e-13)
